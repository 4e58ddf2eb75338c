"""What commands share: paths, options, the words you typed, and the files that commands write."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from whet.cli.grammar.application import TYPED
from whet.cli.grammar.options import option, select_words
from whet.cli.grammar.parts import PartName
from whet.cli.grammar.quantities import Duration
from whet.errors import UsageError
from whet.plan.settings.table import GIVEN, Setting

if TYPE_CHECKING:
    from whet.report.screen import Screen

Command = TypeVar("Command", bound=Callable[..., Any])
Decorator = Callable[[Command], Command]


class SomeText(click.ParamType[str]):
    """A text that must not be empty: an unset shell variable does not mean everything."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return *value* as it is."""
        if not str(value).strip():
            self.fail("must not be empty", param, ctx)
        return str(value)


class FilePath(click.Path):
    """A path that must not be empty: an unset shell variable does not mean the current folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return *value* as a `Path`."""
        return super().convert(SOME_TEXT.convert(value, param, ctx), param, ctx)


SOME_TEXT = SomeText()
FILE = FilePath()
AT_LEAST_1 = click.IntRange(min=1)
EXPORT_FORMATS = ("atif", "csv", "jsonl", "otlp", "parquet")
REPORT_FORMATS = ("json", "markdown", "csv")
# `whet eval` also writes the pages of its run.
EVAL_FORMATS = (*REPORT_FORMATS, "html")

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
RESULTS_JSON = click.option(
    "--json", "results_json", is_flag=True, help="Print the results as JSON, as --reporter json does."
)
SPLIT = option(
    "--split",
    "splits",
    multiple=True,
    type=PartName(),
    metavar="PART",
    help="Take only the cases that are practice, held-out or sealed (repeatable).",
)
CONFIG = click.option(
    "--config", "config_file", type=FILE, metavar="FILE", help="Read settings from this file, and search for no other."
)


def setting(name: str, *flags: str, **words: Any) -> Decorator[Any]:
    """Return the option that sets the setting *name*, from its row; *flags* and *words* replace those of the row."""
    row = GIVEN[name][1]
    assert row.flag
    return option(
        *(flags or (row.flag.name,)),
        name,
        **{"type": _type(row), "multiple": row.many, "metavar": row.flag.metavar, "help": row.flag.help}
        | ({"is_flag": True, "default": None} if row.kind == "flag" else {})
        | ({"shell_complete": partial(_complete_choice, row)} if row.extensions else {})
        | words,
    )


def _complete_choice(row: Setting, _ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return our own names; those of extensions would have to be looked for."""
    return [name for name in row.choices if name.startswith(incomplete)]


def _type(row: Setting) -> click.ParamType[Any] | None:
    """Return how click reads a value. Reading the settings refuses a value that is too large."""
    if row.flag is not None and row.flag.unit is not None:
        return Duration(row.flag.unit)
    if row.extensions:
        # Reading the settings refuses an unknown name.
        return None
    if row.choices:
        return click.Choice(row.choices)
    if row.kind == "whole":
        return click.IntRange(min=int(row.least))
    if row.kind == "number":
        return click.FloatRange(min=row.least)
    return FILE if row.place == "path" else None


def given_settings(options: Mapping[str, Any], *, but: Collection[str] = ()) -> dict[str, Any]:
    """Return the settings that you typed, *but* the options that mean something else to the command."""
    settings = {name: options[name] for name in GIVEN if name not in but and options.get(name) not in (None, ())}
    if options.get("results_json"):
        settings["reporters"] = (*settings.get("reporters", ()), "json")
    return settings


def with_options(options: Sequence[Decorator[Any]]) -> Decorator[Any]:
    """Return a decorator that adds *options*, in the order in which the help lists them."""

    def add(command: Command) -> Command:
        for decorate in reversed(options):
            command = decorate(command)
        return command

    return add


# Options that select from a suite, say when to stop, or do something else than run it, by their parameters.
SELECTING = frozenset(
    (
        *("cases", "parts", "tags", "splits", "runners", "shard", "last_failed", "changed", "stop_early"),
        *("dry_run", "resume", "until_decided", "effect", "max_rounds", "margin", "goal", "gate"),
    )
)


def typed_again() -> tuple[str, ...]:
    """Return the words you typed, without the options that select."""
    return _typed_words(lambda name: name not in SELECTING, with_arguments=True)


def typed_for_resume(*names: str) -> tuple[str, ...]:
    """Return the options of the parameters *names* that you typed: the record does not hold these."""
    return _typed_words(lambda name: name in names, with_arguments=False)


def _typed_words(is_wanted: Callable[[str], bool], *, with_arguments: bool) -> tuple[str, ...]:
    context = click.get_current_context(silent=True)
    if context is None:
        return ()
    return tuple(select_words(context.meta.get(TYPED, ()), context.command, is_wanted, with_arguments=with_arguments))


def write_out(chunks: Iterable[bytes], output: Path | None) -> None:
    """Write *chunks* to the file *output*, which is replaced in one step, or to stdout."""
    if output is None:
        sys.stdout.flush()
        sys.stdout.buffer.writelines(chunks)
        return
    # Printing to stdout does not need it.
    from whet.report.files.json import replacing

    try:
        with replacing(output) as file:
            file.writelines(chunks)
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}") from error


def print_lines(lines: Iterable[str], stream: TextIO | None = None) -> None:
    """Print *lines* to *stream* or stdout, broken between words on a terminal."""
    screen = screen_of(stream or sys.stdout)
    click.echo(screen.text(lines), nl=False, file=screen.stream, color=screen.colour)


def screen_of(stream: TextIO) -> Screen:
    """Return what lays out lines for *stream*, and colours them if they are for people."""
    # Imported here: --help does not need it.
    from whet.report.screen import Screen

    return Screen(stream, os.environ)


def print_document(document: Any) -> None:
    """Print *document* as indented JSON, and nothing else."""
    # Imported here: --help does not need it.
    from whet.model import codec

    click.echo(codec.encode_pretty(document).decode().rstrip())


def write_new(path: Path, text: str, hint: str | None = None) -> None:
    """Write *text* to a new file; if there is one already, fail with *hint*."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} already exists, and whet does not overwrite it", hint=hint) from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
