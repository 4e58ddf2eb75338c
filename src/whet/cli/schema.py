"""`whet schema`: the published shape of what whet reads and writes."""

from __future__ import annotations

from importlib.resources import files

import click

_PACKAGES = {"bench": "whet.formats.bench", "results": "whet.store", "suite": "whet.evals"}


@click.command("schema", short_help="Print the JSON Schema of a file that whet reads or writes.")
@click.argument("name", metavar="bench|results|suite", type=click.Choice(list(_PACKAGES)))
def command(name: str) -> None:
    """Print the JSON Schema of bench suites (bench), of eval suites (suite), or of results.json (results)."""
    click.echo(files(_PACKAGES[name]).joinpath(f"{name}.schema.json").read_text("utf-8").rstrip("\n"))
