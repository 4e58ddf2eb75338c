"""What a search for a candidate needs of the world: to run a version on practice cases, and to change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from whet.improve.propose.task import PracticeRun


class PracticeTrials(Struct, frozen=True, kw_only=True):
    """One trial of each of some practice cases: their scores, and the run that shows how they went."""

    scores: Mapping[str, float]
    evidence: PracticeRun


class SearchPort(Protocol):
    """Runs and changes versions; each of these may raise `EndedEarly`.

    *place* counts what was asked for before, so that the same search after a kill finds what it has done already.
    """

    def measure(self, place: int, version: Path, cases: Sequence[str]) -> PracticeTrials:
        """Run *version* once on each of *cases*."""

    def vary(self, place: int, parent: Path, evidence: PracticeRun) -> Path | None:
        """Make a version from *parent* by what *evidence* shows; None if it cannot be raced."""

    def is_spent(self) -> bool:
        """Return whether the search has taken its share of the money, so that it goes on with what it has found."""
