"""`whet init`: a first suite for the project at hand."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click

from whet.cli.writing import write_new
from whet.errors import UsageError


@click.command("init", short_help="Write a first suite for the project at hand.")
@click.argument("folder", type=click.Path(path_type=Path), default=".")
@click.option("--yaml", "as_yaml", is_flag=True, help="Write YAML instead of JSON.")
@click.option("--python", "as_python", is_flag=True, help="Write a Python suite, whose check is a function.")
def command(folder: Path, as_yaml: bool, as_python: bool) -> None:
    """Write bench/suite.json with a first case for the project in FOLDER (by default here).

    Its test command is the one that package.json, pyproject.toml, go.mod or Cargo.toml suggest. Where there are no
    settings yet, whet.toml with the first agent that is installed. Nothing is overwritten.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder")
    if as_yaml and as_python:
        raise UsageError("--yaml and --python exclude one another")
    # Only now: "whet init --help" needs none of it.
    from whet.formats.bench.starter import look_at, python_text, starter_text

    ending = "py" if as_python else "yaml" if as_yaml else "json"
    path = folder / "bench" / f"suite.{ending}"
    project = look_at(folder)
    _write_first(path, python_text(project) if as_python else starter_text(project, as_yaml=as_yaml))
    click.echo(f"wrote {path}")
    if project.command is None:
        add = "a line that runs them with ctx.run" if as_python else 'an expectation such as "test:make test"'
        click.echo(f"  no test command was found in {folder}: add {add}")
    else:
        click.echo(f"  its tests are run by: {project.command} (from {project.origin})")
    unsettled = _settle_runner(folder)
    steps = [f"say in {unsettled} which agent to run"] if unsettled else []
    steps += ["change its prompt and expectations", f"whet validate {path}"]
    steps.append(f"whet {'run' if as_python else 'bench'} {path}")
    click.echo("\nNext:" + "".join(f"\n  {number}. {step}" for number, step in enumerate(steps, 1)))


def _settle_runner(folder: Path) -> Path | None:
    """Leave the project with settings that name an agent; where that could not be, the file that has to."""
    from whet.config.search import search_settings
    from whet.formats.bench.starter import installed_agent, settings_text

    found = search_settings(folder.resolve()).file
    if found is not None:
        return None if found.data.get("runners") else found.path
    agent = installed_agent()
    path = folder / "whet.toml"
    _write_first(path, settings_text(agent))
    click.echo(f"wrote {path}")
    if agent is None:
        click.echo("  no agent was found on this machine")
        return path
    click.echo(f"  cases are run by {agent}")
    return None


def _write_first(path: Path, text: str) -> None:
    with suppress(OSError):
        path.parent.mkdir(exist_ok=True)
    write_new(path, text, hint=f"whet validate {path}")
