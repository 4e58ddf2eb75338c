"""The plan of a run: which cases go to which runners in which variants, with every default settled; pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from whet.config import BUILT_IN, Settings
from whet.errors import UnknownName, UsageError
from whet.model.run import Execution, Plan, Runner, ScheduleName
from whet.model.suite import Case, Limits, Suite, WorkspaceSpec

_EXAMPLE = """write one into whet.toml, such as:
[runners.demo.agent]
type = "command"
command = "./agent.sh\""""
_SHARD = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")
_MOST_LISTED = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which executions of a suite are wanted; an empty part asks for all.

    `only` holds the (case, runner, variant) that failed last time.
    """

    cases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    runners: tuple[str, ...] = ()
    shard: tuple[int, int] | None = None
    only: frozenset[tuple[str, str, str]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What `whet run` was asked to do; `flags` holds setting overrides, only those that were given."""

    suite: Path | None
    flags: Mapping[str, Any]
    config_file: Path | None
    selection: Selection
    last_failed: bool
    dry_run: bool
    resume: str | None
    update_snapshots: bool = False
    # For this run alone: the model of every case, the real folder instead of copies, not more checks than needed, and
    # no patience with what looks unlike what its author meant.
    model: str | None = None
    in_place: bool = False
    fail_fast: bool = False
    strict: bool = False
    verbose: bool = False
    # What was typed after `whet`.
    command: str = "run"
    # Besides those of the settings.
    more_reporters: tuple[str, ...] = ()


def make_plan(
    suite: Suite,
    settings: Settings,
    selection: Selection,
    *,
    model: str | None = None,
    in_place: bool = False,
    fail_fast: bool = False,
    strict: bool = False,
) -> Plan:
    """All that a run of *suite* will do, in declared order; `UsageError` where that is nothing."""
    if not settings.runners:
        raise UsageError("no runners are configured", hint=_EXAMPLE)
    workspace = _in_place(suite) if in_place else _workspace(suite, settings)
    executions = [
        Execution(
            case=case,
            # The model that was typed, then the case's (or its suite's), then the runner's.
            runner=replace(runner, model=model or case.model or runner.model),
            variant=variant,
            limits=_limits(suite, case, settings),
            workspace=workspace,
            trials=settings.trials,
        )
        for case, runner, variant in _selected(suite, settings, selection)
    ]
    schedule = "serial" if in_place else _schedule(settings, workspace)
    return Plan(
        suite=suite,
        executions=_shard(executions, selection.shard),
        schedule=schedule,
        max_parallel=1 if schedule == "serial" else settings.max_parallel,
        retries=settings.retries,
        check_timeout_s=settings.check_timeout_s,
        command_timeout_s=settings.command_timeout_s,
        fail_fast=fail_fast,
        strict=strict,
    )


def mount_problems(key: str, mounts: Iterable[str | Path]) -> Iterator[str]:
    """A line for each of the *mounts* that stand at *key* and cannot be shown to anybody."""
    for index, mount in enumerate(mounts):
        try:
            Path(mount).stat()
        except OSError as error:
            reason = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be used: {error.strerror}"
            yield f"{key}[{index}]: {mount} {reason}"


def template_problems(plan: Plan, settings: Settings) -> Iterator[str]:
    """What is wrong with the template that the settings name; one of the suite's own was looked at with the suite."""
    if plan.suite.workspace is not None or settings.workspace is None or settings.workspace.template_dir is None:
        return
    template = settings.workspace.template_dir
    if not template.is_dir():
        yield f"run.workspace.template_dir: {template} {'is not a folder' if template.exists() else 'does not exist'}"


def split_list(values: Iterable[str]) -> tuple[str, ...]:
    """The names in *values*, each of which may be a comma list; order kept, duplicates dropped."""
    names: dict[str, None] = {}
    for value in values:
        for piece in value.split(","):
            if not piece.strip():
                raise UsageError(f'"{value}" has an empty name in it', hint='write names like "a,b"')
            names[piece.strip()] = None
    return tuple(names)


