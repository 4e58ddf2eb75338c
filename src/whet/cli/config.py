"""`whet config`: every setting in force, and where it came from."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from whet.cli.errors import warn_of
from whet.cli.paths import FilePath
from whet.config import describe, entries, load_settings
from whet.errors import UsageError


@click.command("config", short_help="Show the settings in force and where each came from.")
@click.argument("place", metavar="[SUITE_OR_FOLDER]", type=FilePath(), default=".")
@click.option("--config", "config_file", type=FilePath(), metavar="FILE", help="The settings file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(place: Path, config_file: Path | None, as_json: bool) -> None:
    """Show every setting that a run of SUITE_OR_FOLDER (by default here) would use, and where it came from."""
    if not place.exists():
        raise UsageError(f"{place}: no such file or folder")
    settings = load_settings(place, flags={}, environ=os.environ, config_file=config_file)
    warn_of(settings.notices)
    if as_json:
        found = {key: {"value": value, "origin": origin} for key, value, origin in entries(settings)}
        file = str(settings.file) if settings.file else None
        click.echo(json.dumps({"file": file, "settings": found}, indent=2, ensure_ascii=False))
        return
    none = f"none found up to {settings.searched_to}" if settings.searched_to else "none found"
    click.echo(f"settings file: {settings.file or none}\n")
    for line in _aligned(describe(settings)):
        click.echo(line)


# A value longer than this does not push the origins of all others to the right.
_WIDEST = 50


def _aligned(rows: list[tuple[str, str, str]]) -> list[str]:
    keys = max(len(key) for key, _, _ in rows)
    values = min(_WIDEST, max(len(value) for _, value, _ in rows))
    return [f"{key.ljust(keys)}  {value.ljust(values)}  {origin}" for key, value, origin in rows]
