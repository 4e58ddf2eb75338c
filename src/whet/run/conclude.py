"""Conclude a run: compare with the snapshots, write results.json, tell the reporters, and give the exit code."""

from __future__ import annotations

import os
import time
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from whet import exit_codes
from whet.errors import RecordUnwritten, StoreError
from whet.model.callable import EvaluationOutcome
from whet.model.run import ExecutionKey, RunInfo, SnapshotOutcome
from whet.model.run_events import RunEnded
from whet.plan.load import PlannedRun
from whet.record.file_hashes import shared_hashes
from whet.record.journal.journal import FREE_SPACE
from whet.record.results import JournalResults, write_results
from whet.record.snapshots import compare_all
from whet.report.contract import Reporters
from whet.report.screen import Screen
from whet.run.state import RunState, now

_UNUSED = "no case or runner has that name; delete the entry from the snapshot file, or rename it to the new name"


class Conclusion(Struct, frozen=True, kw_only=True):
    """The exit code of a run, and the report on skills of an evaluation."""

    code: int
    evaluated: EvaluationOutcome | None = None


def conclude_by_verdicts(results: JournalResults) -> Conclusion:
    """Return the exit code for trials that failed, trials that errored, or neither.

    A run that compares arms has done what it was asked to if all its trials count, whatever they say: a version that
    is better fails now and then. Which one is better is for a gate to say.
    """
    counts = results.counts
    if results.plan.compares:
        unknown = counts["errored"] or counts["not-run"] or counts["void"] == counts["total"] or _lacks_pairs(results)
        return Conclusion(code=exit_codes.ERRORED if unknown else exit_codes.DONE)
    if counts["failed"] or counts["unexpected-passed"] or results.exceeded:
        return Conclusion(code=exit_codes.FAILED)
    is_whole = results.passed and not _lacks_pairs(results)
    return Conclusion(code=exit_codes.DONE if is_whole else exit_codes.ERRORED)


def _lacks_pairs(results: JournalResults) -> bool:
    """Return whether a judge was to compare answers and could not."""
    return any(figures.verdict == "errored" for figures in results.pairwise)


def record_results(state: RunState) -> JournalResults:
    """Compare with the snapshots, and write results.json from the journal."""
    outcomes, hashes, ended_at = _compare_snapshots(state), _shared_hashes(state), now()
    state.journal.check(whole=True)
    # Results name the last line, so it must not be lost after them.
    state.journal.sync()
    results = JournalResults(
        state.plan,
        state.journal,
        time.monotonic() - state.began,
        outcomes,
        beside=state.spent.spending,
        workspaces=hashes,
        money_over=state.stopped,
        pairwise=state.pairwise,
    )
    write_results(state.info, results, interrupted=state.interrupted, ended_at=ended_at)
    for loads in results.skill_loads:
        if loads.warning:
            state.notice(loads.warning)
    return results


def _compare_snapshots(state: RunState) -> dict[ExecutionKey, SnapshotOutcome]:
    """Compare with the snapshots, and show each that is new, does not hold, or is unused."""
    file = state.snapshots
    if file is None:
        return {}
    outcomes = compare_all(file, JournalResults(state.plan, state.journal, 0.0))
    for outcome in outcomes.values():
        if outcome.status != "held":
            level: Literal["info", "warning"] = "info" if outcome.verdict is None else "warning"
            state.notice(f"snapshot {outcome.status}: {outcome.key}: {outcome.message}", level)
    for key in file.find_unused(state.plan, frozenset(runner.id for runner in state.settings.runners)):
        state.notice(f"snapshot unused: {key}: {_UNUSED}")
    try:
        file.save()
    except StoreError as error:
        state.notice(error.message)
        return outcomes | {key: replace(outcome, status="missing") for key, outcome in outcomes.items() if outcome.new}
    return outcomes


def _shared_hashes(state: RunState) -> dict[str, str]:
    """Return the hashes of a shared workspace; those of other workspaces are in the journal."""
    if state.plan.executions[0].workspace.mode != "shared":
        return {}
    try:
        return shared_hashes(state.info.run_dir)
    except OSError as error:
        raise RecordUnwritten(f"the shared workspace cannot be recorded: {error}", hint=FREE_SPACE) from error


def report_results(state: RunState, results: JournalResults, conclusion: Conclusion) -> int:
    """Tell the reporters that the run has ended; return the exit code."""
    run_end = RunEnded(info=state.info, results=results, interrupted=state.interrupted, evaluated=conclusion.evaluated)
    state.emit(run_end)
    return final_code(conclusion.code, was_interrupted=state.interrupted, reporters=state.reporters)


def by_gate(planned_run: PlannedRun, info: RunInfo, reporters: Reporters, code: int) -> int:
    """Return *code*, or if a gate is to decide, print what it says of the run and return its code."""
    if not planned_run.request.gate or code == exit_codes.INTERRUPTED:
        return code
    # Only here: most runs compare nothing.
    from whet.report.decisions.compare import gate

    outcome = gate([str(info.run_dir)], planned_run.settings)
    screen = Screen(reporters.screen, os.environ)
    reporters.screen.write(screen.text(("", *outcome.lines(screen))))
    return outcome.code or (code if code in (exit_codes.NOT_WRITTEN, exit_codes.READER_GONE) else exit_codes.DONE)


def final_code(code: int, *, was_interrupted: bool, reporters: Reporters) -> int:
    """Return the exit code: that of the verdicts, unless a signal came or a report could not be written."""
    code = exit_codes.INTERRUPTED if was_interrupted else code
    if code != exit_codes.DONE:
        return code
    if reporters.unwritten:
        return exit_codes.NOT_WRITTEN
    return exit_codes.READER_GONE if reporters.unread else exit_codes.DONE
