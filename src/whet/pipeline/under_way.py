"""A run under way: where its record lies, who listens, and what it may still begin."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from whet.model.event import Notice, RunEvent, TrialEnded
from whet.model.run import UNHELD, Plan, RunInfo, Trial, TrialResult
from whet.model.session import Usage
from whet.report.base import Reporters
from whet.store.journal import Journal
from whet.store.spent import Spent


@dataclass(slots=True)
class UnderWay:
    """A run under way: where its record lies, and who listens."""

    info: RunInfo
    plan: Plan
    journal: Journal
    spent: Spent
    reporters: Reporters
    began: float
    interrupted: bool = False
    # The most that the run may cost, and whether somebody was told that it did.
    max_cost_usd: float | None = None
    stopped: bool = False
    # What a trial took beside its own session, and what that came to so far.
    beside: Callable[[TrialResult], Usage] | None = None
    beside_usd: float = 0.0
    # The runners that tell no cost although there is a budget, once somebody was told.
    unheld: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Take in what an earlier run spent beside its sessions; the journal knows the rest."""
        if self.beside is not None and self.max_cost_usd is not None:
            entries = (self.journal.entry(key) for key in self.journal)
            self.beside_usd = sum(self._beside(self.journal.read(entry)) for entry in entries if entry)

    def _beside(self, result: TrialResult) -> float:
        return 0.0 if self.beside is None else self.beside(result).cost_usd or 0.0

    def emit(self, event: RunEvent, files: Mapping[str, str] | None = None) -> None:
        """Tell everybody; the journal first, with the hashes of a trial's *files*: nothing shown can be lost."""
        if isinstance(event, TrialEnded):
            self.journal.append(event.result, files)
            self.beside_usd += self._beside(event.result)
        self.reporters(event)
        if isinstance(event, TrialEnded):
            self._tell_unheld(event)

    def _tell_unheld(self, event: TrialEnded) -> None:
        """Say once for each runner that a budget was not held."""
        runner = event.trial.key.runner
        if runner not in self.unheld and any(note.startswith(UNHELD) for note in event.result.notes):
            self.unheld.add(runner)
            told = f"what {event.trial.key.case} cost on {runner} is not known, and its budget was not held (told once)"
            self.emit(Notice(level="warning", message=told))

    def interrupt(self) -> None:
        """Somebody wants it to end."""
        self.interrupted = True

    def afford(self) -> bool:
        """Whether another trial may be started; the first time that it may not, everybody is told."""
        own = (self.journal.usage + self.spent.usage).cost_usd
        spent = (own or 0.0) + self.beside_usd
        if self.max_cost_usd is None or (own is None and not self.beside_usd) or spent < self.max_cost_usd:
            return True
        if not self.stopped:
            self.stopped = True
            told = f"${spent:.6g} of at most ${self.max_cost_usd:g} are spent: no further trial is started"
            self.emit(Notice(level="warning", message=told))
        return False

    def pending(self) -> Iterator[Trial]:
        """The trials that have not ended yet."""
        return (trial for trial in self.plan.trials() if not self.journal.is_done(trial.key))
