"""`whet import`: tasks of others as an eval suite."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from whet.cli.paths import FILE
from whet.cli.writing import write_new

if TYPE_CHECKING:
    from whet.importing.base import Lost


@click.command("import", short_help="Make an eval suite of a benchmark manifest or of Harbor tasks.")
@click.argument("path", type=FILE)
@click.option("--output", type=FILE, metavar="FILE", help="Write the suite there, instead of printing it.")
@click.option("--name", metavar="NAME", help="What the suite is called: as the folder is.")
@click.option("--oracle", is_flag=True, help="Let solutions run before verifiers, to see whether tasks can be solved.")
def command(path: Path, output: Path | None, name: str | None, oracle: bool) -> int:
    """Make an eval suite of PATH, a benchmark manifest in JSON, a Harbor task or a folder of them.

    What could not be carried over is said task by task, on stderr. Exit code: 0 all tasks are in the suite,
    1 some had to be left out, 2 none could be imported.
    """
    # Only now: "whet import --help" needs none of it.
    from whet.evals import to_json
    from whet.importing.find import import_path

    imported = import_path(path, output.parent if output else Path.cwd(), name=name, oracle=oracle)
    text = json.dumps(to_json(imported.suite), indent=2, ensure_ascii=False)
    if output is None:
        click.echo(text)
    else:
        write_new(output, f"{text}\n")
    _tell("not carried over", imported.lost)
    _tell("left out", imported.left_out)
    count = len(imported.suite.cases)
    where = f" to {output}" if output else ""
    click.echo(f"imported {count} {'task' if count == 1 else 'tasks'}{where}", err=True)
    return 1 if imported.left_out else 0


def _tell(what: str, found: Iterable[Lost]) -> None:
    for each in found:
        click.echo(f"{each.task or 'all tasks'}: {what}: {each.what}", err=True)
