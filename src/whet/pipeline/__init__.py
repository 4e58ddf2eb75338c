"""The whole flow: load, plan, execute, observe, grade, record, report."""

from __future__ import annotations

import sys

from whet.engine.trial import run_trial
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


def run(request: RunRequest) -> int:
    """Carry out *request*; the exit code."""
    planned = settle(request)
    if request.dry_run:
        sys.stdout.write("".join(f"{line}\n" for line in describe_plan(planned.plan)))
        return PASSED
    runners = [execution.runner for execution in planned.plan.executions]
    return carry_out(planned, Approach(trying=run_trial, ready=lambda sandbox, _: hold_network(sandbox, runners)))
