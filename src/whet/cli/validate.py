"""`whet validate`: what is wrong with suites, benchmarks and callable skills, before anything is started."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from whet.cli.errors import warn
from whet.errors import PathRefused, Problem, SuiteError

if TYPE_CHECKING:
    from whet.model.suite import Suite


@click.command("validate", short_help="Say what is wrong with suites, benchmarks and skills.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--strict", is_flag=True, help="Take warnings for errors.")
def command(files: tuple[Path, ...], strict: bool) -> None:
    """Load each FILE as a run would, and report every problem of all of them at once.

    Exit code: 0 all of them can be run, 2 some cannot.
    """
    # Only now: "whet validate --help" needs none of it.
    from whet.evaluation.examine import Examined, examine
    from whet.formats.base import load_suite
    from whet.refused import refusals

    problems: list[Problem] = []
    warnings: list[Problem] = []

    waiting = list(files)
    while waiting:
        file = waiting.pop(0)
        try:
            with refusals():
                found = examine(file)
                if found is None and file.is_dir():
                    waiting[:0] = _suites_in(file)
                    continue
                if found is None:
                    suite = load_suite(file)
                    found = [Examined(file, _summary(suite), suite.warnings)]
        except SuiteError as error:
            problems += error.problems
            warnings += error.warnings
            continue
        except PathRefused as error:
            problems.append(Problem(file=error.path, message=error.reason, hint=error.hint))
            continue
        for each in found:
            warnings += each.notes
            if not (strict and each.notes):
                found_wrong = _count(len(each.notes), "warning") if each.notes else "nothing is wrong"
                click.echo(f"{each.file}: {each.summary}, {found_wrong}")
    if strict:
        problems, warnings = problems + warnings, []
    if problems:
        raise SuiteError(problems, warnings)
    warn(warnings)


def _suites_in(folder: Path) -> list[Path]:
    """The files of *folder* that look like suites: JSON and YAML, and Python that imports whet."""
    from whet.formats.document import SUFFIXES

    files = [path for path in sorted(folder.iterdir()) if path.is_file()]
    suites = [path for path in files if path.suffix.lower() in SUFFIXES or _imports_whet(path)]
    if not suites:
        message = "holds no suite (JSON, YAML, or Python that imports whet), no benchmark.json and no skill.json"
        raise SuiteError([Problem(file=str(folder), message=message)])
    return suites


def _imports_whet(path: Path) -> bool:
    return path.suffix == ".py" and re.search(rb"(?m)^(from|import) whet\b", path.read_bytes()) is not None


def _summary(suite: Suite) -> str:
    checks = sum(len(case.checks) for case in suite.cases)
    return f"{_count(len(suite.cases), 'case')} with {_count(checks, 'check')}"


def _count(number: int, one: str) -> str:
    return f"{number} {one if number == 1 else one + 's'}"
