"""What a loop of improvement needs of the world: to propose, to race, to confirm.

`workbench.py` does it by runs of whet. `bench/improve.py` draws the outcomes of trials instead, so that a thousand
loops go through the same decisions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from whet.record.improve.document import (
    CandidateRecord,
    ConfirmRecord,
    Outcome,
    Phase,
    PracticeScore,
    RoundRecord,
    SealedRecord,
)


class EndedEarly(Exception):
    """What a workbench raises if it cannot go on: the money is spent, somebody interrupts, or something is broken."""

    def __init__(self, outcome: Outcome, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason
        self.hint = hint


class Workbench(Protocol):
    """Does the work of each phase; what it has done before a kill, it does not do again.

    Versions are named by the ids of candidates; `current` is the one that the round started from.
    Each of these may raise `EndedEarly`.
    """

    def measure_current(self) -> PracticeScore:
        """Return the score of the current version on practice cases, three trials a case."""

    def propose(self, round_number: int) -> Sequence[CandidateRecord]:
        """Make the candidates of a round."""

    def lint(self, round_number: int, candidates: Sequence[CandidateRecord]) -> Sequence[CandidateRecord]:
        """Look at each of *candidates*; those that are refused say why, and have that fate."""

    def most_kept(self, round_number: int, candidates: int) -> int:
        """Return how many of *candidates* there is the money for in the second leg of the race, at least one."""

    def race(self, round_number: int, leg: int, versions: Sequence[str], trials: int) -> Mapping[str, PracticeScore]:
        """Run each of *versions* on every practice case, in turns; return their scores over all legs of the round."""

    def next_error(self, round_number: int) -> tuple[int, float]:
        """Count one more confirm step on this split, for good; return its number and the error that it may make."""

    def confirm(self, round_number: int, candidate: str, step: int, error: float) -> ConfirmRecord:
        """Compare *candidate* with the current version on held-out cases until decided; objections are left empty."""

    def accept(self, round_number: int, candidate: str) -> None:
        """Let the next round start from *candidate*; said again after a kill."""

    def seal(self) -> SealedRecord | None:
        """Compare the last version with the first one on sealed cases; None if there are none."""


class LoopRecord(Protocol):
    """Keeps what a loop has done, so that it can go on after a kill."""

    def begin(self, phase: Phase, round_number: int | None = None) -> None:
        """Note that a phase begins, or goes on."""

    def keep_baseline(self, score: PracticeScore) -> None:
        """Keep the score of the current version, which ends its phase."""

    def keep_round(self, phase: Phase, record: RoundRecord, *, ended: bool = True) -> None:
        """Keep what is known of a round now; unless it has *ended*, the phase goes on."""

    def keep_sealed(self, record: SealedRecord) -> None:
        """Keep the comparison on sealed cases, which ends its phase."""
