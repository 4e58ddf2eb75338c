"""The whole flow: load, plan, execute, observe, grade, record, report."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeAlias

from whet.engine.trial import run_trial
from whet.model.run import Plan
from whet.pipeline.carry_out import (
    ERRORED,
    FAILED,
    INTERRUPTED,
    PASSED,
    Approach,
    Concluded,
    carry_out,
    single_errors,
)
from whet.pipeline.parts import make_masker
from whet.pipeline.settle import Planned, settle
from whet.plan import RunRequest, describe_plan
from whet.sandbox.base import Sandbox
from whet.sandbox.choose import hold_network

__all__ = [
    "ERRORED",
    "FAILED",
    "INTERRUPTED",
    "PASSED",
    "Approach",
    "Concluded",
    "Planned",
    "carry_out",
    "make_masker",
    "run",
    "single_errors",
]

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

    return carry_out(planned, Approach(trying=run_trial, ready=look_around))
