"""Every execution of a run, with every default settled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from whet.config import BUILT_IN, Settings
from whet.errors import PathRefused, UsageError
from whet.model.run import NO_AGENT, Execution, Plan, ScheduleName
from whet.model.suite import NO_SKILL, SKILL, Case, Limits, Suite, WorkspaceSpec
from whet.model.variants import in_variant
from whet.plan.request import Selection
from whet.plan.selecting import selected, sharded
from whet.refused import refusals


def make_plan(
    suite: Suite,
    settings: Settings,
    selection: Selection,
    *,
    model: str | None = None,
    in_place: bool = False,
    fail_fast: bool = False,
    strict: bool = False,
    words: Mapping[str, str] | None = None,
) -> Plan:
    """All that a run of *suite* will do, in declared order; `UsageError` where that is nothing.

    *words* are what a case and a runner are called by whoever asked.
    """
    workspace = _in_place(suite) if in_place else _workspace(suite, settings)
    chosen = selected(suite, settings, selection, words or {})
    together = {(case.id, runner.id, variant) for case, runner, variant in chosen}
    executions = [
        in_variant(
            suite,
            Execution(
                case=case,
                # The model that was typed, then the case's (or its suite's), then the runner's.
                runner=replace(runner, model=model or case.model or runner.model),
                variant=variant,
                limits=_limits(suite, case, settings),
                workspace=case.workspace or workspace,
                # Where no agent is run, asking it again changes nothing.
                trials=(case.trials if runner.agent != NO_AGENT else None) or settings.trials,
                control=variant == NO_SKILL and (case.id, runner.id, SKILL) in together,
            ),
        )
        for case, runner, variant in chosen
    ]
    schedule = "serial" if in_place else _schedule(settings, workspace)
    return Plan(
        suite=suite,
        executions=sharded(executions, selection.shard),
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


def skill_problems(key: str, skills: Iterable[Path]) -> Iterator[str]:
    """A line for each of the *skills* that stand at *key* and is none, or cannot be looked at."""
    for skill in skills:
        try:
            with refusals():
                if not (skill / "SKILL.md").is_file():
                    yield f"{key}: {skill} is not a skill: it has no SKILL.md"
        except PathRefused as error:
            yield f"{key}: {error.message}"


def template_problems(plan: Plan, settings: Settings) -> Iterator[str]:
    """What is wrong with the template that the settings name; one of the suite's own was looked at with the suite."""
    if plan.suite.workspace is not None or settings.workspace is None or settings.workspace.template_dir is None:
        return
    template = settings.workspace.template_dir
    if not template.is_dir():
        yield f"run.workspace.template_dir: {template} {'is not a folder' if template.exists() else 'does not exist'}"


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
