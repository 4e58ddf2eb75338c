"""A plan for a person to read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from whet.model.run import Execution, Plan
from whet.plan.words import counted


def describe_plan(plan: Plan) -> list[str]:
    """The plan for a person to read: a line of totals, the schedule, and each execution with what is expected of it."""
    executions = plan.executions
    cases = len({execution.case.id for execution in executions})
    runners = len({execution.runner.id for execution in executions})
    rows = [_row(execution) for execution in executions]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    matrix = f"{counted(cases, 'case')} on {counted(runners, 'runner')}"
    totals = f"{counted(len(executions), 'execution')}, {counted(plan.trial_count, 'trial')}"
    retries = counted(plan.retries, "retry", "retries")
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


def _row(execution: Execution) -> tuple[str, str, str, str]:
    limits = execution.limits
    parts = [counted(execution.trials, "trial"), f"{limits.timeout_s:g} s"]
    if limits.max_steps is not None:
        parts.append(f"at most {counted(limits.max_steps, 'step')}")
    if limits.budget_usd is not None:
        parts.append(f"at most ${limits.budget_usd:g}")
    runner = execution.runner
    target = f"{runner.agent} {runner.model}" if runner.model else runner.agent
    variant = "" if execution.variant == "default" else f"/{execution.variant}"
    where = execution.workspace.mode if execution.workspace.cwd is None else f"shared {execution.workspace.cwd}"
    return execution.case.id, f"{runner.id}{variant}", f"({target})", ", ".join((*parts, where))
