"""What the Tab key offers for runs, runners and cases: from records, settings and suites, whose code is never run."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whet.cli.grammar.application import TYPED
from whet.cli.grammar.options import select_words

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from whet.model.request import Settings

_MOST_RUNS, _MOST_SUITES = 50, 20
# Where suites in JSON and YAML have their cases, and what these call their ids.
_LISTS = ("evals", "cases", "tests", "tasks")
_IDS = ("id", "name")


def complete_runs(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the runs whose id begins like *incomplete*, or else folders."""
    from click.shell_completion import CompletionItem

    items = _items(_runs(ctx), incomplete)
    return items or [CompletionItem(incomplete, type="dir")]


def complete_runners(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the runners of the settings and the agents that need no settings."""
    return _items(_runners(ctx), incomplete)


def complete_cases(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the cases of the suites that were typed, as they are written and as they were run before."""
    return _items(_cases(ctx), incomplete)


def _items(names: Iterator[str], incomplete: str) -> list[CompletionItem]:
    """Return the names that begin like the last of a comma-separated list."""
    from click.shell_completion import CompletionItem

    before, comma, beginning = incomplete.rpartition(",")
    known = list[str]()
    # Settings and suites may be as wrong as they like: the key must not print into your prompt.
    with suppress(Exception):
        known.extend(dict.fromkeys(names))
    return [CompletionItem(f"{before}{comma}{name}") for name in known if name.startswith(beginning)]


def _settings(ctx: click.Context) -> Settings:
    from whet.plan.settings.load import load_settings

    typed = next(iter(_paths(ctx)), Path())
    output_dir = ctx.params.get("output_dir")
    flags: Mapping[str, Any] = {"output_dir": output_dir} if output_dir else {}
    return load_settings(
        typed if typed.exists() else Path(), flags=flags, environ=os.environ, config_file=ctx.params.get("config_file")
    )


def _paths(ctx: click.Context) -> tuple[Path, ...]:
    """Return the paths that were typed; click has none of them while an option still waits for its value."""
    words = select_words(ctx.meta.get(TYPED, ()), ctx.command, lambda _: False, with_arguments=True)
    return tuple(map(Path, words))


def _runs(ctx: click.Context) -> Iterator[str]:
    from whet.record.folder import LATEST
    from whet.record.listing import batch_folders
    from whet.record.read.run import run_folders

    output_dir = _settings(ctx).output_dir
    folders = sorted([*run_folders(output_dir), *batch_folders(output_dir)], reverse=True)
    yield from (folder.name for folder in folders[:_MOST_RUNS])
    if folders:
        yield LATEST


def _runners(ctx: click.Context) -> Iterator[str]:
    from whet.agents.known import known_agents

    with suppress(Exception):
        yield from (runner.id for runner in _settings(ctx).runners)
    yield from (agent.type for agent in known_agents())


def _cases(ctx: click.Context) -> Iterator[str]:
    from whet.suites.find import find_suites

    typed = _paths(ctx) or (Path(),)
    suites = [suite.path for suite in find_suites(typed).suites][:_MOST_SUITES]
    for suite in suites:
        with suppress(Exception):
            yield from _written_cases(suite)
    yield from _recorded_cases(_settings(ctx).output_dir, [str(suite.resolve()) for suite in suites])


def _recorded_cases(output_dir: Path, suites: Iterable[str]) -> Iterator[str]:
    """Yield the cases of the newest runs of *suites*."""
    from whet.errors import StoreError
    from whet.record.read.run import run_folders
    from whet.record.run_file import read_run_file

    wanted = set(suites)
    for folder in islice(reversed(run_folders(output_dir)), _MOST_RUNS):
        with suppress(StoreError):
            run_file = read_run_file(folder)
            if run_file.suite_path in wanted:
                yield from run_file.case_digests


def _written_cases(suite: Path) -> Iterator[str]:
    """Yield the ids that a suite says in plain words; those that its code computes are found in records."""
    if suite.suffix == ".py":
        yield from _ids_of_code(ast.parse(suite.read_bytes()))
        return
    from whet.reading.yaml import read_plain

    document = read_plain(suite)
    for name in _LISTS if isinstance(document, dict) else ():
        for case in document.get(name) or ():
            yield from islice((str(case[key]) for key in _IDS if key in case), 1)


def _ids_of_code(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                yield from _ids_of_decorator(decorator, node.name)
        elif isinstance(node, ast.Call) and _name_of(node) == "Case":
            yield from _id_of_call(node)


def _ids_of_decorator(decorator: ast.expr, function: str) -> Iterator[str]:
    if _name_of(decorator) != "case":
        return
    ids = list(_id_of_call(decorator)) if isinstance(decorator, ast.Call) else []
    yield from ids or [function]


def _name_of(node: ast.expr) -> str | None:
    """Return the name of what is called or named, without its module."""
    target = node.func if isinstance(node, ast.Call) else node
    return target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", None)


def _id_of_call(call: ast.Call) -> Iterator[str]:
    for keyword in call.keywords:
        if keyword.arg == "id" and isinstance(keyword.value, ast.Constant):
            yield str(keyword.value.value)
