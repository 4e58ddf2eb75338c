"""`whet run`, `whet bench` and `whet audit`: run suites with agents, or with controls."""

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
    JSON,
    Number,
    given_settings,
    setting,
    typed_again,
    typed_for_resume,
    with_options,
)
from whet.errors import UsageError
from whet.model.comparison import MOST_ADDED, MOST_ROUNDS, Until
from whet.model.request import RunRequest, Selection, parse_shard, split_arms, split_list

if TYPE_CHECKING:
    from whet.ground.sandbox import Sandbox
    from whet.model.run import Plan

_SELECTION = with_options(
    (
        click.argument("paths", metavar="[PATH]...", type=FILE, nargs=-1),
        click.option(
            "--case",
            "cases",
            multiple=True,
            metavar="ID",
            help="Run only this case, or those that fit a pattern such as find-* (repeatable).",
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
            type=click.IntRange(1, MOST_ADDED),
            metavar="N",
            help="With --resume: run every case N more times in every arm.",
        ),
        click.option(
            "--until-decided",
            is_flag=True,
            help="Run in rounds until one arm is known to be better, or more rounds would not help.",
        ),
        click.option(
            "--effect",
            type=Number(0.1, 100),
            metavar="POINTS",
            help="With --until-decided: give up if a difference of POINTS would hardly show (default: 10).",
        ),
        click.option(
            "--max-rounds",
            type=click.IntRange(2, MOST_ROUNDS),
            metavar="N",
            help="With --until-decided: run every case at most N times in every arm (default: 10).",
        ),
        click.option(
            "--margin",
            type=Number(0, 100, min_open=True),
            metavar="POINTS",
            help="With --until-decided: also stop once no arm can be worse by POINTS or more.",
        ),
        click.option(
            "--gate",
            is_flag=True,
            help='End as "whet gate" does with its usual margin; for its other options, run it afterwards.',
        ),
        click.option("--dry-run", is_flag=True, help="Print the plan and start nothing."),
        click.option("--resume", metavar="RUN", help="Run what is missing from an earlier run; you may omit PATH."),
    )
)
_MANNER = with_options(
    (
        click.option("--model", metavar="NAME", help="Use this model for every case and runner."),
        setting("retries"),
        setting("max_cost_usd"),
        setting("on"),
        setting("sandbox"),
        setting("image"),
        setting("keep_services"),
        setting("allow_env"),
        setting("controls"),
        click.option("--verbose", is_flag=True, help="Show what agents say and do as it happens."),
        setting("output_dir"),
        setting("reporters"),
        CONFIG,
    )
)


@click.command("run", short_help="Run suites, or the suites of a skill, and report the verdicts.")
@_SELECTION
@click.option("--skill", type=FILE, metavar="PATH", help="Test this skill: a folder, or an archive of one.")
@click.option("--update-snapshots", is_flag=True, help="Take new usage snapshots of what runs.")
@setting("trials")
@setting("timeout_ms")
@setting("max_steps")
@setting("schedule")
@setting("max_parallel")
@setting("cwd")
@setting("record_to")
@setting("cassette")
@setting("cassette_mode")
@setting("cassette_speed")
@_MANNER
def run_command(**given: Any) -> int:
    """Run the suites in PATH against the configured runners and report the verdicts.

    PATH is a suite, the folder of a skill or of suites, or a pattern in quotes; you can name several.

    \b
    Exit codes:
      0    every trial went as expected
      1    some did not
      2    nothing ran: correct what the error says
      3    none failed, but some errored
      4    the run started, but could not be recorded
      130  interrupted
    \b
    If it compares arms that you defined, failures do not decide:
      0    every trial ran: "whet gate" says which arm is better
      3    some errored
    \b
    With --gate, the gate decides:
      0    better, or not worse by 5 points or more
      1    worse
      5    not known yet
    """
    given["paths"] = _fetched(given["paths"])
    return _run(request_of("run", given), given["paths"])


