"""`whet init`, `whet import` and `whet validate`: write, convert and check suites before you run them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from whet.cli.common import FILE, write_new
from whet.cli.errors import warn
from whet.errors import PathRefused, Problem, SuiteError, UsageError
from whet.reading.text import count

if TYPE_CHECKING:
    from whet.model.suite import Suite


@click.command("init", short_help="Write a first suite for your project.")
@click.argument("folder", type=click.Path(path_type=Path), default=".")
@click.option("--yaml", "as_yaml", is_flag=True, help="Write YAML instead of JSON.")
@click.option("--python", "as_python", is_flag=True, help="Write a Python suite instead, with a function as its check.")
def init_command(folder: Path, as_yaml: bool, as_python: bool) -> None:
    """Write bench/suite.json with a first case for the project in FOLDER (default: the current folder).

    The case runs the tests as package.json, pyproject.toml, go.mod or Cargo.toml suggest. If the project has no
    settings yet, whet also writes a whet.toml with the first agent that is installed. It overwrites nothing.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder")
    if as_yaml and as_python:
        raise UsageError("--yaml and --python cannot be used together")
    # Imported here and not above, as in every command: its --help does not need it.
    from whet.suites.starter import look_at, python_text, starter_text

    ending = "py" if as_python else "yaml" if as_yaml else "json"
    path = folder / "bench" / f"suite.{ending}"
    project = look_at(folder)
    _write_first(path, python_text(project) if as_python else starter_text(project, as_yaml=as_yaml))
    click.echo(f"wrote {path}")
    if project.command is None:
        add = "a line that runs them with ctx.run" if as_python else 'an expectation such as "test:make test"'
        click.echo(f"  found no test command in {folder}: add {add}")
    else:
        click.echo(f"  runs the tests with: {project.command} (from {project.origin})")
    unsettled = _settle_runner(folder)
    steps = [f"name the agent to run in {unsettled}"] if unsettled else []
    steps += [f"edit the prompt and the expectations in {path}", f"whet validate {path}"]
    steps.append(f"whet {'run' if as_python else 'bench'} {path}")
    click.echo("\nNext:" + "".join(f"\n  {number}. {step}" for number, step in enumerate(steps, 1)))


def _settle_runner(folder: Path) -> Path | None:
    """Make sure that the settings name an agent; return the settings file if you have to name one."""
    from whet.reading.settings_files import search_settings
    from whet.suites.starter import installed_agent, settings_text

    found = search_settings(folder.resolve()).file
    if found is not None:
        return None if found.data.get("runners") else found.path
    agent = installed_agent()
    path = folder / "whet.toml"
    _write_first(path, settings_text(agent))
    click.echo(f"wrote {path}")
    if agent is None:
        click.echo("  found no agent on this machine")
        return path
    click.echo(f"  runs cases with {agent}")
    return None


def _write_first(path: Path, text: str) -> None:
    with suppress(OSError):
        path.parent.mkdir(exist_ok=True)
    write_new(path, text, hint=f"whet validate {path}")


@click.command("import", short_help="Convert a benchmark manifest or Harbor tasks to an eval suite.")
@click.argument("path", type=FILE)
@click.option("--output", type=FILE, metavar="FILE", help="Write the suite to this file instead of stdout.")
@click.option("--name", metavar="NAME", help="The name of the suite (default: that of the folder).")
@click.option(
    "--oracle", is_flag=True, help="Run the solutions before the verifiers, to see whether the tasks can be solved."
)
def import_command(path: Path, output: Path | None, name: str | None, oracle: bool) -> int:
    """Convert PATH to an eval suite. PATH is a benchmark manifest in JSON, a Harbor task, or a folder of tasks.

    Prints to stderr, for each task, what an eval suite cannot express.

    \b
    Exit codes:
      0  the suite has all tasks
      1  some tasks were left out
      2  no task could be imported
    """
    from whet.suites.eval_documents import to_json
    from whet.suites.importing import import_path

    imported = import_path(path, output.parent if output else Path.cwd(), name=name, oracle=oracle)
    text = json.dumps(to_json(imported.suite), indent=2, ensure_ascii=False)
    if output is None:
        click.echo(text)
    else:
        write_new(output, f"{text}\n")
    _print_lost("not carried over", imported.lost)
    _print_lost("left out", imported.left_out)
    where = f" to {output}" if output else ""
    click.echo(f"imported {count(len(imported.suite.cases), 'task')}{where}", err=True)
    return 1 if imported.left_out else 0


def _print_lost(what: str, found: Iterable[Problem]) -> None:
    for each in found:
        click.echo(f"{each.case or 'all tasks'}: {what}: {each.message}", err=True)


@click.command("validate", short_help="Check suites, benchmarks and skills for problems.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
def validate_command(files: tuple[Path, ...], strict: bool) -> None:
    """Load each FILE as a run would, and print every problem of all files.

    \b
    Exit codes:
      0  whet can run all files
      2  it cannot run some
    """
    from whet.reading.paths import refusals
    from whet.suites.examining import Examined, examine
    from whet.suites.format import load_suite

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
                verdict = count(len(each.notes), "warning") if each.notes else "no problems"
                click.echo(f"{each.file}: {each.summary}, {verdict}")
    if strict:
        problems, warnings = problems + warnings, []
    if problems:
        raise SuiteError(problems, warnings)
    warn(warnings)


def _suites_in(folder: Path) -> list[Path]:
    """Return the files in *folder* that look like suites: JSON and YAML, and Python that imports whet."""
    from whet.reading.document_files import SUFFIXES

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
    return f"{count(len(suite.cases), 'case')} with {count(checks, 'check')}"
