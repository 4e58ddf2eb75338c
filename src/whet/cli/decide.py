"""`whet compare`, `gate`, `baseline` and `plan`: decide between arms, and say what a decision takes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whet.cli.common import CONFIG, FILE, JSON, Number, given_settings, setting, with_options
from whet.errors import UsageError

if TYPE_CHECKING:
    from whet.model.request import Settings


_POINTS = Number(0, 100)
_COMPARED = with_options(
    (
        click.argument("names", metavar="[RUN] [A B]", nargs=-1),
        click.option(
            "--margin",
            type=_POINTS,
            default=5.0,
            show_default=True,
            metavar="POINTS",
            help="How many points worse still counts as not worse.",
        ),
        click.option("--shared", is_flag=True, help="Compare two runs on the cases that both have."),
        click.option("--per-runner", is_flag=True, help="Give each runner its own 5 %, instead of one for all."),
    )
)
_FIND = setting("output_dir", help="Find runs in this folder.")


@click.command("compare", short_help="Say which of two arms or runs is better, and how sure that is.")
@_COMPARED
@JSON
@_FIND
@CONFIG
def compare_command(
    names: tuple[str, ...],
    *,
    margin: float,
    shared: bool,
    per_runner: bool,
    as_json: bool,
    config_file: Path | None,
    **given: Any,
) -> int:
    """Compare arm B with arm A of RUN, or run B with run A.

    RUN is the folder of a run, its id, or "latest" (default). Without A and B, whet compares every arm with the first.
    """
    from whet.report.deciding import compare, encode

    found = compare(names, _settings(given, config_file), margin=margin / 100, shared=shared, per_runner=per_runner)
    click.echo(encode(found.document()) if as_json else "\n".join(found.lines()))
    return 0


@click.command("gate", short_help="Exit with 0, 1 or 5: not worse, worse, or not known yet.")
@_COMPARED
@click.option("--like-these", is_flag=True, help="Require that other cases like these are better too.")
@click.option("--max-cost-ratio", type=Number(0, min_open=True), metavar="X", help="Allow X times the cost.")
@click.option("--min-rate", type=_POINTS, metavar="PERCENT", help="Require that so many trials pass; compare nothing.")
@click.option("--min-score", type=Number(0, 1), metavar="SCORE", help="Require this mean score; compare nothing.")
@click.option("--baseline", metavar="NAME", help="Compare with this stored baseline.")
@JSON
@_FIND
@CONFIG
def gate_command(
    names: tuple[str, ...],
    *,
    margin: float,
    shared: bool,
    per_runner: bool,
    like_these: bool,
    max_cost_ratio: float | None,
    min_rate: float | None,
    min_score: float | None,
    baseline: str | None,
    as_json: bool,
    config_file: Path | None,
    **given: Any,
) -> int:
    """Decide whether arm B may replace arm A. If that is not known yet, say what would decide it.

    \b
    Exit codes:
      0  better, or not worse
      1  worse
      2  there is nothing to compare
      5  not known yet
    """
    from whet.report.deciding import encode, gate

    alone = next(
        (name for name, least in (("--min-rate", min_rate), ("--min-score", min_score)) if least is not None), None
    )
    if alone and (baseline is not None or max_cost_ratio is not None):
        raise UsageError(f"{alone} is for one run by itself", hint="leave out --baseline and --max-cost-ratio")
    outcome = gate(
        names,
        _settings(given, config_file),
        margin=margin / 100,
        shared=shared,
        per_runner=per_runner,
        like_these=like_these,
        max_cost_ratio=max_cost_ratio,
        min_rate=None if min_rate is None else min_rate / 100,
        min_score=min_score,
        baseline=baseline,
    )
    click.echo(encode(outcome.document()) if as_json else "\n".join(outcome.lines()))
    return outcome.code


@click.group("baseline", short_help="Store the trials of a run, to compare later runs with.")
def baseline_command() -> None:
    """Store the trials of a run in baselines/NAME.json next to the settings: a small file to commit."""


@baseline_command.command("save")
@click.argument("name")
@click.argument("run", default="latest")
@_FIND
@CONFIG
def save(name: str, run: str, config_file: Path | None, **given: Any) -> int:
    """Store every arm of RUN (default: latest) as the baseline NAME."""
    from whet.report.deciding import store_baseline

    click.echo(store_baseline(name, run, _settings(given, config_file)))
    return 0


@click.command("plan", short_help="Say how many trials, dollars and hours a decision takes.")
@click.argument("suite", type=FILE)
@click.option(
    "--effect",
    type=Number(0.1, 100),
    required=True,
    metavar="POINTS",
    help="The difference to find.",
)
@click.option(
    "--power",
    type=Number(50, 99.9),
    default=80.0,
    show_default=True,
    metavar="PERCENT",
    help="In how many of 100 runs to find it.",
)
@click.option("--arms", type=click.IntRange(2, 100), default=2, show_default=True, metavar="N", help="How many arms.")
@click.option("--from", "pilot", metavar="RUN", help="Learn from this run (default: the newest of SUITE).")
@click.option("--max-cost", type=Number(0, min_open=True), metavar="USD", help="Also say what this much decides.")
@JSON
@_FIND
@CONFIG
def plan_command(
    suite: Path,
    *,
    effect: float,
    power: float,
    arms: int,
    pilot: str | None,
    max_cost: float | None,
    as_json: bool,
    config_file: Path | None,
    **given: Any,
) -> int:
    """Say how many trials per case and arm you need to find a difference of --effect points."""
    from whet.report.deciding import encode
    from whet.report.planning import plan_trials

    if not suite.exists():
        raise UsageError(f"{suite}: no such file")
    found = plan_trials(
        suite,
        _settings(given, config_file, suite),
        effect=effect / 100,
        power=power / 100,
        arms=arms,
        pilot=pilot,
        max_cost=max_cost,
    )
    click.echo(encode(found.document()) if as_json else "\n".join(found.lines()))
    return 0


def _settings(given: dict[str, Any], config_file: Path | None, start: Path | None = None) -> Settings:
    from whet.plan.settings import load_settings

    flags = given_settings(given)
    return load_settings(start or Path.cwd(), flags=flags, environ=os.environ, config_file=config_file)