def _fetched(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return *paths*, with tasks of repositories and archives fetched."""
    if not any(":/" in str(path) for path in paths):
        return tuple(paths)
    from whet.ground.registries import local_paths

    return local_paths(paths)


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
    """Run the cases in PATH, a JSON or YAML file or a folder of them, and report which expectations hold.

    \b
    Exit codes:
      0    every case passed
      1    some did not
      2    nothing ran: correct what the error says
      3    none failed, but some could not be tried
      4    the run started, but could not be recorded
      130  interrupted
    """
    return _run(_bench_request(given), given["paths"])


def _run(request: RunRequest, paths: Sequence[Path]) -> int:
    """Run the suite that *paths* name, or all of them together."""
    # Imported here and below and not above: "whet run --help" and a mistyped option do not need it.
    if request.resume is not None:
        from whet.plan.resume import batch_to_resume

        batch = batch_to_resume(request)
    else:
        batch = None
    requests = batch.requests if batch else _requests(request, paths)
    if len(requests) == 1 and batch is None:
        from whet.run import flow as pipeline

        return pipeline.run(requests[0], ready)
    if request.until is not None:
        raise UsageError(
            f"--until-decided decides about one suite, and these are {len(requests)}", hint="name one of them"
        )
    from whet.run.batch import run_batch

    return run_batch(requests, ready, batch)


def _requests(request: RunRequest, paths: Sequence[Path]) -> list[RunRequest]:
    """Return a request for each suite that *paths* stand for."""
    if request.resume is not None or (len(paths) == 1 and paths[0].is_file() and paths[0].name != "SKILL.md"):
        return [request]
    from whet.suites.finding import find_suites

    found = find_suites(paths)
    for over in found.passed_over:
        if over.broken or request.verbose:
            click.echo(f"passed over: {over}", err=True)
    return [replace(request, suite=each.path, skill=request.skill or each.skill) for each in found.suites]


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


@click.command("audit", short_help="Find cases that cannot tell good from bad, without a model.")
@click.argument("suite", type=FILE)
@click.option("--case", "cases", multiple=True, metavar="ID", help="Audit only this case (repeatable).")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Audit only cases with this tag (repeatable).")
@click.option("--skill", type=FILE, metavar="PATH", help="The skill that the suite is about: a folder, or an archive.")
@setting("timeout_ms")
@setting("max_parallel")
@setting("sandbox")
@setting("image")
@setting("keep_services")
@setting("allow_env")
@setting("output_dir", help="Find runs in this folder.")
@JSON
@CONFIG
def audit_command(*, as_json: bool, **given: Any) -> int:
    """Run the cases of SUITE with agents that solve nothing, and with their solutions.

    \b
    One does nothing, one says "Done, all tests pass.", one repeats the prompt.
    A case that one of them passes is vacuous; a case whose solution does not
    pass is broken. Recorded runs show which checks decide nothing.

    \b
    Exit codes:
      0    no case is vacuous, and every solution passes
      1    a case is vacuous, or a solution does not pass
      2    nothing ran: correct what the error says
      3    something errored, so a case could not be audited
      130  interrupted
    """
    unused = {"runners": (), "shard": None, "last_failed": False, "dry_run": False, "resume": None, "model": None}
    request = request_of("audit", {**unused, "verbose": False, "paths": _fetched((given.pop("suite"),)), **given})
    # Imported here and not above, as in run_command.
    from whet.run.audit import audit

    return audit(request, as_json=as_json)


def request_of(command: str, given: dict[str, Any]) -> RunRequest:
    """Return the request that the options of `whet COMMAND` make."""
    if not given["paths"] and given["resume"] is None:
        example = "suite.json" if command == "bench" else "suite.py"
        raise UsageError("no suite was given", hint=f'name its file, such as "whet {command} {example}"')
    if len(given["paths"]) > 1 and given["resume"] is not None:
        raise UsageError("--resume continues an earlier run, and takes no other suites", hint="leave the paths out")
    if given.get("add_trials") and given["resume"] is None:
        raise UsageError("--add-trials makes an earlier run longer", hint="name that run with --resume")
    model = given["model"]
    if model is not None and not model.strip():
        raise UsageError("--model: must not be empty")
    return RunRequest(
        suite=given["paths"][0] if len(given["paths"]) == 1 else None,
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
        going_on=typed_for_resume("--verbose", "--gate"),
        skill=given.get("skill"),
        arms=split_arms(given.get("arms", ())),
        add_trials=given.get("add_trials"),
        until=_until(given),
        gate=_gate(given),
    )


def _gate(given: dict[str, Any]) -> bool:
    """Return whether a gate decides; refuses a part of the cases, on which none can."""
    if not given.get("gate"):
        return False
    if given["shard"] is not None:
        raise UsageError(
            "--gate decides on all cases together, and a shard has a part of them",
            hint="make one run of the shards with whet merge, and then: whet gate",
        )
    if given["last_failed"]:
        raise UsageError(
            "--gate cannot decide on the cases that failed last time: some of them failed by chance",
            hint="run all cases, or select by --case or --tag",
        )
    return True


def _until(given: dict[str, Any]) -> Until | None:
    """Return when the run stops by itself, if that was asked for."""
    asked = {name: given.get(name) for name in ("effect", "max_rounds", "margin")}
    if not given.get("until_decided"):
        if lost := next((name for name, value in asked.items() if value is not None), None):
            raise UsageError(f"--{lost.replace('_', '-')} is for a run until decided", hint="add --until-decided")
        return None
    if given["shard"] is not None:
        raise UsageError("--until-decided looks at all cases together, and a shard has a part of them")
    if given["last_failed"]:
        raise UsageError(
            "--until-decided cannot decide on the cases that failed last time: some of them failed by chance",
            hint="run all cases, or select by --case or --tag",
        )
    return Until(
        effect=(asked["effect"] or 10) / 100,
        rounds=asked["max_rounds"] or 10,
        margin=None if asked["margin"] is None else asked["margin"] / 100,
    )


# Agents that come with whet, or are any program of yours: whet knows no version and no login of theirs.
_PART_OF_WHET = ("scripted", "replay", "command")


def ready(plan: Plan, sandbox: Sandbox, played: bool) -> tuple[str, ...]:
    """Return what the doctor says about the agents of *plan*."""
    if all(execution.runner.agent in _PART_OF_WHET for execution in plan.executions):
        return ()
    # Only here: these have no program to look for.
    from whet.run.readiness import refuse_unready

    return refuse_unready(plan, sandbox, os.environ, played=played)
