"""The flow of a run: load, plan, execute, observe, grade, record, report.

    load     `load_inputs` reads the settings, `load_suite` the suite                plan/load.py, suites/format.py
    plan     `plan_run` decides what to run, `check_run` says what is wrong with it  plan/load.py, plan/plan.py
    open     `ready_run` looks at what may refuse the run, `start_run` begins it     run/start.py
    execute  `execute` runs each trial, `run_attempt` prepares and starts an agent   run/schedule.py, run/attempt/
    observe  `run_agent` reads what the agent prints, `_look` what it changed        run/attempt/session.py, trial.py
    grade    `grade` asks the graders, `run_trial` decides on the verdict            run/attempt/grading.py, trial.py
    record   `RunState.emit` writes each result to the journal at once,
             `record_results` writes results.json at the end                         run/conclude.py
    report   reporters see the same events, `report_results` gives the exit code     run/conclude.py

`whet run` is `run` below. `whet regrade` and `whet eval` call `perform` with an `RunKind` of their own: they get to
the result of a trial in another way. `whet audit` carries out a plan with controls in the place of agents.
`whet explain` puts questions to the agent of one recorded attempt.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct

from whet import exit_codes, plugins
from whet.errors import UsageError
from whet.gateway.gateways import require_routes
from whet.gateway.sources.cassette_folders import foresee_cassettes, require_cassettes
from whet.model import codec
from whet.model.request import RunRequest, Settings, compares_answers
from whet.model.run import Plan, RunInfo
from whet.plan.dry_run import dry_run_document
from whet.plan.judge import is_judged
from whet.plan.load import PlannedRun, check_run, load_inputs, plan_run
from whet.plan.plan import describe_plan
from whet.report.choose import prints_json
from whet.report.screen import Screen
from whet.run.attempt.trial import run_trial
from whet.run.schedule import LOOP, execute, ignore_signals, interruptible, nothing_after, single_errors
from whet.run.start import ready_run, start_run
from whet.sandbox.contract import Sandbox, probe_early, require_network_off
from whet.sandbox.process.pool import supervisors
from whet.suites.format import load_suite
from whet.version import install_command
from whet.workspace.mounts import private_mounts

if TYPE_CHECKING:
    from whet.record.results import JournalResults
    from whet.run.conclude import Conclusion
    from whet.run.context import RunContext
    from whet.run.schedule import After, RunTrial
    from whet.run.state import RunState
    from whet.secrets import Masker


class RunKind(Struct, frozen=True, kw_only=True):
    """How one kind of run differs from another."""

    # Brings a trial to its result: by running an agent, by calling a skill, or from a record.
    run_trial: RunTrial
    # Whether that starts the agents of the runners. An agent that judges may start anyway.
    starts_agents: bool = True
    # Checks what the run needs before there is a record; returns warnings.
    ready: Callable[[Sandbox, Masker], tuple[str, ...]] = lambda _, __: ()
    # What stays open from the first trial to the last, such as connections.
    around: Callable[[RunState, RunContext], AbstractAsyncContextManager[object]] = lambda *_: nullcontext()
    # What is done once all trials have ended, while their agents could still be asked.
    after: After = nothing_after
    # Turns the results into an exit code; by the verdicts, if it is not given.
    conclude: Callable[[RunInfo, JournalResults], Conclusion] | None = None


def run(request: RunRequest) -> int:
    """Carry out *request* and return the exit code."""
    planned_run = load_and_plan(request)
    refuse_ungated(planned_run, planned_run.plan)
    report_unsupported(planned_run)
    report_changes(planned_run)
    if request.dry_run:
        return _describe(planned_run)
    if planned_run.settings.on is not None:
        # Before controls: they are the first to start something.
        cluster_module().refuse_unfit([planned_run])
    checked_run = with_controls(planned_run)
    if isinstance(checked_run, int):
        return checked_run
    kind = agent_run_kind(checked_run)
    if checked_run.settings.on is not None:
        with interruptible():
            # Only here: Ray takes long to import.
            [(checked_run, kind)] = cluster_module().on_cluster([(checked_run, kind)])
    return perform(checked_run, kind)


def load_and_plan(request: RunRequest) -> PlannedRun:
    """Load the settings and the suite, plan the run, and find everything that is wrong with it."""
    inputs = load_inputs(request)
    if not request.dry_run:
        start_early(inputs.settings)
    suite = load_suite(inputs.suite_file, inputs.request.reading)
    return check_run(plan_run(inputs, suite))


def _describe(planned_run: PlannedRun) -> int:
    sys.stderr.write(
        "".join(f"warning: {notice}\n" for notice in (*planned_run.notices, *foresee_problems(planned_run)))
    )
    print_dry_run(planned_run, [planned_run.plan], describe_plan(planned_run.plan))
    return exit_codes.DONE


def print_dry_run(planned_run: PlannedRun, plans: Iterable[Plan], lines: Iterable[str]) -> None:
    """Print *lines* for people, or the document of *plans* if the json reporter would write to stdout."""
    if prints_json((*planned_run.settings.reporters, *planned_run.request.more_reporters)):
        text = codec.encode_pretty(dry_run_document(plans)).decode()
    else:
        text = Screen(sys.stdout, os.environ).text(lines)
    sys.stdout.write(text)


def refuse_ungated(planned_run: PlannedRun, plan: Plan) -> None:
    """Refuse a run that a gate is to decide on and that compares nothing, before it costs anything."""
    if planned_run.request.gate and plan.baseline is None:
        raise UsageError(
            "--gate compares arms, and this run has none to compare",
            hint="name two: --arm old=... --arm new=...; or leave it out, and ask for a rate: whet gate --min-rate 80",
        )


def cluster_module() -> ModuleType:
    """Import what runs trials on a cluster; raises if the extra is not installed."""
    try:
        return import_module("whet.cluster.driver")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("ray", "cryptography"):
            raise
        raise UsageError("--on needs Ray, which is not installed", hint=install_command("ray")) from error


def with_controls(planned_run: PlannedRun) -> PlannedRun | int:
    """Return the run without the cases that controls pass, if the settings ask for that; an int is an exit code."""
    if not planned_run.settings.controls or planned_run.earlier is not None:
        return planned_run
    from whet.run.controls import without_void_cases

    return without_void_cases(planned_run, carry_out)


def agent_run_kind(planned_run: PlannedRun) -> RunKind:
    """Return how `whet run` brings trials to their results: by running agents."""
    return RunKind(run_trial=run_trial, ready=partial(_check_agents, planned_run), after=after_trials(planned_run))


def after_trials(planned_run: PlannedRun) -> After:
    """Return what a run does once its trials have ended: most do nothing."""
    if not compares_answers(planned_run.plan):
        return nothing_after
    # Only here: most runs compare no answers.
    after: After = import_module("whet.run.pairing.after_trials").ask_about_pairs
    return after


def _check_agents(planned_run: PlannedRun, sandbox: Sandbox, _: Masker) -> tuple[str, ...]:
    """Refuse agents that cannot run in *sandbox*, before anything is spent; return warnings."""
    plan, settings = planned_run.plan, planned_run.settings
    runners = [execution.runner for execution in plan.executions]
    agents = {runner.agent for runner in runners}
    is_replay = settings.plays_all
    warnings = [*require_network_off(sandbox, runners), *require_routes(runners, os.environ, sandbox, played=is_replay)]
    if any(getattr(plugins.find("agents", agent), "has_program", True) for agent in agents):
        # Only here: agents that are part of whet have no program to look for.
        from whet.run.readiness import refuse_unready_agents

        is_here = settings.on is None and not sandbox.in_image
        warnings += refuse_unready_agents(plan, sandbox, os.environ, is_replay=is_replay, is_here=is_here)
    require_cassettes(settings, plan.executions, os.environ, judged=is_judged(plan))
    return tuple(warnings)


def foresee_problems(planned_run: PlannedRun) -> tuple[str, ...]:
    """Return what would go wrong with a run that can be known without starting anything; raises if it is refused."""
    plan = planned_run.plan
    return tuple(foresee_cassettes(planned_run.settings, plan, os.environ, judged=is_judged(plan)))


def report_unsupported(planned_run: PlannedRun) -> None:
    """Say what of the suite is not carried over, if it was written for another tool."""
    sys.stderr.write("".join(f"{loss}\n" for loss in planned_run.suite.lost))


def report_changes(planned_run: PlannedRun) -> None:
    """Say of each case why it is run, if only what has changed is."""
    status = planned_run.status
    if status is not None:
        lines = (status.headline, *(f"  {line}" for line in status.lines()))
        sys.stderr.write(Screen(sys.stderr, os.environ).text(lines))
        sys.stderr.write("".join(f"warning: {unread}\n" for unread in status.unread))


def carry_out(planned_run: PlannedRun, conclude: Callable[[RunInfo, JournalResults], Conclusion]) -> int:
    """Run an agent, or what is in its place, on every trial, and let *conclude* give the exit code."""
    return perform(planned_run, RunKind(run_trial=run_trial, conclude=conclude))


def start_early(settings: Settings) -> None:
    """Start what takes as long as loading the suite, and importing the rest of whet: the fork server and the probe."""
    # Before the fork server starts: its supervisors have to see what we mount.
    private_mounts()
    supervisors.start()
    probe_early(settings.sandbox)


def early_work(runs: Iterable[RunContext]) -> list[Callable[[], object]]:
    """Return what is done while the first agents run, and whet would only wait: workers for checks, and imports."""
    workers = [grader.warm_up for context in runs for grader in context.graders.values()]
    imports = [partial(import_module, name) for name in ("whet.run.conclude", "whet.report.terminal._ending")]
    return [*workers, *imports]


def perform(planned_run: PlannedRun, kind: RunKind) -> int:
    """Bring every trial of a plan to its result, record and report; return the exit code."""

    with (
        interruptible(),
        start_run(ready_run(planned_run, kind.ready, starts_agents=kind.starts_agents)) as (state, context),
    ):
        # The command line switched it off: collecting while everything is imported takes a tenth of the time.
        gc.freeze()
        gc.enable()
        early = early_work([context]) if kind.starts_agents else []
        with single_errors():
            anyio.run(execute, [(state, context)], kind.run_trial, kind.around, early, kind.after, backend_options=LOOP)
        with ignore_signals():
            # Imported while the first agent ran.
            from whet.run.conclude import by_gate, conclude_by_verdicts, record_results, report_results

            results = record_results(state)
            conclude = kind.conclude
            conclusion = conclude(state.info, results) if conclude else conclude_by_verdicts(results)
            return by_gate(planned_run, state.info, state.reporters, report_results(state, results, conclusion))