def parse_shard(text: str) -> tuple[int, int]:
    """`2/5` as (2, 5)."""
    found = _SHARD.fullmatch(text.strip())
    number, count = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= count:
        raise UsageError(f'a shard reads like 2/5, the second of five, not "{text}"')
    return number, count


def describe_plan(plan: Plan) -> list[str]:
    """The plan for a person to read: a line of totals, the schedule, and each execution with what is expected of it."""
    executions = plan.executions
    cases = len({execution.case.id for execution in executions})
    runners = len({execution.runner.id for execution in executions})
    rows = [_row(execution) for execution in executions]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    matrix = f"{_count(cases, 'case')} on {_count(runners, 'runner')}"
    totals = f"{_count(len(executions), 'execution')}, {_count(plan.trial_count, 'trial')}"
    retries = _count(plan.retries, "retry", "retries")
    return [
        f"{plan.suite.name}: {matrix}, {totals}",
        f"schedule {plan.schedule}, at most {plan.max_parallel} at a time, {retries} for each trial",
        "",
        *_listing(executions, ["  ".join(map(str.ljust, row, (*widths, 0))) for row in rows]),
    ]


def _listing(executions: Sequence[Execution], lines: Sequence[str]) -> Iterator[str]:
    """The line of each execution; below the first of a case its claims, as they were read."""
    from whet.claims import write_object  # noqa: PLC0415 - only this needs it, and every command imports plans

    seen: set[str] = set()
    for execution, line in zip(executions, lines, strict=True):
        yield line
        case = execution.case
        if case.id not in seen:
            seen.add(case.id)
            claims = (check.params["claim"] for check in case.checks if check.grader == "claim")
            yield from (f"    {json.dumps(write_object(claim), ensure_ascii=False)}" for claim in claims)


def _selected(suite: Suite, settings: Settings, selection: Selection) -> list[tuple[Case, Runner, str]]:
    """Cases before runners before variants, as declared."""
    _must_know("case", selection.cases, [case.id for case in suite.cases])
    _must_know("tag", selection.tags, suite.tags)
    _must_know("runner", selection.runners, [runner.id for runner in settings.runners])
    # Tags from a file may be meant for another suite of the project: only those that were typed must be known here.
    tags = selection.tags or settings.tags
    found = [
        (case, runner, variant)
        for case in suite.cases
        if case.id in (selection.cases or (case.id,)) and (not tags or set(tags) & set(case.tags))
        for runner in settings.runners
        if runner.id in (selection.runners or (runner.id,))
        for variant in suite.variants
        if selection.only is None or (case.id, runner.id, variant) in selection.only
    ]
    if not found:
        raise UsageError(f"nothing is selected from {suite.name}", hint="; ".join(_reasons(suite, tags, selection)))
    return found


def _reasons(suite: Suite, tags: Sequence[str], selection: Selection) -> Iterator[str]:
    """What may have left nothing over."""
    if not suite.cases:
        yield "the suite has no cases"
    if selection.cases:
        yield f"asked for case {_listed(selection.cases)}"
    if tags:
        yield f"asked for tag {_listed(tags)}, the suite has {_listed(suite.tags) or 'none'}"
    if selection.only is not None:
        yield "asked for what failed last time"


def _must_know(kind: str, names: Sequence[str], known: Sequence[str]) -> None:
    unknown = [name for name in names if name not in known]
    if not unknown:
        return
    near = [match for name in unknown for match in get_close_matches(name, known, n=1)]
    hint = f"did you mean {_listed(near)}?" if near else f"known: {_listed(known) or 'none'}"
    raise UnknownName(f"no {kind} is called {_listed(unknown)}", hint=hint)


