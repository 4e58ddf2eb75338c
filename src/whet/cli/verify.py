"""`whet verify`: whether the record of a run is as whet wrote it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from whet.cli.paths import FilePath

if TYPE_CHECKING:
    from whet.store.verifying import Verified

_CHANGED = 1


@click.command("verify", short_help="Say whether the record of a run was changed.")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--output-dir", type=FilePath(), metavar="DIR", help="Where runs are.")
@click.option(
    "--config", "config_file", type=FilePath(), metavar="FILE", help="The settings file; none is searched for."
)
def command(runs: tuple[str, ...], output_dir: Path | None, config_file: Path | None) -> int:
    """Say whether anything in the record of each RUN was changed since whet wrote it, and where.

    RUN is the folder of a run, its id, or "latest". Exit code: 0 whole, 1 changed, 2 not a run.
    """
    # Only now: "whet verify --help" needs none of it.
    from whet.config import load_settings
    from whet.store.folder import find_run_folder
    from whet.store.verifying import verify

    flags = {} if output_dir is None else {"output_dir": output_dir}
    settings = load_settings(Path.cwd(), flags=flags, environ=os.environ, config_file=config_file)
    folders = [find_run_folder(run, settings.output_dir) for run in runs]
    found = [(folder, verify(folder)) for folder in folders]
    for folder, verified in found:
        for line in _lines(folder, verified):
            click.echo(line)
    return _CHANGED if any(verified.problems for _, verified in found) else 0


def _lines(folder: Path, verified: Verified) -> Iterator[str]:
    """The verdict, each thing that does not fit, and what cannot be known."""
    if verified.problems:
        yield f"{folder}: changed"
    else:
        lines = "1 line" if verified.lines == 1 else f"{verified.lines} lines"
        last = f", the last hash is {verified.link}" if verified.link else ""
        yield f"{folder}: whole, {lines} in the journal{last}"
    yield from (f"  {problem}" for problem in verified.problems)
    yield from (f"  note: {note}" for note in verified.notes)
