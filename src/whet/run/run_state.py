"""A run under way: its journal and its reporters, and what it may still start."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from datetime import UTC, datetime
from typing import Literal

from whet.dataclass import dataclass
from whet.model.event import Notice, RunEvent, TrialEnded
from whet.model.request import Settings
from whet.model.run import UNHELD, Plan, RunInfo, Trial, TrialResult
from whet.model.session import Usage
from whet.record.journal import Journal, Spent
from whet.record.snapshots import SnapshotFile
from whet.report.reporter import Reporters

# Exit codes.
PASSED, FAILED, ERRORED, INTERRUPTED = 0, 1, 3, 130


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


def now() -> str:
    """Return the current time as records have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
