"""`whet run` and `whet bench`: run a suite."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whet.cli.common import (
    CONFIG,
    FILE,
    given_settings,
    setting,
    typed_again,
    typed_for_resume,
    with_options,
)
from whet.errors import UsageError
from whet.model.request import RunRequest, Selection, parse_shard, split_list

if TYPE_CHECKING:
    from whet.ground.sandbox import Sandbox
    from whet.model.run import Plan

_SELECTION = with_options(
    (
        click.argument("suite", type=FILE, required=False),
        click.option(
            "--case", "cases", multiple=True, metavar="ID", help="Run only this case (repeatable, comma-separated)."
        ),
        click.option("--tag", "tags", multiple=True, metavar="TAG", help="Run only cases with this tag (repeatable)."),
        click.option("--runner", "runners", multiple=True, metavar="ID", help="Run only on this runner (repeatable)."),
        click.option("--shard", metavar="I/N", help="Run only the I-th of N equal parts of the selection."),
        click.option("--last-failed", is_flag=True, help="Run only what did not go as expected in the last run."),
        click.option(
            "--arm",
            "--variant",
            "arms",
            multiple=True,
            metavar="NAME[=SPEC]",
            help="Compare this arm, such as new=skill:./v2,model:large; the first is the baseline (repeatable).",
        ),
        click.option(
            "--add-trials",
            type=click.IntRange(1, 100_000),
            metavar="N",
            help="With --resume: run every case N more times in every arm.",
        ),
        click.option("--dry-run", is_flag=True, help="Print the plan and start nothing."),
        click.option("--resume", metavar="RUN", help="Run what is missing from an earlier run; you may omit SUITE."),
    )
)
_MANNER = with_options(
    (
        click.option("--model", metavar="NAME", help="Use this model for every case and runner."),
        setting("retries"),
        setting("max_cost_usd"),
        setting("sandbox"),
        click.option("--verbose", is_flag=True, help="Show what agents say and do as it happens."),
        setting("output_dir"),
        setting("reporters"),
        CONFIG,
    )
)


@click.command("run", short_help="Run a suite and report the verdicts.")
@_SELECTION
@click.option("--skill", type=FILE, metavar="PATH", help="Test this skill: a folder, or an archive of one.")
@click.option("--update-snapshots", is_flag=True, help="Take new usage snapshots of what runs.")
@setting("trials")
@setting("timeout_ms")
@setting("max_steps")
@setting("schedule")
@setting("max_parallel")
@setting("cwd")
@_MANNER
def run_command(**given: Any) -> int:
    """Run SUITE against the configured runners and report the verdicts.

    \b
    Exit codes:
      0    every trial went as expected
      1    some did not
      2    nothing ran: correct what the error says
      3    none failed, but some errored
      4    the run started, but could not be recorded
      130  interrupted
    """
    request = request_of("run", given)
    # Imported here and not above: "whet run --help" and a mistyped option do not need it.
    from whet.run import flow as pipeline

    return pipeline.run(request, ready)


_SECONDS = click.FloatRange(min=0, min_open=True)
# Ten years. The bound also refuses infinity and NaN.
_MOST_SECONDS = 315_360_000


@click.command("bench", short_help="Run a suite of expectations and report which hold.")
@_SELECTION
@setting("max_parallel", "--concurrent", help="Run N cases at the same time (default: 1).")
@click.option("--output", type=FILE, metavar="FILE", help="Write the results to this file as JSON.")
@setting("trials", "--runs", help="Run every case N times.")
@click.option("--fail-fast", is_flag=True, help="Stop checking a case at its first expectation that does not hold.")
@click.option("--strict", is_flag=True, help="Treat warnings as errors, and do not run vacuous cases.")
@click.option("--in-place", is_flag=True, help="Work in the project itself, one case at a time.")
@setting("budget_usd")
@click.option("--timeout", type=_SECONDS, metavar="S", help="Time limit of the agent; overrides the suite.")
@_MANNER
def bench_command(**given: Any) -> int:
    """Run the cases of SUITE, a JSON or YAML file, and report which expectations hold.

    \b
    Exit codes:
      0    every case passed
      1    some did not
      2    nothing ran: correct what the error says
      3    none failed, but some could not be tried
      4    the run started, but could not be recorded
      130  interrupted
    """
    request = _bench_request(given)
    # Imported here and not above, as in run_command.
    from whet.run import flow as pipeline

    return pipeline.run(request, ready)


def _bench_request(given: dict[str, Any]) -> RunRequest:
    output: Path | None = given.pop("output")
    seconds: float | None = given.pop("timeout")
    if seconds is not None and not 0 < seconds <= _MOST_SECONDS:
        raise UsageError(f"--timeout: must be more than 0 and at most {_MOST_SECONDS:,} seconds, not {seconds:g}")
    given["timeout_ms"] = None if seconds is None else max(1, round(seconds * 1000))
    if given["resume"] is None and given["max_parallel"] is None:
        given["max_parallel"] = 1
    request = request_of("bench", given)
    # Absolute, because you may resume the run from another folder.
    return request if output is None else replace(request, more_reporters=(f"bench={output.absolute()}",))


def request_of(command: str, given: dict[str, Any]) -> RunRequest:
    """Return the request that the options of `whet COMMAND` make."""
    suite = given["suite"]
    if suite is None and given["resume"] is None:
        example = "suite.json" if command == "bench" else "suite.py"
        raise UsageError("no suite was given", hint=f'name its file, such as "whet {command} {example}"')
    if suite is not None and not suite.exists():
        raise UsageError(f"{suite}: no such file")
    if given.get("add_trials") and given["resume"] is None:
        raise UsageError("--add-trials makes an earlier run longer", hint="name that run with --resume")
    model = given["model"]
    if model is not None and not model.strip():
        raise UsageError("--model: must not be empty")
    return RunRequest(
        suite=suite,
        flags=given_settings(given, but=("tags",)),
        config_file=given["config_file"],
        selection=Selection(
            cases=split_list(given["cases"]),
            tags=split_list(given["tags"]),
            runners=split_list(given["runners"]),
            shard=parse_shard(given["shard"]) if given["shard"] is not None else None,
        ),
        last_failed=given["last_failed"],
        dry_run=given["dry_run"],
        resume=given["resume"],
        update_snapshots=given.get("update_snapshots", False),
        model=model,
        in_place=given.get("in_place", False),
        fail_fast=given.get("fail_fast", False),
        strict=given.get("strict", False),
        verbose=given["verbose"],
        command=command,
        again=typed_again(),
        going_on=typed_for_resume("--verbose"),
        skill=given.get("skill"),
        arms=_arms(given.get("arms", ())),
        add_trials=given.get("add_trials"),
    )


# Agents that come with whet, or are any program of yours: whet knows no version and no login of theirs.
_PART_OF_WHET = ("scripted", "replay", "command")


def _arms(typed: Sequence[str]) -> tuple[str, ...]:
    """Return each arm that was typed; names without a definition may be a comma list."""
    return tuple(arm for text in typed for arm in ((text,) if "=" in text else split_list((text,))))


def ready(plan: Plan, sandbox: Sandbox) -> tuple[str, ...]:
    """Return what the doctor says about the agents of *plan*."""
    if all(execution.runner.agent in _PART_OF_WHET for execution in plan.executions):
        return ()
    # Only here: these have no program to look for.
    from whet.run.readiness import refuse_unready

    return refuse_unready(plan, sandbox, os.environ)
