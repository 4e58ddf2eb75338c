"""`whet schema`: the published shape of what whet writes."""

from __future__ import annotations

from importlib.resources import files

import click


@click.command("schema", short_help="Print the JSON Schema of a file that whet writes.")
@click.argument("name", metavar="results", type=click.Choice(["results"]))
def command(name: str) -> None:
    """Print the JSON Schema of results.json."""
    click.echo(files("whet.store").joinpath(f"{name}.schema.json").read_text("utf-8").rstrip("\n"))
