"""Race versions of a skill on practice cases: all of them take a first leg, and the best third a second one.

The search may be greedy, since nothing is decided here: what wins the race must hold on other cases.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, inf
from typing import Literal

from msgspec import Struct

# The trials of each practice case in the legs of a race.
FIRST_LEG, SECOND_LEG = 1, 2
_KEPT_SHARE = 3
_FEWEST_KEPT = 2


class Racer(Struct, frozen=True, kw_only=True):
    """A version in a race: its mean over practice cases so far, and what tells it from one that is as good."""

    id: str
    score: float
    # Of a case, on average; None if it is not known.
    cost_usd: float | None = None
    # How many tokens longer it is than the version that the round started from.
    growth: int = 0
    # Of its content, so that the order of two that are alike otherwise is the same everywhere.
    digest: str = ""


class RaceRule(Struct, frozen=True, kw_only=True):
    """What a race is about: to be better than the current version, or cheaper and hardly worse, by *margin* at most."""

    current: Racer
    goal: Literal["better", "cheaper"] = "better"
    margin: float = 0.0

    def is_ahead(self, racer: Racer) -> bool:
        """Return whether *racer* is what is asked for, as it looks on practice cases."""
        if self.goal == "better":
            return racer.score > self.current.score
        return self._is_good_enough(racer) and _cost(racer) < _cost(self.current)

    def rank(self, racers: Iterable[Racer]) -> list[Racer]:
        """Return the best first; of those that are as good, the one that is shorter."""
        return sorted(racers, key=lambda racer: (*self._place(racer), racer.growth, racer.digest, racer.id))

    def _place(self, racer: Racer) -> tuple[float, ...]:
        if self.goal == "better":
            return (-racer.score,)
        return (not self._is_good_enough(racer), _cost(racer), -racer.score)

    def _is_good_enough(self, racer: Racer) -> bool:
        return racer.score >= self.current.score - self.margin


def _cost(racer: Racer) -> float:
    return inf if racer.cost_usd is None else racer.cost_usd


def count_kept(candidates: int) -> int:
    """Return how many candidates take the second leg: the best third, and at least two."""
    return min(candidates, max(_FEWEST_KEPT, ceil(candidates / _KEPT_SHARE)))


def survivors(racers: Iterable[Racer], rule: RaceRule) -> tuple[str, ...]:
    """Return who takes the second leg, the best first."""
    ranking = rule.rank(racers)
    return tuple(racer.id for racer in ranking[: count_kept(len(ranking))])


def winner(racers: Iterable[Racer], rule: RaceRule) -> str | None:
    """Return who goes on to be confirmed; None if nobody is ahead of the current version."""
    best = next(iter(rule.rank(racers)), None)
    return best.id if best is not None and rule.is_ahead(best) else None
