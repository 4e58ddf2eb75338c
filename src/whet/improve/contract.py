"""What a loop of improvement needs of the world: to propose, to race, to confirm.

`workbench.py` does it by runs of whet. `bench/improve.py` draws the outcomes of trials instead, so that a thousand
loops go through the same decisions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from whet.record.improve.document import CandidateRecord, ConfirmRecord, PracticeScore, SealedRecord


class Workbench(Protocol):
    """Does the work of each phase; what it has done before a kill, it does not do again.

    Versions are named by the ids of candidates; `current` is the one that the round started from.
    """

    def measure_current(self) -> PracticeScore:
        """Return the score of the current version on practice cases, three trials a case."""

    def propose(self, round_number: int) -> Sequence[CandidateRecord]:
        """Make the candidates of a round, and look at each: duds and refused ones are among what it returns."""

    def race(self, round_number: int, leg: int, versions: Sequence[str], trials: int) -> Mapping[str, PracticeScore]:
        """Run each of *versions* on every practice case, in turns; return their scores over all legs of the round."""

    def next_error(self) -> tuple[int, float]:
        """Count one more confirm step on this split, for good; return its number and the error that it may make."""

    def confirm(self, round_number: int, candidate: str, step: int, error: float) -> ConfirmRecord:
        """Compare *candidate* with the current version on held-out cases until decided; objections are left empty."""

    def accept(self, round_number: int, candidate: str) -> None:
        """Let the next round start from *candidate*."""

    def seal(self) -> SealedRecord | None:
        """Compare the last version with the first one on sealed cases; None if there are none."""
