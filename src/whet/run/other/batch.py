"""Run several suites in one go: one plan, one screen, one exit code; each suite has a record of its own."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from os.path import relpath
from pathlib import Path
from typing import Any

import anyio

from whet.errors import NothingSelected, Problem, SuiteError, UnknownName
from whet.model.event import RunEnded, RunEvent, RunStarted
from whet.model.request import RunRequest
from whet.model.run import RunInfo
from whet.plan.plan import describe_plan, must_know, pieces, sharded
from whet.plan.resume import ResumedBatch
from whet.plan.settle import Planned, notices_on_cost, settle
from whet.reading.text import quoted
from whet.record import folder as folders
from whet.record.batches import write_batch
from whet.record.results import write_results
from whet.record.run_file import PileFacts
from whet.report.reporter import Reporters
from whet.run.conclude import by_gate, conclude_by_verdicts, final_code, record_results
from whet.run.execute import LOOP, execute, interruptible, single_errors, undisturbed
from whet.run.flow import (
    Ready,
    approach_of,
    cluster_module,
    foreseen,
    refuse_ungated,
    start_early,
    tell_lost,
    with_controls,
)
from whet.run.joined import JoinedResults, Joining, Part, joined_plan, parts_of
from whet.run.run_state import ERRORED, FAILED, INTERRUPTED, PASSED, RunState, now
from whet.run.start import hint_how_to_resume, open_reporters, ready_run, start_run


def run_batch(requests: Sequence[RunRequest], ready: Ready, resumed: ResumedBatch | None = None) -> int:
    """Carry out all *requests*, one for each suite, and return the exit code; *resumed* is the batch to go on with."""
    parts = parts_of(_settled(requests))
    refuse_ungated(parts[0].planned, joined_plan(parts))
    for part in parts:
        tell_lost(part.planned)
    if requests[0].dry_run:
        for part in parts:
            sys.stderr.write("".join(f"warning: {part.name}: {notice}\n" for notice in foreseen(part.planned)))
        for part in parts:
            plan = part.planned.plan
            named = replace(plan, suite=replace(plan.suite, name=part.name))
            sys.stdout.write("".join(f"{line}\n" for line in (*describe_plan(named), "")))
        return PASSED
    if any(part.planned.settings.on is not None for part in parts):
        cluster_module().refuse_unfit([part.planned for part in parts])
    tried = [with_controls(part.planned) for part in parts]
    planned = [each for each in tried if not isinstance(each, int)]
    if len(planned) < len(tried):
        return INTERRUPTED
    return _perform(parts_of(planned), ready, resumed.folder if resumed else None)


def _settled(requests: Sequence[RunRequest]) -> list[Planned]:
    """Plan every run, and say everything that is wrong with any; a suite of which nothing is selected is left out."""
    planned: list[Planned] = []
    problems: list[Problem] = []
    empty: list[NothingSelected | UnknownName] = []
    unknown: list[list[UnknownName]] = []
    for request in requests:
        unknown.append([])
        try:
            # All suites are one pile to deal from.
            whole = replace(request, selection=replace(request.selection, shard=None))
            planned.append(_settled_by_known(whole if request.resume is None else request, unknown[-1]))
        except SuiteError as error:
            problems += error.problems
        except (NothingSelected, UnknownName) as error:
            empty.append(error)
    if problems:
        raise SuiteError(problems)
    _refuse_unknown(unknown)
    shard = requests[0].selection.shard
    dealt = planned if shard is None else list(_dealt(planned, *shard))
    if not dealt:
        raise empty[0] if empty else NothingSelected("this shard is empty", hint="use fewer shards")
    return dealt


def _settled_by_known(request: RunRequest, unknown: list[UnknownName]) -> Planned:
    """Plan one run of several by the names that its suite knows, because others may be those of another suite."""
    try:
        return settle(request, start_early)
    except UnknownName as error:
        unknown.append(error)
        part = f"{error.kind}s"
        asked: tuple[str, ...] = getattr(request.selection, part, ())
        known: dict[str, Any] = {part: tuple(name for name in asked if name not in error.names)}
        if not known[part]:
            raise
        return _settled_by_known(replace(request, selection=replace(request.selection, **known)), unknown)


def _refuse_unknown(unknown: Sequence[Sequence[UnknownName]]) -> None:
    """Refuse names that no suite knows."""
    errors = [error for own in unknown for error in own]
    missed = Counter((error.kind, name) for error in errors for name in error.names)
    for error in errors:
        known = dict.fromkeys(name for each in errors if each.kind == error.kind for name in each.known)
        must_know(error.kind, [name for name in error.names if missed[error.kind, name] == len(unknown)], list(known))


def _dealt(planned: Sequence[Planned], number: int, shards: int) -> Iterator[Planned]:
    """Yield the part of each run that belongs to a shard of all of them; it is also a shard of the run itself."""
    before = 0
    names = tuple(part.name for part in parts_of(planned))
    for each, name in zip(planned, names, strict=True):
        plan, selection = each.plan, each.request.selection
        together = plan.baseline is not None
        units = len(pieces(plan.executions, together=together))
        own = ((number - 1 - before) % shards + 1, shards)
        before += units
        if own[0] <= units:
            yield replace(
                each,
                plan=replace(
                    plan, executions=sharded(list(plan.executions), own, together=together), whole=plan.executions
                ),
                request=replace(each.request, selection=replace(selection, shard=own)),
                facts={**each.facts, "pile": PileFacts(suites=names, suite=name, number=number)},
            )


def _perform(parts: Sequence[Part], ready: Ready, folder: Path | None) -> int:
    """Start every run, bring all trials to their results, and report on all of them together."""
    began = time.monotonic()
    with interruptible(), ExitStack() as stack:
        approaches = [approach_of(part.planned, ready) for part in parts]
        if any(part.planned.settings.on is not None for part in parts):
            runs = zip([part.planned for part in parts], approaches, strict=True)
            placed = cluster_module().on_cluster(list(runs))
            parts = [replace(part, planned=planned) for part, (planned, _) in zip(parts, placed, strict=True)]
            approaches = [approach for _, approach in placed]
        first = parts[0].planned
        readied = [
            ready_run(part.planned, each.ready, starts_agents=each.starts_agents)
            for part, each in zip(parts, approaches, strict=True)
        ]
        if folder is None:
            for place in dict.fromkeys(part.planned.settings.output_dir for part in parts):
                # Where one of them cannot be kept, none begins.
                folders.create_run_folder(place).rmdir()
        joining = Joining(stack.enter_context(open_reporters(first)))
        batch = folder or folders.create_run_folder(first.settings.output_dir)
        jobs = []
        for part, each in zip(parts, readied, strict=True):
            listen = partial(_PartReporters, part, joining, batch)
            jobs.append(stack.enter_context(start_run(each, listen)))
        states = [state for state, _ in jobs]
        for state in states:
            state.beside = states
        write_batch(batch, [(part.name, state.info.run_dir) for part, state in zip(parts, states, strict=True)])
        folders.point_latest(batch)
        info = _info(parts, states, batch)
        stack.enter_context(hint_how_to_resume(info, first))
        whole = joined_plan(parts)
        joining.begin(
            RunStarted(info=info, plan=whole, done=joining.done),
            (*notices_on_cost(first, whole), *_unused_reporters(parts)),
        )
        with single_errors():
            # All suites are run in the same way.
            anyio.run(execute, jobs, approaches[0].run_trial, approaches[0].around, backend_options=LOOP)
        with undisturbed():
            return _conclude(parts, states, joining, info, began)


def _unused_reporters(parts: Sequence[Part]) -> Iterator[str]:
    """Yield a warning if the settings of some suites name other reporters than those of the first."""
    first = parts[0].planned.settings
    if others := [part.name for part in parts if part.planned.settings.reporters != first.reporters]:
        yield f"{parts[0].name} decides on the reporters of all suites: those of {quoted(others)} are not used"


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
    plan = joined_plan(parts)
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
    found = [
        (part, record_results(state), relpath(state.info.run_dir, info.run_dir))
        for part, state in zip(parts, states, strict=True)
    ]
    # A run until decided may have ended before its plan did.
    ended = [replace(part, planned=replace(part.planned, plan=results.plan)) for part, results, _ in found]
    results = JoinedResults(joined_plan(ended), found, time.monotonic() - began)
    interrupted = any(state.interrupted for state in states)
    write_results(info, results, interrupted=interrupted, ended_at=now())
    joining.reporters(RunEnded(info=info, results=results, interrupted=interrupted))
    codes = {conclude_by_verdicts(each).code for _, each, _ in found}
    code = next((code for code in (FAILED, ERRORED) if code in codes), PASSED)
    ended_with = final_code(code, interrupted=interrupted, reporters=joining.reporters)
    return by_gate(parts[0].planned, info, joining.reporters, ended_with)
