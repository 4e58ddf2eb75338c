"""`whet run`: what was typed becomes a request, and the pipeline does the rest."""

from __future__ import annotations

from typing import Any

import click

from whet.cli.asking import FILE, asking, request_of, selecting
from whet.model.run import SCHEDULES


@click.command("run", short_help="Run a suite and report verdicts.")
@selecting
@click.option("--skill", type=FILE, metavar="PATH", help="The skill under test: its folder, or an archive of it.")
@click.option("--variant", "variants", multiple=True, metavar="NAME", help="Only these variants, such as no_skill.")
@click.option("--update-snapshots", is_flag=True, help="Take new usage snapshots of what is run.")
@click.option("--trials", type=click.IntRange(min=1), metavar="N", help="Samples of every case on every runner.")
@click.option("--timeout-ms", type=click.IntRange(min=1), metavar="MS", help="Time limit of an attempt.")
@click.option("--max-steps", type=click.IntRange(min=1), metavar="N", help="Most model rounds of an attempt.")
@click.option("--schedule", type=click.Choice(SCHEDULES), help="What may run at the same time.")
@click.option("--max-parallel", type=click.IntRange(min=1), metavar="N", help="Most trials at a time.")
@click.option("--cwd", type=FILE, metavar="DIR", help="Work in this folder, shared by all.")
@asking
def command(**given: Any) -> int:
    """Run SUITE against the configured runners and report verdicts.

    Exit code: 0 all as expected, 1 some not, 2 nothing was run because something must be corrected first,
    3 nothing failed but some trials errored, 4 the run began and could not be recorded, 130 interrupted.
    """
    request = request_of("run", given)
    # Only now: "whet run --help" and a mistyped option need none of it.
    from whet import pipeline
    from whet.cli.ready import ready

    return pipeline.run(request, ready)
