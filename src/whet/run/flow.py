"""The flow of a run: load, plan, execute, observe, grade, record, report.

    load     `settle` reads the suite and the settings                               plan/settle.py
    plan     `settle` decides what to run, or says everything that is wrong          plan/plan.py
    execute  `execute` runs each trial, `run_attempt` prepares and starts an agent   run/execute.py, run/trial.py
    observe  `run_agent` reads what the agent prints, `_look` what it changed        run/agent_session.py, run/trial.py
    grade    `grade` asks the graders, `run_trial` decides on the verdict            run/grading.py, run/trial.py
    record   `RunState.emit` writes each result to the journal at once,
             `record_results` writes results.json at the end                         run/conclude.py
    report   reporters see the same events, `report_results` gives the exit code     run/conclude.py

`whet run` is `run` below. `whet regrade` and `whet eval` call `perform` with an `Approach` of their own: they get to
the result of a trial in another way. `whet audit` carries out a plan with controls in the place of agents.
`whet explain` puts questions to the agent of one recorded attempt.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from whet.dataclass import dataclass
from whet.errors import UsageError
from whet.ground.mounts import private_mounts
from whet.ground.sandbox import Sandbox, hold_network, probe_early
from whet.ground.wardens import wardens
from whet.model.request import RunRequest, Settings
from whet.model.run import Plan, RunInfo
from whet.plan.settle import Planned, is_judged, settle

if TYPE_CHECKING:
    from whet.ground.secrets import Masker
    from whet.record.results import JournalResults
    from whet.run.conclude import Conclusion
    from whet.run.execute import RunTrial
    from whet.run.parts import RunParts
    from whet.run.run_state import RunState

# Returns warnings for the user; raises if the run cannot begin.
# Looks at the agents of a plan; the flag says that their models are played from cassettes.
Ready: TypeAlias = Callable[[Plan, Sandbox, bool], tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Approach:
    """How one kind of run differs from another."""

    # Brings a trial to its result: by running an agent, by calling a skill, or from a record.
    run_trial: RunTrial
    # Whether that starts the agents of the runners. An agent that judges may start anyway.
    starts_agents: bool = True
    # Checks what the run needs before there is a record; returns warnings.
    ready: Callable[[Sandbox, Masker], tuple[str, ...]] = lambda _, __: ()
    # What stays open from the first trial to the last, such as connections.
    around: Callable[[RunState, RunParts], AbstractAsyncContextManager[object]] = lambda *_: nullcontext()
    # Turns the results into an exit code; by the verdicts, if it is not given.
    conclude: Callable[[RunInfo, JournalResults], Conclusion] | None = None


def run(request: RunRequest, ready: Ready = lambda *_: ()) -> int:
    """Carry out *request* and return the exit code; *ready* is asked before anything is spent, and may refuse."""
    if request.dry_run:
        # Imported where it is used, as everything below: first the settings, so that what they start has time to start.
        from whet.plan.plan import describe_plan  # noqa: PLC0415

        looked = settle(request)
        refuse_ungated(looked, looked.plan)
        tell_lost(looked)
        sys.stderr.write("".join(f"warning: {notice}\n" for notice in (*looked.notices, *foreseen(looked))))
        sys.stdout.write("".join(f"{line}\n" for line in describe_plan(looked.plan)))
        return 0
    planned = settle(request, start_early)
    refuse_ungated(planned, planned.plan)
    tell_lost(planned)
    if planned.settings.on is not None:
        # Before controls: they are the first to start something.
        cluster_module().refuse_unfit([planned])
    tried = with_controls(planned)
    if isinstance(tried, int):
        return tried
    approach = approach_of(tried, ready)
    if tried.settings.on is not None:
        from whet.run.execute import interruptible  # noqa: PLC0415

        with interruptible():
            # Only here: Ray takes long to import.
            [(tried, approach)] = cluster_module().on_cluster([(tried, approach)])
    return perform(tried, approach)


def refuse_ungated(planned: Planned, plan: Plan) -> None:
    """Refuse a run that a gate is to decide on and that compares nothing, before it costs anything."""
    if planned.request.gate and plan.baseline is None:
        raise UsageError(
            "--gate compares arms, and this run has none to compare",
            hint="name two: --arm old=... --arm new=...; or leave it out, and ask for a rate: whet gate --min-rate 80",
        )


def cluster_module() -> ModuleType:
    """Import what runs trials on a cluster; raises if the extra is not installed."""
    try:
        return import_module("whet.run.cluster")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("ray", "cryptography"):
            raise
        raise UsageError("--on needs Ray, which is not installed", hint="pip install 'whet[ray]'") from error


def with_controls(planned: Planned) -> Planned | int:
    """Return the run without the cases that controls pass, if the settings ask for that; an int is an exit code."""
    if not planned.settings.controls or planned.earlier is not None:
        return planned
    from whet.run.controls import without_void_cases  # noqa: PLC0415

    return without_void_cases(planned, carry_out)


def approach_of(planned: Planned, ready: Ready) -> Approach:
    """Return how `whet run` brings trials to their results: by running agents."""
    from whet.run.cassettes import hold_cassettes, is_played  # noqa: PLC0415
    from whet.run.gateways import hold_routes  # noqa: PLC0415
    from whet.run.trial import run_trial  # noqa: PLC0415

    runners = [execution.runner for execution in planned.plan.executions]

    def look_around(sandbox: Sandbox, _: object) -> tuple[str, ...]:
        played = is_played(planned.settings)
        notes = (*hold_network(sandbox, runners), *hold_routes(runners, os.environ, sandbox, played=played))
        if planned.settings.on is None and sandbox.name != "container":
            _refuse_missing_programs(planned.plan)
        doubts = ready(planned.plan, sandbox, played)
        hold_cassettes(planned.settings, planned.plan.executions, os.environ, judged=is_judged(planned.plan))
        return (*notes, *doubts)

    return Approach(run_trial=run_trial, ready=look_around)


# Agents that start a program of yours.
_OF_YOURS = frozenset({"command", "acp"})


def _refuse_missing_programs(plan: Plan) -> None:
    if _OF_YOURS.isdisjoint(execution.runner.agent for execution in plan.executions):
        return
    from whet.run.readiness import refuse_missing_programs  # noqa: PLC0415 - the others have none to look for

    refuse_missing_programs(plan, _OF_YOURS, os.environ)


def foreseen(planned: Planned) -> tuple[str, ...]:
    """Return what would go wrong with a run that can be known without starting anything; raises if it is refused."""
    from whet.run.cassettes import foresee_cassettes  # noqa: PLC0415 - only a dry run asks

    plan = planned.plan
    return tuple(foresee_cassettes(planned.settings, plan, os.environ, judged=is_judged(plan)))


def tell_lost(planned: Planned) -> None:
    """Say what of the suite is not carried over, if it was written for another tool."""
    sys.stderr.write("".join(f"{lost}\n" for lost in planned.suite.lost))


def carry_out(planned: Planned, conclude: Callable[[RunInfo, JournalResults], Conclusion]) -> int:
    """Run an agent, or what is in its place, on every trial, and let *conclude* give the exit code."""
    from whet.run.trial import run_trial  # noqa: PLC0415

    return perform(planned, Approach(run_trial=run_trial, conclude=conclude))


def start_early(settings: Settings) -> None:
    """Start what takes as long as loading the suite, and importing the rest of whet: the nursery and the probe."""
    # Before the nursery starts: its wardens have to see what we mount.
    private_mounts()
    wardens.start()
    probe_early(settings.sandbox)


def _import_what_follows() -> None:
    for module in ("whet.run.conclude", "whet.report.ending"):
        import_module(module)


def perform(planned: Planned, approach: Approach) -> int:
    """Bring every trial of a plan to its result, record and report; return the exit code."""
    import anyio  # noqa: PLC0415

    from whet.ground.process import meanwhile  # noqa: PLC0415
    from whet.run.execute import LOOP, execute, interruptible, single_errors, undisturbed  # noqa: PLC0415
    from whet.run.start import ready_run, start_run  # noqa: PLC0415

    with (
        interruptible(),
        start_run(ready_run(planned, approach.ready, starts_agents=approach.starts_agents)) as (state, parts),
    ):
        # The command line switched it off: collecting while everything is imported takes a tenth of the time.
        gc.freeze()
        gc.enable()
        meanwhile(_import_what_follows)
        with single_errors():
            anyio.run(execute, [(state, parts)], approach.run_trial, approach.around, backend_options=LOOP)
        with undisturbed():
            # Imported while the first agent ran.
            from whet.run.conclude import by_gate, conclude_by_verdicts, record_results, report_results  # noqa: PLC0415

            results = record_results(state)
            conclude = approach.conclude
            conclusion = conclude(state.info, results) if conclude else conclude_by_verdicts(results)
            return by_gate(planned, state.info, state.reporters, report_results(state, results, conclusion))
