"""Conclude a run: compare with the snapshots, write results.json, tell the reporters, and give the exit code."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Literal

from whet.dataclass import dataclass
from whet.errors import RecordUnwritten, StoreError
from whet.model.benchmark import Evaluated
from whet.model.event import RunEnded
from whet.model.run import ExecutionKey, RunInfo, SnapshotOutcome
from whet.plan.settle import Planned
from whet.record.journal import FREE_SPACE
from whet.record.results import JournalResults, write_results
from whet.record.sealing import shared_hashes
from whet.record.snapshots import compare_all
from whet.report.reporter import Reporters
from whet.run.run_state import ERRORED, FAILED, INTERRUPTED, PASSED, RunState, now

# As for output that cannot be written: the run is fine, but a file that somebody waits for is missing.
NOT_WRITTEN = 74
# What a shell reports of any program that wrote to a closed pipe.
READER_GONE = 141
_UNUSED = "no case or runner has that name; delete the entry from the snapshot file, or rename it to the new name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """The exit code of a run, and the report on skills of an evaluation."""

    code: int
    evaluated: Evaluated | None = None


def conclude_by_verdicts(results: JournalResults) -> Conclusion:
    """Return the exit code for trials that failed, trials that errored, or neither.

    A run that compares arms has done what it was asked to if all its trials count, whatever they say: a version that
    is better fails now and then. Which one is better is for a gate to say.
    """
    counts = results.counts
    if results.plan.compares:
        unknown = counts["errored"] or counts["not-run"] or counts["void"] == counts["total"]
        return Conclusion(code=ERRORED if unknown else PASSED)
    if counts["failed"] or counts["unexpected-passed"] or results.exceeded:
        return Conclusion(code=FAILED)
    return Conclusion(code=PASSED if results.passed else ERRORED)


def record_results(state: RunState) -> JournalResults:
    """Compare with the snapshots, and write results.json from the journal."""
    outcomes = _compare_snapshots(state)
    state.journal.check(whole=True)
    # Results name the last line, so it must not be lost after them.
    state.journal.sync()
    results = JournalResults(
        state.plan,
        state.journal,
        time.monotonic() - state.began,
        outcomes,
        beside=state.spent.spending,
        workspaces=_shared_hashes(state),
        money_over=state.stopped,
    )
    write_results(state.info, results, interrupted=state.interrupted, ended_at=now())
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
    for key in file.unused(state.plan, frozenset(runner.id for runner in state.settings.runners)):
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
    ended = RunEnded(info=state.info, results=results, interrupted=state.interrupted, evaluated=conclusion.evaluated)
    state.emit(ended)
    return final_code(conclusion.code, interrupted=state.interrupted, reporters=state.reporters)


def by_gate(planned: Planned, info: RunInfo, reporters: Reporters, code: int) -> int:
    """Return *code*, or if a gate is to decide, print what it says of the run and return its code."""
    if not planned.request.gate or code == INTERRUPTED:
        return code
    # Only here: most runs compare nothing.
    from whet.grade.comparison import MARGIN  # noqa: PLC0415
    from whet.report.deciding import gate  # noqa: PLC0415

    until = planned.plan.until
    # A run until decided that may stop by a margin is held to the same one.
    margin = until.margin if until is not None and until.margin is not None else MARGIN
    outcome = gate([str(info.run_dir)], planned.settings, margin=margin)
    reporters.screen.write("".join(f"{line}\n" for line in ("", *outcome.lines())))
    return outcome.code or (code if code in (NOT_WRITTEN, READER_GONE) else PASSED)


def final_code(code: int, *, interrupted: bool, reporters: Reporters) -> int:
    """Return the exit code: that of the verdicts, unless a signal came or a report could not be written."""
    code = INTERRUPTED if interrupted else code
    if code != PASSED:
        return code
    return NOT_WRITTEN if reporters.unwritten else READER_GONE if reporters.unread else PASSED
