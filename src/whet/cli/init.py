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

    Its test command is the one that package.json, pyproject.toml, go.mod or Cargo.toml suggest. Nothing is overwritten.
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
    click.echo(f"\nNext: change its prompt and expectations, then\n  whet validate {path}\n  whet run {path}")


def _write_new(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} is there already, and nothing is overwritten", hint=f"whet validate {path}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
