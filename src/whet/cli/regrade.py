"""`whet regrade`: a suite's checks as they are now, applied to a recorded run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from whet.cli.paths import FILE
from whet.config.settings import SANDBOXES
from whet.errors import UsageError

# Options that override a setting, by the setting's name.
_OVERRIDES = ("output_dir", "reporters", "sandbox", "max_parallel")


@click.command("regrade", short_help="Apply a suite's checks as they are now to a recorded run.")
@click.argument("run", metavar="RUN")
@click.option("--suite", type=FILE, metavar="FILE", help="The suite; by default the one that was run.")
@click.option("--max-parallel", type=click.IntRange(min=1), metavar="N", help="Most trials at a time.")
@click.option("--sandbox", type=click.Choice(SANDBOXES), help="The boundary that commands of checks run inside.")
@click.option("--output-dir", type=FILE, metavar="DIR", help="Where runs are, and the folder of this one is made.")
@click.option(
    "--reporter", "reporters", multiple=True, metavar="NAME[=FILE]", help="Who reports; replaces the configured list."
)
@click.option("--config", "config_file", type=FILE, metavar="FILE", help="The settings file; none is searched for.")
def command(run: str, suite: Path | None, config_file: Path | None, **given: Any) -> int:
    """Apply the checks of a suite as they are now to what RUN recorded, and say which verdicts change.

    RUN is the folder of a run, its id, or "latest". No agent is started. Exit code: as for "whet run".
    """
    if suite is not None and not suite.exists():
        raise UsageError(f"{suite}: no such file")
    # Only now: "whet regrade --help" needs none of it.
    from whet.regrade.run import regrade

    flags = {name: given[name] for name in _OVERRIDES if given[name] not in (None, ())}
    return regrade(run, suite=suite, flags=flags, config_file=config_file)
