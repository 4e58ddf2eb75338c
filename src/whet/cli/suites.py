"""`whet init` and `whet import`: write first suites, and convert those of others."""

from __future__ import annotations

import json
from pathlib import Path

import click

from whet.cli.common import FILE, write_new
from whet.errors import UsageError
from whet.reading.paths import why_no_folder
from whet.reading.text import count


@click.command("init", short_help="Write a first suite for your project.")
@click.argument("folder", type=FILE, default=".")
@click.option("--yaml", "as_yaml", is_flag=True, help="Write YAML instead of JSON.")
@click.option("--python", "as_python", is_flag=True, help="Write a Python suite instead, with a function as its check.")
def init_command(folder: Path, as_yaml: bool, as_python: bool) -> None:
    """Write bench/suite.json with a first case for the project in FOLDER (default: the current folder).

    For the folder of a skill, write evals/evals.json with cases that its description suggests.

    The case runs the tests as package.json, pyproject.toml, go.mod or Cargo.toml suggest. If the project has no
    settings yet, whet also writes a whet.toml with the first agent that is installed. It overwrites nothing.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: {why_no_folder(folder)}", hint="name the folder of a project or a skill")
    if as_yaml and as_python:
        raise UsageError("--yaml and --python cannot be used together")
    # Imported here and not above, as in every command: its --help does not need it.
    from whet.suites.starter import look_at, python_text, starter_text

    if (folder / "SKILL.md").is_file() and not (as_yaml or as_python):
        _init_skill(folder)
        return
    if as_python:
        ending = "py"
    elif as_yaml:
        ending = "yaml"
    else:
        ending = "json"
    path = folder / "bench" / f"suite.{ending}"
    project = look_at(folder)
    _write_first(path, python_text(project) if as_python else starter_text(project, as_yaml=as_yaml))
    click.echo(f"wrote {path}")
    if project.command is None:
        add = "a line that runs them with ctx.run" if as_python else 'an expectation such as "test:make test"'
        click.echo(f"  found no test command in {folder}: add {add}")
    else:
        click.echo(f"  runs the tests with: {project.command} (from {project.origin})")
    settings_file = _ensure_runner(folder)
    steps = [f"name the agent to run in {settings_file}"] if settings_file else []
    steps += [f"edit the prompt and the expectations in {path}", f"whet validate {path}"]
    steps.append(f"whet {'run' if as_python else 'bench'} {path}")
    click.echo("\nNext:" + "".join(f"\n  {number}. {step}" for number, step in enumerate(steps, 1)))


def _init_skill(folder: Path) -> None:
    """Write a skeleton of evals for a skill."""
    from whet.reading.fields import UNWRITTEN
    from whet.suites.starter import skill_evals

    path = folder / "evals" / "evals.json"
    evals = skill_evals(folder)
    _write_first(path, json.dumps(evals, indent=2, ensure_ascii=False) + "\n")
    click.echo(
        f"wrote {path}: {count(len(evals['evals']), 'case')} that the description of {evals['skill_name']} suggests"
    )
    place = _settings_folder(folder)
    settings_file = _ensure_runner(place, with_judge=True) if place is not None else None
    steps = [f"name the agent to run in {settings_file}"] if settings_file else []
    steps += [f"write what {path} leaves to you: each text that begins with {UNWRITTEN}"]
    steps += [f"whet validate {path}, which names what is missing", f"whet run {folder}"]
    click.echo("\nNext:" + "".join(f"\n  {number}. {step}" for number, step in enumerate(steps, 1)))


def _settings_folder(skill: Path) -> Path | None:
    """Return where settings for *skill* go: where you are, or beside the skill; not in it, as it is installed whole.

    A skill that is a repository of its own gets none: without settings, whet runs the agent that is installed.
    """
    from whet.reading.toml import find_project

    place, here = skill.resolve(), Path.cwd()
    project = find_project(place)
    if project == place:
        # Settings outside of a project are not read.
        return None
    is_below = here in place.parents and (project is None or here.is_relative_to(project))
    return Path() if is_below else place.parent


def _ensure_runner(folder: Path, *, with_judge: bool = False) -> Path | None:
    """Make sure that the settings name an agent, also as judge if needed; return their file if you have to name one."""
    from whet.reading.toml import search_settings
    from whet.suites.starter import installed_agent, settings_text

    settings_file = search_settings(folder.resolve()).file
    if settings_file is not None:
        return None if settings_file.data.get("runners") else settings_file.path
    agent = installed_agent()
    path = folder / "whet.toml"
    _write_first(path, settings_text(agent, judged=with_judge))
    click.echo(f"wrote {path}")
    if agent is None:
        click.echo("  found no agent on this machine")
        return path
    click.echo(f"  runs {'and judges ' if with_judge else ''}cases with {agent}")
    return None


def _write_first(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        # Not what would follow from it: the folder is not there.
        raise UsageError(f"cannot create {path.parent}: {error.strerror}") from error
    write_new(path, text, hint=f"whet validate {path}")


@click.command("import", short_help="Convert a benchmark manifest to an eval suite.")
@click.argument("path", type=FILE)
@click.option("--output", type=FILE, metavar="FILE", help="Write the suite to this file instead of stdout.")
def import_command(path: Path, output: Path | None) -> None:
    """Convert the benchmark manifest PATH to an eval suite.

    Prints to stderr, for each task, what the manifest does not say.

    \b
    Exit codes:
      0  the suite has all tasks
      2  the manifest cannot be imported
    """
    from whet.suites.evals.documents import to_json
    from whet.suites.other_tools.manifests import import_path

    converted_suite = import_path(path, output.parent if output else Path.cwd())
    text = json.dumps(to_json(converted_suite.suite), indent=2, ensure_ascii=False)
    if output is None:
        click.echo(text)
    else:
        write_new(output, f"{text}\n")
    for problem in converted_suite.lost:
        click.echo(f"{problem.case}: {problem.message}", err=True)
    where = f" to {output}" if output else ""
    click.echo(f"imported {count(len(converted_suite.suite.cases), 'task')}{where}", err=True)