def _shard(executions: list[Execution], shard: tuple[int, int] | None) -> tuple[Execution, ...]:
    if shard is None:
        return tuple(executions)
    number, count = shard
    part = tuple(executions[number - 1 :: count])
    if not part:
        selected = _count(len(executions), "execution")
        raise UsageError(f"shard {number}/{count} is empty", hint=f"only {selected} selected: use fewer shards")
    return part


def _in_place(suite: Suite) -> WorkspaceSpec:
    """The very folder that workspaces would be copies of."""
    spec = suite.workspace
    if spec is None or spec.template_dir is None:
        raise UsageError(
            f"{suite.name} has no project to work in", hint="--in-place is for suites whose workspaces copy a folder"
        )
    return replace(spec, mode="shared", cwd=spec.template_dir, template_dir=None)


def _workspace(suite: Suite, settings: Settings) -> WorkspaceSpec:
    """The suite's own workspace before the configured one; a folder named by `run.cwd` is a shared one."""
    cwd = settings.cwd
    spec = suite.workspace or settings.workspace or WorkspaceSpec(mode="shared" if cwd else "isolated")
    if cwd is None:
        return spec
    if spec.mode == "isolated":
        origin = settings.origins.get("run.cwd", "run.cwd")
        raise UsageError(
            f"{suite.name} wants isolated workspaces, but a folder to work in is set ({origin})",
            hint="leave out run.cwd and --cwd, or use a shared workspace",
        )
    # A flag stands above the suite, and the suite above files.
    return replace(spec, cwd=cwd) if spec.cwd is None or _outranks_suite(settings, "run.cwd") else spec


def _limits(suite: Suite, case: Case, settings: Settings) -> Limits:
    """Time and dollars: what was given for this very run, then the case's own, then the settings'; the fewer steps."""
    own = case.limits
    if own.timeout_s is None and settings.origins.get("defaults.timeout_ms") == BUILT_IN:
        own = replace(own, timeout_s=suite.usual_timeout_s)
    own_counts = own.timeout_s is not None and not _outranks_suite(settings, "defaults.timeout_ms")
    steps = [limit for limit in (own.max_steps, settings.max_steps) if limit is not None]
    own_budget = own.budget_usd is not None and not _outranks_suite(settings, "defaults.budget_usd")
    return replace(
        own,
        timeout_s=own.timeout_s if own_counts else settings.timeout_s,
        max_steps=min(steps, default=None),
        budget_usd=own.budget_usd if own_budget else settings.budget_usd,
    )


def _outranks_suite(settings: Settings, key: str) -> bool:
    """Whether a setting was given for this run, by flag or variable, and so stands above what a suite says."""
    return settings.origins.get(key, "").startswith(("flag ", "WHET_"))


def _schedule(settings: Settings, workspace: WorkspaceSpec) -> ScheduleName:
    if settings.schedule is not None:
        return settings.schedule
    # Agents that work in one folder at the same time would grade one another's files.
    return "serial" if workspace.mode == "shared" else "parallel"


def _row(execution: Execution) -> tuple[str, str, str, str]:
    limits = execution.limits
    parts = [_count(execution.trials, "trial"), f"{limits.timeout_s:g} s"]
    if limits.max_steps is not None:
        parts.append(f"at most {_count(limits.max_steps, 'step')}")
    if limits.budget_usd is not None:
        parts.append(f"at most ${limits.budget_usd:g}")
    runner = execution.runner
    target = f"{runner.agent} {runner.model}" if runner.model else runner.agent
    variant = "" if execution.variant == "default" else f"/{execution.variant}"
    where = execution.workspace.mode if execution.workspace.cwd is None else f"shared {execution.workspace.cwd}"
    return execution.case.id, f"{runner.id}{variant}", f"({target})", ", ".join((*parts, where))


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f'"{name}"' for name in names[:_MOST_LISTED])
    return shown if len(names) <= _MOST_LISTED else f"{shown} and {len(names) - _MOST_LISTED} more"
