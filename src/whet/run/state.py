"""A run under way: its journal and its reporters, and what it may still start."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from whet.gateway.sessions import SessionSpending
from whet.model.comparison import PairFigures
from whet.model.request import Settings
from whet.model.run import Plan, RunInfo, Trial, TrialKey
from whet.model.run_events import Looked, Notice, RunEvent, TrialEnded
from whet.model.spending import BUDGET_NOT_ENFORCED, Spending
from whet.record.journal.chain import is_done
from whet.record.journal.journal import Journal, SpendingFile
from whet.record.snapshots import SnapshotFile
from whet.report.contract import Reporters
from whet.report.spent import spending_text

if TYPE_CHECKING:
    from whet.decide.until import InterimAnalysis


class TrialSlots(Struct):
    """Trials side by side: each slot takes the next trial when its last one has ended."""

    start: Callable[[], object]
    count: int = 0

    def widen(self, at_once: int) -> None:
        """Add slots until there are *at_once*."""
        while self.count < at_once:
            self.count += 1
            self.start()


class RunState(Struct, kw_only=True):
    """A run under way: what it is, where it is recorded, and who listens."""

    info: RunInfo
    plan: Plan
    settings: Settings
    journal: Journal
    spent: SpendingFile
    reporters: Reporters
    snapshots: SnapshotFile | None = None
    # Whether it continues an earlier run.
    resumed: bool = False
    began: float = field(default_factory=time.monotonic)
    interrupted: bool = False
    # Whether the message that the budget is spent was sent.
    stopped: bool = False
    # Whether the first failure is to end the run, and whether it did.
    stop_early: bool = False
    failed_early: bool = False
    # All runs that this command started, which share its budget; each adds itself.
    beside: list[RunState] = field(default_factory=list)
    # What its sessions under way have spent so far, as far as the gateway knows.
    under_way: SessionSpending = field(default_factory=SessionSpending)
    # The runners whose cost is unknown although there is a budget, after the message about it.
    unenforced: set[str] = field(default_factory=set)
    # What looks after each round of a run until decided.
    interim_analysis: InterimAnalysis | None = None
    # What a judge said of pairs of answers, once all trials have ended.
    pairwise: tuple[PairFigures, ...] = ()
    # What runs its trials side by side, while that goes on.
    slots: TrialSlots | None = None

    def __post_init__(self) -> None:
        self.beside.append(self)

    def emit(self, event: RunEvent, files: Mapping[str, str] | None = None) -> None:
        """Pass *event* on, to the journal first, so that nothing is shown that could be lost.

        *files* are the hashes of what a trial that ended left in the record.
        """
        look = None
        if isinstance(event, TrialEnded):
            if self.interim_analysis is not None and is_done(event.result):
                look = self.interim_analysis.after(event.result)
            self.journal.append(event.result, files, look)
        self.reporters(event)
        if isinstance(event, TrialEnded):
            self._warn_of_unknown_cost(event)
        if self.interim_analysis is not None and look is not None:
            self.reporters(Looked(look=look, until=self.interim_analysis.until, cost_usd=self.spent_usd))

    def notice(self, message: str, level: Literal["info", "warning"] = "warning") -> None:
        """Show *message* to the user."""
        self.emit(Notice(level=level, message=message))

    def _warn_of_unknown_cost(self, event: TrialEnded) -> None:
        """Warn once for each runner whose budget could not be held."""
        runner = event.trial.key.runner
        if runner not in self.unenforced and any(note.startswith(BUDGET_NOT_ENFORCED) for note in event.result.notes):
            self.unenforced.add(runner)
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

    def may_start(self) -> bool:
        """Return whether another trial may start: none has failed, where that ends the run, and the money is there."""
        return not any(run.failed_early for run in self.beside) and self.afford()

    def note_failure(self, key: TrialKey) -> None:
        """End the run after the first failure, if that was asked for."""
        if self.stop_early and not any(run.failed_early for run in self.beside):
            self.failed_early = True
            self.emit(Notice(level="warning", message=f"{key} failed, so no more trials start (-x)", about_all=True))

    def afford(self, *, ahead: float = 0.0) -> bool:
        """Return whether another trial may start; the first time that it may not, say so.

        *ahead* is the share of what was spent that the next step is going to take.
        """
        most = self.settings.max_cost_usd
        if most is None:
            return True
        costs = [cost.spent_usd for cost in self.beside]
        total_usd = sum(cost or 0.0 for cost in costs)
        if all(cost is None for cost in costs) or (total_usd < most and total_usd * (1 + ahead) <= most):
            return True
        if not self.stopped:
            for cost in self.beside:
                # Runs of a batch share the budget, so one of them says it.
                cost.stopped = True
            consequence = "the rest does not pay for another round" if total_usd < most else "no more trials start"
            message = f"${total_usd:.6g} of at most ${most:g} is spent{self._shares()}: {consequence}"
            self.emit(Notice(level="warning", message=message, about_all=True))
        return False

    def _shares(self) -> str:
        """Return who spent what, if several did."""
        together = sum((run.spending for run in self.beside), Spending())
        return f" ({spending_text(together)})" if sum(bool(bill.cost_usd) for _, bill in together.bills()) > 1 else ""

    def refusal(self) -> str | None:
        """Return why sessions under way may ask their models no more, if the money is spent."""
        most = self.settings.max_cost_usd
        if most is None:
            return None
        total_usd = sum((run.spent_usd or 0.0) + run.under_way.usd for run in self.beside)
        return f"${total_usd:.6g} of at most ${most:g} is spent in this run" if total_usd >= most else None

    def widen(self, at_once: int) -> None:
        """Let *at_once* trials run side by side, if these are more than so far."""
        if at_once > self.plan.max_parallel and self.plan.schedule == "parallel":
            self.plan = replace(self.plan, max_parallel=at_once)
            if self.slots is not None:
                self.slots.widen(at_once)

    @contextmanager
    def side_by_side(self, slots: TrialSlots) -> Iterator[None]:
        """Run trials in *slots*, which `widen` widens meanwhile."""
        self.slots = slots
        try:
            yield
        finally:
            self.slots = None

    def end_after(self, number: int) -> None:
        """Leave out of the plan what would have come after the round *number*: it was never due."""
        self.plan = self.plan.ended_after(number)

    def pending(self, number: int | None = None) -> Iterator[Trial]:
        """Yield the trials that have not ended yet, or those of one round."""
        trials = self.plan.trials() if number is None else self.plan.round(number)
        return (trial for trial in trials if not self.journal.is_done(trial.key))


def now() -> str:
    """Return the current time as records have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
