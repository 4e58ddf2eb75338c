"""`whet judge pairs`: ask a judge which of two answers is better, where no statement can say it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from whet.cli.common import given_settings, print_document, print_lines
from whet.cli.judge.runs import ASKING


@click.command("pairs", short_help="Ask which of two answers is better, each pair in both orders.")
@click.option("--n", "n", type=click.IntRange(1, 100_000), metavar="N", help="Ask about N pairs (default: all).")
@click.option("--question", metavar="TEXT", help="Ask this of all cases (default: what each says).")
@click.option("--seed", metavar="TEXT", help="Ask in another order (default: the id of the run).")
@ASKING
def pairs_command(
    run: str,
    *,
    n: int | None,
    question: str | None,
    max_cost: float | None,
    seed: str | None,
    as_json: bool,
    config_file: Path | None,
    **options: Any,
) -> int:
    """Ask the judge of the settings about each trial of RUN (default: latest) beside the same one of its baseline.

    Cases with a stored answer are held against that. The judge is shown both answers twice, A/B and B/A, and no
    names of arms. Who wins in one order only is a tie.

    \b
    Exit codes:
      0    the judge said who wins
      2    nothing was asked: correct what the error says
      3    more than a tenth of the pairs have no winner
      130  interrupted
    """
    from whet.report.judging.pairs import pairs_lines
    from whet.run.judging.judge_pairs import PairsRequest, judge_pairs

    request = PairsRequest(
        run=run,
        n=n,
        question=question or None,
        max_cost_usd=max_cost,
        seed=seed,
        flags=given_settings(options),
        config_file=config_file,
    )
    outcome, path = judge_pairs(request)
    if as_json:
        print_document(outcome)
    else:
        print_lines(pairs_lines(outcome, path), sys.stdout)
    return outcome.exit_code
