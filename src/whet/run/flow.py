"""The flow of a run: load, plan, execute, observe, grade, record, report.

    load     `settle` reads the suite and the settings                               plan/settle.py
    plan     `settle` decides what to run, or says everything that is wrong          plan/plan.py
    execute  `execute` runs each trial, `run_attempt` prepares and starts an agent   run/execute.py, run/trial.py
    observe  `run_agent` reads what the agent prints, `_look` what it changed        run/agent_session.py, run/trial.py
    grade    `grade` asks the graders, `run_trial` decides on the verdict            run/grading.py, run/trial.py
    record   `RunState.emit` writes each result to the journal at once,
             `record_results` writes results.json at the end                         run/run_state.py
    report   reporters see the same events, `report_results` gives the exit code     run/run_state.py

`whet run` is `run` below. `whet regrade` and `whet eval` call `perform` with an `Approach` of their own: they get to
the result of a trial in another way. `whet explain` puts questions to the agent of one recorded attempt.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TypeAlias

import anyio

from whet.dataclass import dataclass
from whet.ground.sandbox import Sandbox, hold_network
from whet.ground.secrets import Masker
from whet.model.request import RunRequest
from whet.model.run import Plan, RunInfo, TrialResult
from whet.model.session import Usage
from whet.plan.plan import describe_plan
from whet.plan.settle import Planned, settle
from whet.record.results import JournalResults
from whet.run.execute import RunTrial, execute, interruptible, single_errors, undisturbed
from whet.run.parts import RunParts
from whet.run.run_state import PASSED, Conclusion, conclude_by_verdicts, record_results, report_results
from whet.run.start import start_run
from whet.run.trial import run_trial

# Returns warnings for the user; raises if the run cannot begin.
Ready: TypeAlias = Callable[[Plan, Sandbox], tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Approach:
    """How one kind of run differs from another."""

    # Brings a trial to its result: by running an agent, by calling a skill, or from a record.
    run_trial: RunTrial
    # Checks what the run needs before there is a record; returns warnings.
    ready: Callable[[Sandbox, Masker], tuple[str, ...]] = lambda _, __: ()
    # What stays open from the first trial to the last, such as connections.
    around: Callable[[RunParts], AbstractAsyncContextManager[object]] = lambda _: nullcontext()
    # Turns the results into an exit code.
    conclude: Callable[[RunInfo, JournalResults], Conclusion] = lambda _, results: conclude_by_verdicts(results)
    # What a trial used outside of its own session, such as a judge; counts towards --max-cost.
    extra_usage: Callable[[TrialResult], Usage] | None = None


def run(request: RunRequest, ready: Ready = lambda _, __: ()) -> int:
    """Carry out *request* and return the exit code; *ready* is asked before anything is spent, and may refuse."""
    planned = settle(request)
    if request.dry_run:
        sys.stdout.write("".join(f"{line}\n" for line in describe_plan(planned.plan)))
        return PASSED
    runners = [execution.runner for execution in planned.plan.executions]

    def look_around(sandbox: Sandbox, _: object) -> tuple[str, ...]:
        return (*hold_network(sandbox, runners), *ready(planned.plan, sandbox))

    return perform(planned, Approach(run_trial=run_trial, ready=look_around))


@interruptible()
def perform(planned: Planned, approach: Approach) -> int:
    """Bring every trial of a plan to its result, record and report; return the exit code."""
    with start_run(planned, approach.ready, approach.extra_usage) as (state, parts):
        with single_errors():
            anyio.run(execute, state, parts, approach.run_trial, approach.around)
        with undisturbed():
            results = record_results(state)
            return report_results(state, results, approach.conclude(state.info, results))
