"""Run several suites in one go: one plan, one screen, one exit code; each suite has a record of its own."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from os.path import relpath
from pathlib import Path
from typing import Any

import anyio
from msgspec.structs import replace

from whet import exit_codes
from whet.errors import NothingOutstanding, NothingSelected, Problem, SuiteError, UnknownName, UsageError
from whet.model.request import RunRequest
from whet.model.run import RunInfo
from whet.model.run_events import RunEnded, RunEvent, RunStarted
from whet.plan.load import PlannedRun, notices_on_cost
from whet.plan.outstanding import nothing_outstanding
from whet.plan.plan import describe_plan, must_know, pieces, take_shard
from whet.plan.resume import ResumedBatch
from whet.reading.text import quoted
from whet.record import folder as folders
from whet.record.batches import write_batch
from whet.record.results import write_results
from whet.record.run_file import PileFacts
from whet.report.contract import Reporters
from whet.run.conclude import by_gate, conclude_by_verdicts, final_code, record_results
from whet.run.flow import (
    agent_run_kind,
    cluster_module,
    early_work,
    foresee_problems,
    load_and_plan,
    print_dry_run,
    refuse_ungated,
    report_changes,
    report_unsupported,
    with_controls,
)
from whet.run.other._joined_runs import JoinedResults, Joining, Part, join_plans, parts_of
from whet.run.schedule import LOOP, Job, execute, ignore_signals, interruptible, nothing_after, single_errors
from whet.run.start import hint_how_to_resume, open_reporters, ready_run, start_run
from whet.run.state import RunState, now


def run_batch(requests: Sequence[RunRequest], earlier_batch: ResumedBatch | None = None) -> int:
    """Carry out all *requests*, one for each suite; return the exit code. *earlier_batch* is the batch to resume."""
    parts = parts_of(_plan_runs(requests))
    refuse_ungated(parts[0].planned, join_plans(parts))
    for part in parts:
        report_unsupported(part.planned)
        report_changes(part.planned)
    if requests[0].dry_run:
        for part in parts:
            sys.stderr.write("".join(f"warning: {part.name}: {notice}\n" for notice in foresee_problems(part.planned)))
        plans = [replace(part.planned.plan, suite=replace(part.planned.plan.suite, name=part.name)) for part in parts]
        print_dry_run(parts[0].planned, plans, (line for plan in plans for line in (*describe_plan(plan), "")))
        return exit_codes.DONE
    if any(part.planned.settings.on is not None for part in parts):
        cluster_module().refuse_unfit([part.planned for part in parts])
    outcomes = [with_controls(part.planned) for part in parts]
    planned_runs = [outcome for outcome in outcomes if not isinstance(outcome, int)]
    if len(planned_runs) < len(outcomes):
        return exit_codes.INTERRUPTED
    return _perform(parts_of(planned_runs), earlier_batch.folder if earlier_batch else None)


def _plan_runs(requests: Sequence[RunRequest]) -> list[PlannedRun]:
    """Plan every run, and say everything that is wrong with any; a suite of which nothing is selected is left out."""
    planned_runs: list[PlannedRun] = []
    problems: list[Problem] = []
    empty: list[NothingSelected | UnknownName] = []
    unknown: list[list[UnknownName]] = []
    for request in requests:
        unknown.append([])
        try:
            # All suites are one pile to deal from.
            full_request = replace(request, selection=replace(request.selection, shard=None))
            planned_runs.append(_plan_by_valid_names(full_request if request.resume is None else request, unknown[-1]))
        except SuiteError as error:
            problems += error.problems
        except (NothingSelected, UnknownName) as error:
            empty.append(error)
    if problems:
        raise SuiteError(problems)
    _refuse_unknown(unknown)
    shard = requests[0].selection.shard
    dealt = planned_runs if shard is None else list(_deal_shards(planned_runs, *shard))
    if not dealt:
        _end_if_all_measured(empty)
        raise empty[0] if empty else NothingSelected("this shard is empty", hint="use fewer shards")
    return dealt


def _end_if_all_measured(empty: Sequence[UsageError]) -> None:
    """Raise that nothing is outstanding, if that is why nothing is left to run of several suites."""
    done = [error for error in empty if isinstance(error, NothingOutstanding)]
    if done:
        cases, failed = sum(error.cases for error in done), sum(error.failed for error in done)
        raise NothingOutstanding(nothing_outstanding(cases, failed, len(done)))


def _plan_by_valid_names(request: RunRequest, unknown: list[UnknownName]) -> PlannedRun:
    """Plan one run of several by the names that its suite knows, because others may be those of another suite."""
    try:
        return load_and_plan(request)
    except UnknownName as error:
        unknown.append(error)
        part = f"{error.kind}s"
        names: tuple[str, ...] = getattr(request.selection, part, ())
        selection_part: dict[str, Any] = {part: tuple(name for name in names if name not in error.names)}
        if not selection_part[part]:
            raise
        return _plan_by_valid_names(replace(request, selection=replace(request.selection, **selection_part)), unknown)


def _refuse_unknown(unknown: Sequence[Sequence[UnknownName]]) -> None:
    """Refuse names that no suite knows."""
    errors = [error for suite_errors in unknown for error in suite_errors]
    miss_counts = Counter((error.kind, name) for error in errors for name in error.names)
    for error in errors:
        valid_names = dict.fromkeys(
            name for candidate in errors if candidate.kind == error.kind for name in candidate.known
        )
        must_know(
            error.kind,
            [name for name in error.names if miss_counts[error.kind, name] == len(unknown)],
            list(valid_names),
        )


def _deal_shards(planned_runs: Sequence[PlannedRun], number: int, shards: int) -> Iterator[PlannedRun]:
    """Yield the part of each run that belongs to a shard of all of them; it is also a shard of the run itself."""
    before = 0
    names = tuple(part.name for part in parts_of(planned_runs))
    for planned_run, name in zip(planned_runs, names, strict=True):
        plan, selection = planned_run.plan, planned_run.request.selection
        together = plan.baseline is not None
        units = len(pieces(plan.executions, together=together))
        suite_shard = ((number - 1 - before) % shards + 1, shards)
        before += units
        if suite_shard[0] <= units:
            yield replace(
                planned_run,
                plan=replace(
                    plan,
                    executions=take_shard(list(plan.executions), suite_shard, together=together),
                    whole=plan.executions,
                ),
                request=replace(planned_run.request, selection=replace(selection, shard=suite_shard)),
                origin=replace(planned_run.origin, pile=PileFacts(suites=names, suite=name, number=number)),
            )


def _perform(parts: Sequence[Part], folder: Path | None) -> int:
    """Start every run, bring all trials to their results, and report on all of them together."""
    began = time.monotonic()
    with interruptible(), ExitStack() as stack:
        kinds = [agent_run_kind(part.planned) for part in parts]
        if any(part.planned.settings.on is not None for part in parts):
            runs = zip([part.planned for part in parts], kinds, strict=True)
            cluster_runs = cluster_module().on_cluster(list(runs))
            parts = [
                replace(part, planned=planned_run) for part, (planned_run, _) in zip(parts, cluster_runs, strict=True)
            ]
            kinds = [run_kind for _, run_kind in cluster_runs]
        first = parts[0].planned
        ready_runs = [
            ready_run(part.planned, kind.ready, starts_agents=kind.starts_agents)
            for part, kind in zip(parts, kinds, strict=True)
        ]
        if folder is None:
            for place in dict.fromkeys(part.planned.settings.output_dir for part in parts):
                # Where one of them cannot be kept, none begins.
                folders.create_run_folder(place).rmdir()
        joining = Joining(stack.enter_context(open_reporters(first)))
        batch = folder or folders.create_run_folder(first.settings.output_dir)
        jobs: list[Job] = []
        states: list[RunState] = []
        for part, kind in zip(parts, ready_runs, strict=True):
            listen = partial(_PartReporters, part, joining, batch)
            jobs.append(stack.enter_context(start_run(kind, listen, states)))
        write_batch(batch, [(part.name, state.info.run_dir) for part, state in zip(parts, states, strict=True)])
        folders.point_latest(batch)
        info = _info(parts, states, batch)
        stack.enter_context(hint_how_to_resume(info, first))
        joint_plan = join_plans(parts)
        joining.begin(
            RunStarted(info=info, plan=joint_plan, done=joining.done),
            (*notices_on_cost(first, joint_plan), *_unused_reporters(parts)),
        )
        with single_errors():
            # All suites are run in the same way.
            early = early_work(context for _, context in jobs)
            after = next((kind.after for kind in kinds if kind.after is not nothing_after), nothing_after)
            anyio.run(execute, jobs, kinds[0].run_trial, kinds[0].around, early, after, backend_options=LOOP)
        with ignore_signals():
            return _conclude(parts, states, joining, info, began)


def _unused_reporters(parts: Sequence[Part]) -> Iterator[str]:
    """Yield a warning if the settings of some suites name other reporters than those of the first."""
    first = parts[0].planned.settings
    if part_names := [part.name for part in parts if part.planned.settings.reporters != first.reporters]:
        yield f"{parts[0].name} decides on the reporters of all suites: those of {quoted(part_names)} are not used"


class _PartReporters(Reporters):
    """Passes on the events of one run of a batch."""

    def __init__(self, part: Part, joining: Joining, batch: Path, run_dir: Path) -> None:
        super().__init__((), stderr=sys.stderr)
        self._take = partial(joining.take, part, place=relpath(run_dir, batch))

    def __call__(self, event: RunEvent) -> None:
        """Pass *event* on."""
        self._take(event)


def _info(parts: Sequence[Part], states: Sequence[RunState], batch: Path) -> RunInfo:
    """Return what identifies the batch: as its first run, but for its name and place."""
    first = states[0].info
    files = dict.fromkeys(file for state in states for file in state.info.settings_files)
    plan = join_plans(parts)
    return replace(
        first,
        run_id=batch.name,
        run_dir=batch,
        suite=plan.suite.name,
        suite_path=plan.suite.source,
        settings_files=tuple(files),
    )


def _conclude(parts: Sequence[Part], states: Sequence[RunState], joining: Joining, info: RunInfo, began: float) -> int:
    """Write the results of each run and of all together, and report."""
    run_results = [
        (part, record_results(state), relpath(state.info.run_dir, info.run_dir))
        for part, state in zip(parts, states, strict=True)
    ]
    # A run until decided may have ended before its plan did.
    final_parts = [replace(part, planned=replace(part.planned, plan=results.plan)) for part, results, _ in run_results]
    results = JoinedResults(join_plans(final_parts), run_results, time.monotonic() - began)
    was_interrupted = any(state.interrupted for state in states)
    write_results(info, results, interrupted=was_interrupted, ended_at=now())
    joining.reporters(RunEnded(info=info, results=results, interrupted=was_interrupted))
    codes = {conclude_by_verdicts(results_of_run).code for _, results_of_run, _ in run_results}
    code = next((code for code in (exit_codes.FAILED, exit_codes.ERRORED) if code in codes), exit_codes.DONE)
    ended_with = final_code(code, was_interrupted=was_interrupted, reporters=joining.reporters)
    return by_gate(parts[0].planned, info, joining.reporters, ended_with)
