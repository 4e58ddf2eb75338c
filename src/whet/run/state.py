"""A run under way: its journal and its reporters, and what it may still start."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from whet.dataclass import dataclass
from whet.model.event import Looked, Notice, RunEvent, TrialEnded
from whet.model.request import Settings
from whet.model.run import UNHELD, Plan, RunInfo, Trial
from whet.model.spending import Spending
from whet.record.chain import is_done
from whet.record.journal import Journal, Spent
from whet.record.snapshots import SnapshotFile
from whet.report.reporter import Reporters
from whet.report.spent import spending_text

if TYPE_CHECKING:
    from whet.grade.until import Looking

# Exit codes.
PASSED, FAILED, ERRORED, INTERRUPTED = 0, 1, 3, 130


@dataclass(slots=True)
class Lanes:
    """Trials side by side: each lane takes the next trial when its last one has ended."""

    start: Callable[[], object]
    count: int = 0

    def widen(self, at_once: int) -> None:
        """Start lanes until there are *at_once*."""
        while self.count < at_once:
            self.count += 1
            self.start()


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
    # All runs that this command started, which share its budget; only this one, unless it started several.
    beside: Sequence[RunState] = ()
    # What its sessions under way have spent so far, as far as the gateway knows.
    under_way: Callable[[], float] = lambda: 0.0
    # The runners whose cost is unknown although there is a budget, after the message about it.
    unheld: set[str] = field(default_factory=set)
    # What looks after each round of a run until decided.
    looking: Looking | None = None
    # What runs its trials side by side, while that goes on.
    lanes: Lanes | None = None

    def emit(self, event: RunEvent, files: Mapping[str, str] | None = None) -> None:
        """Pass *event* on, to the journal first, so that nothing is shown that could be lost.

        *files* are the hashes of what a trial that ended left in the record.
        """
        look = None
        if isinstance(event, TrialEnded):
            if self.looking is not None and is_done(event.result):
                look = self.looking.after(event.result)
            self.journal.append(event.result, files, look)
        self.reporters(event)
        if isinstance(event, TrialEnded):
            self._warn_of_unknown_cost(event)
        if self.looking is not None and look is not None:
            self.reporters(Looked(look=look, until=self.looking.until, cost_usd=self.spent_usd))

    def notice(self, message: str, level: Literal["info", "warning"] = "warning") -> None:
        """Show *message* to the user."""
        self.emit(Notice(level=level, message=message))

    def _warn_of_unknown_cost(self, event: TrialEnded) -> None:
        """Warn once for each runner whose budget could not be held."""
        runner = event.trial.key.runner
        if runner not in self.unheld and any(note.startswith(UNHELD) for note in event.result.notes):
            self.unheld.add(runner)
            self.notice(
                f"the cost of {event.trial.key.case} on {runner} is not known, so no budget was enforced (shown once)"
            )

    def interrupt(self) -> None:
        """Note that a signal asked the run to end."""
        self.interrupted = True

    @property
    def spending(self) -> Spending:
        """What this run has paid for so far, by who asked for it."""
        return self.journal.spending + self.spent.spending

    @property
    def spent_usd(self) -> float | None:
        """What this run has spent so far, as far as it is known."""
        return self.spending.cost_usd

    def afford(self, *, ahead: float = 0.0) -> bool:
        """Return whether another trial may start; the first time that it may not, say so.

        *ahead* is the share of what was spent that the next step is going to take.
        """
        most = self.settings.max_cost_usd
        if most is None:
            return True
        known = [each.spent_usd for each in self.beside or (self,)]
        spent = sum(each or 0.0 for each in known)
        if all(each is None for each in known) or (spent < most and spent * (1 + ahead) <= most):
            return True
        if not self.stopped:
            for each in self.beside or (self,):
                # They share the budget, so one of them says it.
                each.stopped = True
            rest = "the rest does not pay for another round" if spent < most else "no more trials start"
            message = f"${spent:.6g} of at most ${most:g} is spent{self._shares()}: {rest}"
            self.emit(Notice(level="warning", message=message, about_all=True))
        return False

    def _shares(self) -> str:
        """Return who spent what, if several did."""
        together = sum((each.spending for each in self.beside or (self,)), Spending())
        return f" ({spending_text(together)})" if sum(bool(bill.cost_usd) for _, bill in together.bills()) > 1 else ""

    def refusal(self) -> str | None:
        """Return why sessions under way may ask their models no more, if the money is spent."""
        most = self.settings.max_cost_usd
        if most is None:
            return None
        spent = sum((each.spent_usd or 0.0) + each.under_way() for each in self.beside or (self,))
        return f"${spent:.6g} of at most ${most:g} is spent in this run" if spent >= most else None

    def widen(self, at_once: int) -> None:
        """Let *at_once* trials run side by side, if these are more than so far."""
        if at_once > self.plan.max_parallel and self.plan.schedule == "parallel":
            self.plan = replace(self.plan, max_parallel=at_once)
            if self.lanes is not None:
                self.lanes.widen(at_once)

    def pending(self, number: int | None = None) -> Iterator[Trial]:
        """Yield the trials that have not ended yet, or those of one round."""
        trials = self.plan.trials() if number is None else self.plan.round(number)
        return (trial for trial in trials if not self.journal.is_done(trial.key))


def now() -> str:
    """Return the current time as records have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
