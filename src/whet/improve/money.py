"""The money of an improve run: what its phases may take of it, and what the whole is going to cost."""

from __future__ import annotations

from math import ceil

from msgspec import Struct

from whet.decide.improve.race import FIRST_LEG, SECOND_LEG, count_kept
from whet.decide.sequential import FIRST_ANALYSIS

# Trials of each practice case that say what is wrong with the current version, and of each sealed case.
BASELINE_TRIALS, SEALED_TRIALS = 3, 5
# The most that proposals may take, as a share of the money of a round.
GENERATING_SHARE = 0.15
# A search by an engine makes versions and runs them: how often each practice case for each candidate that is asked for,
# and the most that it may take of the money of a round.
_SEARCH_TRIALS = 2
SEARCH_SHARE = 0.5
# A round of confirming runs each held-out case in both arms; below two of them, nothing can be decided.
ARMS = 2
# How far a confirm step that decides usually goes, as a share of the most rounds that it may take.
_USUAL_ROUNDS = 0.5


class TrialCounts(Struct, frozen=True, kw_only=True):
    """What an improve run is made of, from which its trials follow."""

    practice: int
    held_out: int
    sealed: int
    candidates: int
    rounds: int
    max_rounds: int
    has_baseline: bool
    # Whether an engine looks for the candidate of a round, and it alone is raced.
    is_search: bool = False

    def race(self, kept: int | None = None) -> int:
        """Return the trials of a race that keeps so many candidates for its second leg."""
        racers = 1 if self.is_search else self.candidates
        finalists = count_kept(racers) if kept is None else kept
        return self.practice * (FIRST_LEG * (racers + 1) + SECOND_LEG * (finalists + 1))

    @property
    def search(self) -> int:
        """The trials in which an engine looks for the candidate of a round."""
        return _SEARCH_TRIALS * self.candidates * self.practice if self.is_search else 0

    def confirm(self, rounds: int) -> int:
        """Return the trials of a confirm step of so many rounds."""
        return ARMS * self.held_out * rounds

    @property
    def baseline(self) -> int:
        """The trials that say what is wrong with the current version."""
        return BASELINE_TRIALS * self.practice if self.has_baseline else 0

    @property
    def least(self) -> int:
        """The trials if no candidate wins a race."""
        return self.baseline + self.rounds * (self.search + self.race())

    @property
    def usual(self) -> int:
        """The trials if each confirm step goes half of its way."""
        rounds = max(FIRST_ANALYSIS, ceil(self.max_rounds * _USUAL_ROUNDS))
        return self.least + self.rounds * self.confirm(rounds)

    @property
    def most(self) -> int:
        """The trials if each confirm step goes all of its way, and a version is accepted."""
        return self.least + self.rounds * self.confirm(self.max_rounds) + ARMS * SEALED_TRIALS * self.sealed


def most_finalists(counts: TrialCounts, candidates: int, cost_of_trial: float | None, left_usd: float | None) -> int:
    """Return how many of *candidates* the second leg can have, so that two rounds of confirming can be paid after it.

    At least one: without any, what was spent so far would be lost.
    """
    if not cost_of_trial or left_usd is None:
        return candidates
    for_race = left_usd - cost_of_trial * counts.confirm(FIRST_ANALYSIS)
    versions = int(for_race / (cost_of_trial * SECOND_LEG * max(1, counts.practice)))
    return max(1, min(candidates, versions - 1))


def round_money(left_usd: float | None, rounds_left: int) -> float | None:
    """Return what the next round may take of what is left."""
    return None if left_usd is None else left_usd / max(1, rounds_left)
