"""`whet init`: a first suite for the project at hand."""

from __future__ import annotations

from pathlib import Path

import click

from whet.errors import UsageError


@click.command("init", short_help="Write a first suite for the project at hand.")
@click.argument("folder", type=click.Path(path_type=Path), default=".")
@click.option("--yaml", "as_yaml", is_flag=True, help="Write YAML instead of JSON.")
def command(folder: Path, as_yaml: bool) -> None:
    """Write bench/suite.json with a first case for the project in FOLDER (by default here).

    Its test command is the one that package.json, pyproject.toml, go.mod or Cargo.toml suggest. Where there are no
    settings yet, whet.toml with the first agent that is installed. Nothing is overwritten.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder")
    # Only now: "whet init --help" needs none of it.
    from whet.formats.bench.starter import look_at, starter_text

    path = folder / "bench" / ("suite.yaml" if as_yaml else "suite.json")
    project = look_at(folder)
    _write_new(path, starter_text(project, as_yaml=as_yaml))
    click.echo(f"wrote {path}")
    if project.command is None:
        click.echo(f'  no test command was found in {folder}: add an expectation such as "test:make test"')
    else:
        click.echo(f"  its tests are run by: {project.command} (from {project.origin})")
    _settle_runner(folder)
    click.echo(f"\nNext: change its prompt and expectations, then\n  whet validate {path}\n  whet bench {path}")


def _settle_runner(folder: Path) -> None:
    """Leave the project with settings that name an agent, or say what to write."""
    from whet.config.search import search_settings
    from whet.formats.bench.starter import installed_agent, settings_text

    if search_settings(folder.resolve()).file is not None:
        return
    agent = installed_agent()
    path = folder / "whet.toml"
    _write_new(path, settings_text(agent))
    click.echo(f"wrote {path}")
    if agent is None:
        click.echo("  no agent was found on this machine: say in it which one to run")
    else:
        click.echo(f"  cases are run by {agent}")


def _write_new(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} is there already, and nothing is overwritten", hint=f"whet validate {path}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
