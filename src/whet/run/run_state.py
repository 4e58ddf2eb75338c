"""A run under way: its journal and its reporters, what it may still start, and its results in the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import Literal

from whet.dataclass import dataclass
from whet.errors import RecordUnwritten, StoreError
from whet.model.benchmark import Evaluated
from whet.model.event import Notice, RunEnded, RunEvent, TrialEnded
from whet.model.request import Settings
from whet.model.run import UNHELD, ExecutionKey, Plan, RunInfo, SnapshotOutcome, Trial, TrialResult
from whet.model.session import Usage
from whet.record.journal import FREE_SPACE, Journal, Spent
from whet.record.results import JournalResults, write_results
from whet.record.sealing import shared_hashes
from whet.record.snapshots import SnapshotFile, compare_all
from whet.report.reporter import Reporters

PASSED, FAILED, ERRORED, INTERRUPTED = 0, 1, 3, 130
# As for output that cannot be written: the run is fine, but a file that somebody waits for is missing.
NOT_WRITTEN = 74
# What a shell reports of any program that wrote to a closed pipe.
READER_GONE = 141
_UNUSED = "no case or runner has that name; delete the entry from the snapshot file, or rename it to the new name"


@dataclass(slots=True, kw_only=True)
class RunState:
    """A run under way: what it is, where it is recorded, and who listens."""

    info: RunInfo
    plan: Plan
    settings: Settings
    journal: Journal
    spent: Spent
    reporters: Reporters
    snapshots: SnapshotFile | None = None
    # Whether it continues an earlier run.
    resumed: bool = False
    began: float = field(default_factory=time.monotonic)
    interrupted: bool = False
    # Whether the message that the budget is spent was sent.
    stopped: bool = False
    # What a trial used outside of its own session, and its cost so far.
    extra_usage: Callable[[TrialResult], Usage] | None = None
    extra_usd: float = 0.0
    # The runners whose cost is unknown although there is a budget, after the message about it.
    unheld: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Add what an earlier run spent outside of its sessions; the journal knows the rest."""
        if self.extra_usage is not None and self.settings.max_cost_usd is not None:
            entries = (self.journal.entry(key) for key in self.journal)
            self.extra_usd = sum(self._extra_usd(self.journal.read(entry)) for entry in entries if entry)

    def _extra_usd(self, result: TrialResult) -> float:
        return 0.0 if self.extra_usage is None else self.extra_usage(result).cost_usd or 0.0

    def emit(self, event: RunEvent, files: Mapping[str, str] | None = None) -> None:
        """Pass *event* on, to the journal first, so that nothing is shown that could be lost.

        *files* are the hashes of what a trial that ended left in the record.
        """
        if isinstance(event, TrialEnded):
            self.journal.append(event.result, files)
            self.extra_usd += self._extra_usd(event.result)
        self.reporters(event)
        if isinstance(event, TrialEnded):
            self._warn_of_unknown_cost(event)

    def notice(self, message: str, level: Literal["info", "warning"] = "warning") -> None:
        """Show *message* to the user."""
        self.emit(Notice(level=level, message=message))

    def _warn_of_unknown_cost(self, event: TrialEnded) -> None:
        """Warn once for each runner whose budget could not be held."""
        runner = event.trial.key.runner
        if runner not in self.unheld and any(note.startswith(UNHELD) for note in event.result.notes):
            self.unheld.add(runner)
            self.notice(
                f"the cost of {event.trial.key.case} on {runner} is not known, so its budget was not held (shown once)"
            )

    def interrupt(self) -> None:
        """Note that a signal asked the run to end."""
        self.interrupted = True

    def afford(self) -> bool:
        """Return whether another trial may start; the first time that it may not, say so."""
        most = self.settings.max_cost_usd
        own = (self.journal.usage + self.spent.usage).cost_usd
        spent = (own or 0.0) + self.extra_usd
        if most is None or (own is None and not self.extra_usd) or spent < most:
            return True
        if not self.stopped:
            self.stopped = True
            self.notice(f"${spent:.6g} of at most ${most:g} are spent: no further trial is started")
        return False

    def pending(self) -> Iterator[Trial]:
        """Yield the trials that have not ended yet."""
        return (trial for trial in self.plan.trials() if not self.journal.is_done(trial.key))


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """The exit code of a run, and the report on skills of an evaluation."""

    code: int
    evaluated: Evaluated | None = None


def conclude_by_verdicts(results: JournalResults) -> Conclusion:
    """Return the exit code for trials that failed, trials that errored, or neither."""
    counts = results.counts
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
        cut_short=state.spent.usage,
        workspaces=_shared_hashes(state),
    )
    write_results(state.info, results, interrupted=state.interrupted, ended_at=now())
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
    code = INTERRUPTED if state.interrupted else conclusion.code
    if code != PASSED:
        return code
    return NOT_WRITTEN if state.reporters.unwritten else READER_GONE if state.reporters.unread else PASSED


def now() -> str:
    """Return the current time as records have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
