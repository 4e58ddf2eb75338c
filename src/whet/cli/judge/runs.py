"""What commands about the judge share: the runs, what was judged in them, and the file of labels."""

from __future__ import annotations

import getpass
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whet.cli.common import CONFIG, FILE, JSON, given_settings, setting, with_options
from whet.cli.grammar.candidates import complete_runs
from whet.cli.grammar.quantities import Number

if TYPE_CHECKING:
    from whet.record.judging.runs import JudgedRuns

LABELS = click.option(
    "--labels", type=FILE, metavar="FILE", help="Keep labels in this file (default: labels.jsonl beside the suite)."
)


# What `whet judge try` and `whet judge pairs` share: the run, what asking may cost, and where settings are.
ASKING = with_options(
    (
        click.argument("run", default="latest", shell_complete=complete_runs),
        click.option(
            "--max-cost", type=Number(0, min_open=True), metavar="USD", help="Ask no more once this much is spent."
        ),
        JSON,
        setting("sandbox", help="Let an agent that judges work in this sandbox."),
        setting("output_dir", help="Find runs in this folder."),
        CONFIG,
    )
)


def judged_runs(
    runs: tuple[str, ...], options: dict[str, Any], config_file: Path | None, labels: Path | None
) -> JudgedRuns:
    """Return the runs that *runs* name, or the newest, with what was judged in them."""
    from whet.plan.settings.load import load_settings
    from whet.record.judging.runs import read_judged

    flags = given_settings(options)
    settings = load_settings(Path.cwd(), flags=flags, environ=os.environ, config_file=config_file)
    return read_judged(runs or ("latest",), settings.output_dir, labels)


def person(name: str | None) -> str:
    """Return who labels: *name*, or else you."""
    try:
        return name or getpass.getuser()
    except (OSError, KeyError):
        # A user that the machine does not know.
        return f"user {os.getuid()}"
