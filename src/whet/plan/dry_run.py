"""The documents that `--dry-run --json` prints: what a run would do."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from whet.model.run import Execution, Plan
from whet.model.suite import Limits, Part


class DryRunExecution(Struct, frozen=True, kw_only=True):
    """One case on one runner in one arm, with its limits for each trial; `agent` is the kind of the runner."""

    case: str
    split: Part | None
    runner: str
    agent: str
    model: str | None
    arm: str
    trials: int
    limits: Limits
    workspace: str


class DryRunDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/dry-run/1"):
    """What `--dry-run --json` prints of a suite.

    `rounds` are the most that a run until decided takes. `left_out` are the files of skills that agents do not get.
    """

    suite: str
    suite_path: str
    schedule: str
    max_parallel: int
    retries: int
    trials: int
    rounds: int | None
    baseline: str | None
    arms: tuple[str, ...]
    left_out: tuple[str, ...]
    executions: tuple[DryRunExecution, ...]


class DryRunsDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/dry-runs/1"):
    """What `--dry-run --json` prints of several suites."""

    runs: tuple[DryRunDocument, ...]


def dry_run_document(plans: Iterable[Plan]) -> DryRunDocument | DryRunsDocument:
    """Return the document of one plan, or one that holds several."""
    documents = tuple(map(_plan_document, plans))
    return documents[0] if len(documents) == 1 else DryRunsDocument(runs=documents)


def _plan_document(plan: Plan) -> DryRunDocument:
    skills = (arm.skill for arm in plan.arms if arm.skill is not None)
    return DryRunDocument(
        suite=plan.suite.name,
        suite_path=str(plan.suite.source),
        schedule=plan.schedule,
        max_parallel=plan.max_parallel,
        retries=plan.retries,
        trials=plan.trial_count,
        rounds=plan.until.rounds if plan.until else None,
        baseline=plan.baseline,
        arms=tuple(dict.fromkeys(execution.arm for execution in plan.executions)),
        left_out=tuple(sorted({path for skill in skills for path in skill.left_out})),
        executions=tuple(map(_dry_run_execution, plan.executions)),
    )


def _dry_run_execution(execution: Execution) -> DryRunExecution:
    return DryRunExecution(
        case=execution.case.id,
        split=execution.case.split,
        runner=execution.runner.id,
        agent=execution.runner.agent,
        model=execution.runner.model,
        arm=execution.arm,
        trials=execution.trials,
        limits=execution.limits,
        workspace=execution.workspace.mode,
    )
