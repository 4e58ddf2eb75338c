"""`whet judge try`: find out, without labels, what a judge lets pass and how steady it is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from whet.cli.common import given_settings, print_document, print_lines
from whet.cli.judge.runs import ASKING


@click.command("try", short_help="Ask the judge again about a sample, also about answers that cannot pass.")
@click.option(
    "--n",
    "n",
    type=click.IntRange(1, 10_000),
    default=30,
    show_default=True,
    metavar="N",
    help="Ask about N statements, and N pairs.",
)
@click.option(
    "--max-leak", type=click.IntRange(min=0), default=0, show_default=True, metavar="N", help="Allow N leaks."
)
@click.option("--seed", metavar="TEXT", help="Draw another sample (default: the id of the run).")
@ASKING
def try_command(
    run: str,
    *,
    n: int,
    max_leak: int,
    max_cost: float | None,
    seed: str | None,
    as_json: bool,
    config_file: Path | None,
    **options: Any,
) -> int:
    """Ask the judge of RUN (default: latest) again about a sample of what it decided. It needs no labels.

    \b
    again   the same question once more: its own noise
    order   statements in reverse order, if an agent judges
    empty, shrug, other, inject
            nothing, "I don't know.", another case's answer, an order to pass:
            what passes is a leak
    longer  the same answer with two paragraphs that say nothing
    swap    two answers that it has compared, in the other order

    \b
    Exit codes:
      0    no leak passed, or no more than --max-leak
      1    more leaks passed
      2    nothing was asked: correct what the error says
      3    the judge gave no verdict
      130  interrupted
    """
    from whet.report.judge_tries import try_lines
    from whet.run.judging.try_judge import TryRequest, try_judge

    request = TryRequest(
        run=run,
        n=n,
        max_leak=max_leak,
        max_cost_usd=max_cost,
        seed=seed,
        flags=given_settings(options),
        config_file=config_file,
    )
    judge_try, path = try_judge(request)
    if as_json:
        print_document(judge_try)
    else:
        print_lines(try_lines(judge_try, path), sys.stdout)
    return judge_try.exit_code
