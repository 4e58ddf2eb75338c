"""The whole flow: load, plan, execute, observe, grade, record, report."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeAlias

from whet.ground.sandbox import Sandbox, hold_network
from whet.model.request import RunRequest
from whet.model.run import Plan
from whet.plan.plan import describe_plan
from whet.plan.settle import settle
from whet.run.execute import PASSED, Approach, carry_out
from whet.run.trial import run_trial

# What a person should know before a run; raises where it cannot begin.
Ready: TypeAlias = Callable[[Plan, Sandbox], tuple[str, ...]]


def run(request: RunRequest, ready: Ready = lambda _, __: ()) -> int:
    """Carry out *request*; the exit code. *ready* is asked before anything is spent, and may refuse."""
    planned = settle(request)
    if request.dry_run:
        sys.stdout.write("".join(f"{line}\n" for line in describe_plan(planned.plan)))
        return PASSED
    runners = [execution.runner for execution in planned.plan.executions]

    def look_around(sandbox: Sandbox, _: object) -> tuple[str, ...]:
        return (*hold_network(sandbox, runners), *ready(planned.plan, sandbox))

    return carry_out(planned, Approach(trying=run_trial, ready=look_around, starts_agents=True))
