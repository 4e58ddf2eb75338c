"""What commands share: paths, options, the words you typed, and the files that commands write."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Any, TypeVar

import click

from whet.errors import UsageError
from whet.plan.settings_table import GIVEN, Setting

Command = TypeVar("Command", bound=Callable[..., Any])
Decorator = Callable[[Command], Command]


class FilePath(click.Path):
    """A path that must not be empty: an unset shell variable does not mean the current folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return *value* as a `Path`."""
        if not str(value).strip():
            self.fail("must not be empty", param, ctx)
        return super().convert(value, param, ctx)


class Number(click.FloatRange):
    """A number in a range, which NaN is not."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return *value* as a number."""
        number = super().convert(value, param, ctx)
        return self.fail(f"{value} is not a number", param, ctx) if isnan(number) else number


FILE = FilePath()
AT_LEAST_1 = click.IntRange(min=1)
EXPORT_FORMATS = ("atif", "csv", "jsonl", "otlp", "parquet")
REPORT_FORMATS = ("json", "markdown", "csv")
# `whet eval` also writes the pages of its run.
EVAL_FORMATS = (*REPORT_FORMATS, "html")

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
CONFIG = click.option(
    "--config", "config_file", type=FILE, metavar="FILE", help="Read settings from this file, and search for no other."
)


def setting(name: str, *flags: str, **words: Any) -> Decorator[Any]:
    """Return the option that sets the setting *name*, from its row; *flags* and *words* replace those of the row."""
    row = GIVEN[name][1]
    assert row.flag
    return click.option(
        *(flags or (row.flag.name,)),
        name,
        **{"type": _type(row), "multiple": row.many, "metavar": row.flag.metavar, "help": row.flag.help}
        | ({"is_flag": True, "default": None} if row.kind == "flag" else {})
        | words,
    )


def _type(row: Setting) -> click.ParamType[Any] | None:
    """Return how click reads a value. Reading the settings refuses a value that is too large."""
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


def given_settings(given: Mapping[str, Any], *, but: Collection[str] = ()) -> dict[str, Any]:
    """Return the settings that you typed, *but* the options that mean something else to the command."""
    return {name: given[name] for name in GIVEN if name not in but and given.get(name) not in (None, ())}


def with_options(options: Sequence[Decorator[Any]]) -> Decorator[Any]:
    """Return a decorator that adds *options*, in the order in which the help lists them."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


# The key under which a context keeps the words after the name of the command.
TYPED = "whet.typed"
# Options that select from a suite, say when to stop, or do something else than run it.
_SELECTING = frozenset(
    (
        *("--case", "--task", "--tag", "--runner", "--shard", "--last-failed", "--dry-run", "--resume"),
        *("--until-decided", "--effect", "--max-rounds", "--margin", "--gate"),
    )
)


def typed_again() -> tuple[str, ...]:
    """Return the words you typed, without the options that select."""
    return _typed(lambda name: name not in _SELECTING, others=True)


def typed_for_resume(*names: str) -> tuple[str, ...]:
    """Return the options in *names* that you typed: the record does not hold these."""
    return _typed(lambda name: name in names, others=False)


def _typed(wanted: Callable[[str], bool], *, others: bool) -> tuple[str, ...]:
    context = click.get_current_context(silent=True)
    if context is None:
        return ()
    return tuple(_chosen(context.meta.get(TYPED, ()), context.command, wanted, others=others))


def _chosen(
    words: Sequence[str], command: click.Command, wanted: Callable[[str], bool], *, others: bool
) -> Iterator[str]:
    """Yield the *wanted* options with their values, and with *others* the words that are not options."""
    flags = {
        name for option in command.params if isinstance(option, click.Option) and option.is_flag for name in option.opts
    }
    rest = iter(words)
    for word in rest:
        name, equals, _ = word.partition("=")
        if word == "--":
            yield from (word, *rest) if others else ()
        elif not word.startswith("-"):
            yield from [word] if others else []
        else:
            value = [] if equals or name in flags else [next(rest, "")]
            yield from (word, *value) if wanted(name) else ()


def write_out(chunks: Iterable[bytes], output: Path | None) -> None:
    """Write *chunks* to the file *output*, which is replaced in one step, or to stdout."""
    if output is None:
        sys.stdout.flush()
        sys.stdout.buffer.writelines(chunks)
        return
    # Printing to stdout does not need it.
    from whet.report.json import replacing

    try:
        with replacing(output) as file:
            file.writelines(chunks)
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}") from error


def write_new(path: Path, text: str, hint: str | None = None) -> None:
    """Write *text* to a new file; if there is one already, fail with *hint*."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} already exists, and whet does not overwrite it", hint=hint) from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
