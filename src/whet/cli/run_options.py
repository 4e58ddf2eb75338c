"""The options of `whet run`, which `whet bench` has too: what to run, how, and when to stop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from whet.cli.common import CONFIG, FILE, RESULTS_JSON, SPLIT, setting, with_options
from whet.cli.grammar.candidates import complete_cases, complete_runners, complete_runs
from whet.cli.grammar.options import option
from whet.cli.grammar.quantities import Number, Points
from whet.errors import UsageError
from whet.model.comparison import GOALS, MOST_ADDED, MOST_ROUNDS, Until

# How many points worse an arm may be that is to be cheaper, faster or shorter.
_GOAL_MARGIN = 5.0

UNTIL = with_options(
    (
        option(
            "--until-decided",
            is_flag=True,
            help="Run in rounds until one arm is known to be better, or more rounds would not help.",
        ),
        option(
            "--effect",
            type=Number(0.1, 100),
            metavar="POINTS",
            help="With --until-decided: give up if a difference of POINTS would hardly show (default: 10).",
        ),
        option(
            "--max-rounds",
            type=click.IntRange(2, MOST_ROUNDS),
            metavar="N",
            help="With --until-decided: run every case at most N times in every arm (default: 10).",
        ),
        option(
            "--margin",
            type=Points(0, 100, min_open=True),
            metavar="POINTS",
            help="With --until-decided: also stop once no arm can be worse by POINTS or more.",
        ),
        option(
            "--goal",
            type=click.Choice(GOALS),
            help="With --until-decided: run until it is known whether an arm takes less and is not worse.",
        ),
    )
)
SELECTION = with_options(
    (
        click.argument("paths", metavar="[PATH]...", type=FILE, nargs=-1),
        option(
            "--case",
            "cases",
            multiple=True,
            metavar="ID",
            shell_complete=complete_cases,
            help="Run only this case, or those that fit a pattern such as find-* (repeatable).",
        ),
        option("-k", "parts", multiple=True, metavar="TEXT", help="Run only cases with TEXT in their id (repeatable)."),
        option("--tag", "tags", multiple=True, metavar="TAG", help="Run only cases with this tag (repeatable)."),
        SPLIT,
        option(
            "--runner",
            "runners",
            multiple=True,
            metavar="ID",
            shell_complete=complete_runners,
            help="Run only on this runner, or on an agent such as codex (repeatable).",
        ),
        option("--shard", metavar="I/N", help="Run only the I-th of N equal parts of the selection."),
        option("--last-failed", is_flag=True, help="Run only what did not go as expected in the last run."),
        option("--changed", is_flag=True, help="Run only what has changed since its last finished run."),
        option("-x", "--stop-early", is_flag=True, help="Start nothing more after the first failure."),
        option(
            "--arm",
            "arms",
            multiple=True,
            metavar="NAME[=SPEC]",
            help="Compare this arm, such as new=skill:./v2,model:large; the first is the baseline (repeatable).",
        ),
        option(
            "--add-trials",
            type=click.IntRange(1, MOST_ADDED),
            metavar="N",
            help="With --resume: run every case N more times in every arm.",
        ),
        UNTIL,
        option(
            "--gate",
            is_flag=True,
            help='End as "whet gate" does with its usual margin; for its other options, run it afterwards.',
        ),
        option("--dry-run", is_flag=True, help="Print the plan and start nothing."),
        option(
            "--resume",
            metavar="RUN",
            shell_complete=complete_runs,
            help="Run what is missing from an earlier run; you may omit PATH.",
        ),
    )
)
MANNER = with_options(
    (
        option("--skill", type=FILE, metavar="PATH", help="Test this skill: a folder, or an archive of one."),
        option(
            "--param",
            "params",
            multiple=True,
            metavar="NAME=VALUE",
            help="Put VALUE in the place of ${NAME} in specs of Vally (repeatable).",
        ),
        setting("trials"),
        option("--model", metavar="NAME", help="Use this model for every case and runner."),
        setting("retries"),
        setting("max_steps"),
        setting("max_cost_usd"),
        setting("budget_usd"),
        setting("schedule"),
        setting("on"),
        setting("sandbox"),
        setting("image"),
        setting("keep_services"),
        setting("allow_env"),
        setting("run_to_end"),
        setting("controls"),
        setting("vary"),
        option("--fail-fast", is_flag=True, help="Stop checking a case at its first expectation that does not hold."),
        option("--strict", is_flag=True, help="Treat warnings and lost checks as errors; run no vacuous case."),
        option("--strict-judge", is_flag=True, help="Refuse a judge of the same model or family as the agent."),
        setting("cwd"),
        option("--in-place", is_flag=True, help="Work in the project itself, one case at a time."),
        setting("record_to"),
        setting("cassette"),
        setting("cassette_mode"),
        setting("cassette_speed"),
        option("--update-snapshots", is_flag=True, help="Take new usage snapshots of what runs."),
        option("-v", "--verbose", is_flag=True, help="Show what agents say and do as it happens."),
        setting("output_dir"),
        setting("reporters"),
        RESULTS_JSON,
        option("--output", type=FILE, metavar="FILE", help="Write the results of bench suites to this file as JSON."),
        CONFIG,
    )
)


def until_of(options: Mapping[str, Any]) -> Until | None:
    """Return when the run stops by itself, if that was asked for."""
    stop_options = {name: options.get(name) for name in ("effect", "max_rounds", "margin", "goal")}
    if not options.get("until_decided"):
        if stray_option := next((name for name, value in stop_options.items() if value is not None), None):
            raise UsageError(
                f"--{stray_option.replace('_', '-')} is for a run until decided", hint="add --until-decided"
            )
        return None
    # A goal is worth nothing to an arm that may be worse by any number of points.
    margin = _GOAL_MARGIN if stop_options["goal"] and stop_options["margin"] is None else stop_options["margin"]
    return Until(
        effect=(stop_options["effect"] or 10) / 100,
        rounds=stop_options["max_rounds"] or 10,
        margin=None if margin is None else margin / 100,
        goal=stop_options["goal"],
    )
