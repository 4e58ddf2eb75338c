"""`whet compare`, `gate`, `baseline` and `plan`: decide between arms, and say what a decision takes."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whet import exit_codes
from whet.cli.common import (
    CONFIG,
    FILE,
    JSON,
    SPLIT,
    given_settings,
    print_document,
    print_lines,
    screen_of,
    setting,
    with_options,
)
from whet.cli.grammar.candidates import complete_runs
from whet.cli.grammar.quantities import Number, Percent, Points
from whet.errors import UsageError
from whet.model.comparison import GOALS
from whet.reading.text import count

if TYPE_CHECKING:
    from whet.model.comparison import Goal
    from whet.model.request import Settings
    from whet.model.suite import Part


_POINTS = Points(0, 100)


def _refuse_skills(_ctx: click.Context, _param: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse two skills where arms or runs are asked for, with the command that runs them."""
    if len(names) == len(("A", "B")) and all((Path(name) / "SKILL.md").is_file() for name in names):
        old, new = map(shlex.quote, names)
        raise UsageError(
            f"{old} and {new} are skills, and a comparison reads runs",
            hint=f"run them first: whet run {old} --arm old=skill:{old} --arm new=skill:{new}",
        )
    return names


_COMPARED = with_options(
    (
        click.argument("names", metavar="[RUN] [A B]", nargs=-1, shell_complete=complete_runs, callback=_refuse_skills),
        click.option(
            "--margin",
            type=_POINTS,
            metavar="POINTS",
            help="How many points worse still counts as not worse (default: that of a run until decided, or 5).",
        ),
        click.option(
            "--goal",
            type=click.Choice(GOALS),
            help="Ask whether B takes less money, time or tokens and is not worse.",
        ),
        click.option("--shared", is_flag=True, help="Compare two runs on the cases that both have."),
        SPLIT,
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
    margin: float | None,
    goal: Goal | None,
    shared: bool,
    splits: tuple[Part, ...],
    per_runner: bool,
    as_json: bool,
    config_file: Path | None,
    **options: Any,
) -> int:
    """Compare arm B with arm A of RUN, or run B with run A.

    RUN is the folder of a run, its id, or "latest" (default). Without A and B, whet compares every arm with the first.
    """
    from whet.report.decisions.compare import compare

    settings = _settings(options, config_file)
    comparison = compare(
        names, settings, margin=_share(margin), goal=goal, shared=shared, per_runner=per_runner, splits=splits
    )
    if as_json:
        print_document(comparison.document())
    else:
        print_lines(comparison.lines(screen_of(sys.stdout)))
    return exit_codes.DONE


@click.command("gate", short_help="Exit with 0, 1 or 5: not worse, worse, or not known yet.")
@_COMPARED
@click.option("--like-these", is_flag=True, help="Require that other cases like these are better too.")
@click.option("--max-cost-ratio", type=Number(0, min_open=True), metavar="X", help="Allow X times the cost.")
@click.option(
    "--min-rate", type=Percent(0, 100), metavar="PERCENT", help="Require that so many trials pass; compare nothing."
)
@click.option("--min-score", type=Number(0, 1), metavar="SCORE", help="Require this mean score; compare nothing.")
@click.option("--baseline", metavar="NAME", help="Compare with this stored baseline.")
@click.option(
    "--judge-agreement",
    type=Percent(0, 100),
    metavar="PERCENT",
    help="Let nothing pass that rests on a judge unless labels show that it is right so often.",
)
@click.option("--judge-counted", is_flag=True, help="Decide by labels of people instead of the judge.")
@click.option("--pairwise", is_flag=True, help="Require that whet judge pairs found B's answers better.")
@JSON
@_FIND
@CONFIG
def gate_command(
    names: tuple[str, ...],
    *,
    margin: float | None,
    goal: Goal | None,
    shared: bool,
    splits: tuple[Part, ...],
    per_runner: bool,
    like_these: bool,
    max_cost_ratio: float | None,
    min_rate: float | None,
    min_score: float | None,
    baseline: str | None,
    judge_agreement: float | None,
    judge_counted: bool,
    pairwise: bool,
    as_json: bool,
    config_file: Path | None,
    **options: Any,
) -> int:
    """Decide whether arm B may replace arm A. If that is not known yet, say what would decide it.

    \b
    Exit codes:
      0  better, or not worse; with --goal: not worse, and cheaper, faster or shorter
      1  worse; with --goal: worse, or dearer, slower or longer
      2  there is nothing to compare
      5  not known yet
    """
    from whet.report.decisions.compare import gate

    alone = next(
        (name for name, least in (("--min-rate", min_rate), ("--min-score", min_score)) if least is not None), None
    )
    compared = (baseline, goal, max_cost_ratio, judge_agreement, judge_counted or None)
    if alone and any(option is not None for option in compared):
        others = "--baseline, --goal, --max-cost-ratio, --judge-agreement and --judge-counted"
        raise UsageError(f"{alone} is for one run by itself", hint=f"leave out {others}")
    outcome = gate(
        names,
        _settings(options, config_file),
        margin=_share(margin),
        goal=goal,
        shared=shared,
        per_runner=per_runner,
        like_these=like_these,
        max_cost_ratio=max_cost_ratio,
        min_rate=_share(min_rate),
        min_score=min_score,
        baseline=baseline,
        splits=splits,
        judge_agreement=_share(judge_agreement),
        judge_counted=judge_counted,
        pairwise=pairwise,
    )
    if as_json:
        print_document(outcome.document())
    else:
        print_lines(outcome.lines(screen_of(sys.stdout)))
    return outcome.code


@click.group("baseline", short_help="Store the trials of a run, to compare later runs with.")
def baseline_command() -> None:
    """Store the trials of a run in baselines/NAME.json next to the settings: a small file to commit."""


@baseline_command.command("save")
@click.argument("name")
@click.argument("run", default="latest", shell_complete=complete_runs)
@_FIND
@CONFIG
@JSON
def save(name: str, run: str, config_file: Path | None, as_json: bool, **options: Any) -> int:
    """Store every arm of RUN (default: latest) as the baseline NAME."""
    from whet.report.decisions.compare import store_baseline

    stored = store_baseline(name, run, _settings(options, config_file))
    if as_json:
        print_document(stored)
    else:
        click.echo(f"{stored.file}: {count(len(stored.arms), 'arm')}, {count(stored.trials, 'trial')} of {stored.run}")
    return exit_codes.DONE


@click.command("plan", short_help="Say how many trials, dollars and hours a decision takes.")
@click.argument("paths", metavar="[PATH]...", type=FILE, nargs=-1)
@click.option(
    "--effect",
    type=Number(0.1, 100),
    default=10.0,
    show_default=True,
    metavar="POINTS",
    help="The difference to find.",
)
@click.option(
    "--power",
    type=Percent(50, 99.9),
    default=80.0,
    show_default=True,
    metavar="PERCENT",
    help="In how many of 100 runs to find it.",
)
@click.option("--arms", type=click.IntRange(2, 100), default=2, show_default=True, metavar="N", help="How many arms.")
@click.option(
    "--from",
    "pilot",
    metavar="RUN",
    shell_complete=complete_runs,
    help="Learn from this run (default: the newest of the suite).",
)
@click.option("--max-cost", type=Number(0, min_open=True), metavar="USD", help="Also say what this much decides.")
@SPLIT
@JSON
@_FIND
@CONFIG
def plan_command(
    paths: tuple[Path, ...],
    *,
    effect: float,
    power: float,
    arms: int,
    pilot: str | None,
    max_cost: float | None,
    splits: tuple[Part, ...],
    as_json: bool,
    config_file: Path | None,
    **options: Any,
) -> int:
    """Say how many trials per case and arm you need to find a difference of --effect points.

    PATH is a suite, a benchmark, a skill, or a folder of these; each suite has a plan of its own.
    """
    from whet.cli.grammar.targets import find_named
    from whet.report.decisions.documents import PlansDocument
    from whet.report.decisions.plan import plan_trials

    plans = [
        plan_trials(
            suite.path,
            _settings(options, config_file, suite.path),
            effect=effect / 100,
            power=power / 100,
            arms=arms,
            pilot=pilot,
            max_cost=max_cost,
            splits=splits,
        )
        for suite in find_named(paths)
    ]
    documents = tuple(plan.document() for plan in plans)
    if as_json:
        print_document(documents[0] if len(plans) == 1 else PlansDocument(plans=documents))
        return exit_codes.DONE
    for plan in plans:
        if len(plans) > 1:
            print_lines([str(plan.suite)])
        print_lines(plan.lines(screen_of(sys.stdout)))
    return exit_codes.DONE


def _share(points: float | None) -> float | None:
    return None if points is None else points / 100


def _settings(options: dict[str, Any], config_file: Path | None, start: Path | None = None) -> Settings:
    from whet.plan.settings.load import load_settings

    flags = given_settings(options)
    return load_settings(start or Path.cwd(), flags=flags, environ=os.environ, config_file=config_file)
