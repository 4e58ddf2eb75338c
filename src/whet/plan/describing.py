"""A plan for a person to read."""

from __future__ import annotations

from whet.model.run import Execution, Plan
from whet.plan.words import counted


def describe_plan(plan: Plan) -> list[str]:
    """The plan for a person to read: a line of totals, the schedule, and each execution."""
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
        *("  ".join(cell.ljust(width) for cell, width in zip(row, (*widths, 0), strict=True)) for row in rows),
    ]


def _row(execution: Execution) -> tuple[str, str, str, str]:
    limits = execution.limits
    parts = [counted(execution.trials, "trial"), f"{limits.timeout_s:g} s"]
    if limits.max_steps is not None:
        parts.append(f"at most {counted(limits.max_steps, 'step')}")
    runner = execution.runner
    target = f"{runner.agent} {runner.model}" if runner.model else runner.agent
    variant = "" if execution.variant == "default" else f"/{execution.variant}"
    where = execution.workspace.mode if execution.workspace.cwd is None else f"shared {execution.workspace.cwd}"
    return execution.case.id, f"{runner.id}{variant}", f"({target})", ", ".join((*parts, where))
