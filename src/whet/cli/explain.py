"""`whet explain`: the agent of a trial is asked in its own session why it did what it did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from whet.cli.paths import FILE
from whet.config.settings import SANDBOXES


@click.command("explain", short_help="Ask the agent of a trial why it did what it did.")
@click.argument("folder", metavar="TRIAL_FOLDER", type=FILE)
@click.option(
    "--ask", "typed", multiple=True, metavar="TEXT", help="This question instead of the kept ones; repeatable."
)
@click.option("--rerun", is_flag=True, help="Ask again what was answered before.")
@click.option("--timeout-ms", type=click.IntRange(min=1), metavar="MS", help="Time limit of an answer.")
@click.option("--sandbox", type=click.Choice(SANDBOXES), help="The boundary that the agent runs inside.")
@click.option("--config", "config_file", type=FILE, metavar="FILE", help="The settings file; none is searched for.")
def command(folder: Path, typed: tuple[str, ...], rerun: bool, config_file: Path | None, **given: Any) -> int:
    """Resume the session of a trial, and ask its agent the questions that failed expectations left.

    TRIAL_FOLDER is the folder of a trial or of one of its attempts. Answers are kept beside, in explanations.json.
    Exit code: 0 all answered, 1 the agent failed to answer, 3 something else went wrong.
    """
    # Only now: "whet explain --help" needs none of it.
    from whet.explain.run import ExplainRequest, explain

    flags = {name: value for name, value in given.items() if value is not None}
    return explain(ExplainRequest(folder=folder, typed=typed, rerun=rerun, flags=flags, config_file=config_file))
