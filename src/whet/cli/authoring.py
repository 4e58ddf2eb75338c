"""`whet init`, `whet import` and `whet validate`: write, convert and check suites before you run them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from glob import has_magic
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

    For the folder of a skill, write evals/evals.json with cases that its description suggests.

    The case runs the tests as package.json, pyproject.toml, go.mod or Cargo.toml suggest. If the project has no
    settings yet, whet also writes a whet.toml with the first agent that is installed. It overwrites nothing.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder")
    if as_yaml and as_python:
        raise UsageError("--yaml and --python cannot be used together")
    # Imported here and not above, as in every command: its --help does not need it.
    from whet.suites.starter import look_at, python_text, starter_text

    if (folder / "SKILL.md").is_file() and not (as_yaml or as_python):
        _init_skill(folder)
        return
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


def _init_skill(folder: Path) -> None:
    """Write first evals for a skill."""
    from whet.suites.starter import skill_evals

    path = folder / "evals" / "evals.json"
    evals = skill_evals(folder)
    _write_first(path, json.dumps(evals, indent=2, ensure_ascii=False) + "\n")
    click.echo(
        f"wrote {path}: {count(len(evals['evals']), 'case')} that the description of {evals['skill_name']} suggests"
    )
    unsettled = _settle_runner(folder, judged=True)
    steps = [f"name the agent to run in {unsettled}"] if unsettled else []
    steps += [f"edit the prompts and what you expect in {path}", f"whet run {folder}"]
    click.echo("\nNext:" + "".join(f"\n  {number}. {step}" for number, step in enumerate(steps, 1)))


def _settle_runner(folder: Path, *, judged: bool = False) -> Path | None:
    """Make sure that the settings name an agent, also as judge if needed; return their file if you have to name one."""
    from whet.reading.settings_files import search_settings
    from whet.suites.starter import installed_agent, settings_text

    found = search_settings(folder.resolve()).file
    if found is not None:
        return None if found.data.get("runners") else found.path
    agent = installed_agent()
    path = folder / "whet.toml"
    _write_first(path, settings_text(agent, judged=judged))
    click.echo(f"wrote {path}")
    if agent is None:
        click.echo("  found no agent on this machine")
        return path
    click.echo(f"  runs {'and judges ' if judged else ''}cases with {agent}")
    return None


def _write_first(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        # Not what would follow from it: the folder is not there.
        raise UsageError(f"cannot create {path.parent}: {error.strerror}") from error
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
@click.argument("files", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@click.option("--verbose", is_flag=True, help="Say what is passed over in folders.")
def validate_command(files: tuple[Path, ...], strict: bool, verbose: bool) -> None:
    """Load each suite in PATH as a run would, and print every problem of all of them.

    PATH is a suite, a benchmark, a skill, a folder of these, or a pattern in quotes.

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
                if found is None and (file.is_dir() or (not file.exists() and has_magic(str(file)))):
                    waiting[:0] = _suites_in(file, problems, verbose=verbose)
                    continue
                if found is None:
                    suite = load_suite(file)
                    click.echo("".join(f"{lost}\n" for lost in suite.lost), nl=False, err=True)
                    found = [Examined(file, _summary(suite), (*suite.warnings, *_lost(suite), *_without_judge(suite)))]
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


def _lost(suite: Suite) -> Iterator[Problem]:
    """Yield a warning if the skill that the suite is about or lies in names what agents are not given of it."""
    from whet.ground.workspaces import MANIFEST
    from whet.suites.left_out import left_out, warning_of_lost

    around = (folder for folder in suite.source.parents if (folder / MANIFEST).is_file())
    skill = suite.usual_skill or next(around, None)
    if skill is not None and (said := warning_of_lost(skill, left_out(skill))) is not None:
        yield Problem(file=str(skill / MANIFEST), message=said)


def _without_judge(suite: Suite) -> Iterator[Problem]:
    """Yield a warning if a judge has to decide some checks, and the settings have none."""
    from whet.grade.grader import grader_class
    from whet.model.run import Runner

    # Whether an agent runs decides some checks, and there may be no runners yet.
    some = Runner(id="some", agent="some")
    judged = [
        case.id
        for case in suite.cases
        if any(grader_class(check.grader).needs_judge(check, some) for check in case.checks)
    ]
    if not judged:
        return
    from whet.plan.settings import load_settings, with_found_agent
    from whet.plan.settle import find_judge

    try:
        find_judge(with_found_agent(load_settings(suite.source, flags={}, environ=os.environ), suite))
    except UsageError as error:
        names = f"{judged[0]} and {len(judged) - 1} more" if len(judged) > 1 else judged[0]
        said = f"a judge decides about {names}, and there is none: {error.message}"
        yield Problem(file=str(suite.source), message=said, hint=error.hint)


def _suites_in(path: Path, problems: list[Problem], *, verbose: bool) -> list[Path]:
    """Return the suites in a folder or of a pattern; broken files are *problems*."""
    from whet.suites.finding import find_suites

    try:
        found = find_suites([path])
    except UsageError as error:
        raise SuiteError(
            [Problem(file=str(path), message=error.message.removeprefix(f"{path}: "), hint=error.hint)]
        ) from None
    problems += (Problem(file=str(over.path), message=over.reason) for over in found.passed_over if over.broken)
    if verbose:
        lines = "".join(f"passed over: {over}\n" for over in found.passed_over if not over.broken)
        click.echo(lines, nl=False, err=True)
    return [each.path for each in found.suites]


def _summary(suite: Suite) -> str:
    checks = sum(len(case.checks) for case in suite.cases)
    return f"{count(len(suite.cases), 'case')} with {count(checks, 'check')}"
