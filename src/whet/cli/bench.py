"""`whet bench`: a suite of expectations, run by the same engine and under the names that its users know."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from whet.cli.asking import DOLLARS, FILE, asking, request_of, selecting
from whet.errors import UsageError
from whet.plan import RunRequest

_SECONDS = click.FloatRange(min=0, min_open=True)
# Ten years; infinity and what is not a number are not among them.
_MOST_SECONDS = 315_360_000


@click.command("bench", short_help="Run a suite of expectations and report what holds.")
@selecting
@click.option("--concurrent", "max_parallel", type=click.IntRange(min=1), metavar="N", help="Cases at a time: 1.")
@click.option("--output", type=FILE, metavar="FILE", help="Write the results as JSON.")
@click.option("--runs", "trials", type=click.IntRange(min=1), metavar="N", help="Run every case so often.")
@click.option("--fail-fast", is_flag=True, help="Ask no expectation of a case after one that does not hold.")
@click.option("--strict", is_flag=True, help="Take warnings for errors, and try no case that is vacuous.")
@click.option("--in-place", is_flag=True, help="Work in the project itself, one case at a time.")
@click.option("--budget", "budget_usd", type=DOLLARS, metavar="USD", help="The most that a case may cost.")
@click.option("--timeout", type=_SECONDS, metavar="S", help="Time limit of the agent, instead of what the suite says.")
@asking
def command(**given: Any) -> int:
    """Run the cases of SUITE, a JSON or YAML file, and report which expectations hold.

    Exit code: 0 all cases pass, 1 some do not, 2 nothing was run because something must be corrected first,
    3 no case failed but some could not be tried, 4 the run began and could not be recorded, 130 interrupted.
    """
    request = _request(given)
    # Only now: "whet bench --help" and a mistyped option need none of it.
    from whet import pipeline
    from whet.cli.ready import ready

    return pipeline.run(request, ready)


def _request(given: dict[str, Any]) -> RunRequest:
    output: Path | None = given.pop("output")
    seconds: float | None = given.pop("timeout")
    if seconds is not None and not 0 < seconds <= _MOST_SECONDS:
        raise UsageError(f"--timeout: must be more than 0 and at most {_MOST_SECONDS:,} seconds, not {seconds:g}")
    given["timeout_ms"] = None if seconds is None else max(1, round(seconds * 1000))
    if given["resume"] is None and given["max_parallel"] is None:
        given["max_parallel"] = 1
    request = request_of("bench", given)
    # A resume may be asked for from another folder.
    return request if output is None else replace(request, more_reporters=(f"bench={output.absolute()}",))
