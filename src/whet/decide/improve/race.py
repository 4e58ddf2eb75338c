"""Race versions of a skill on practice cases: all of them take a first leg, and the best third a second one.

The search may be greedy, since nothing is decided here: what wins the race must hold on other cases.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from msgspec import Struct

# The trials of each practice case in the legs of a race.
FIRST_LEG, SECOND_LEG = 1, 2
_KEPT_SHARE = 3
_FEWEST_KEPT = 2


class Racer(Struct, frozen=True, kw_only=True):
    """A version in a race: its mean over practice cases so far, and what tells it from one that is as good."""

    id: str
    score: float
    # How many tokens longer it is than the version that the round started from.
    growth: int = 0
    # Of its content, so that the order of two that are alike otherwise is the same everywhere.
    digest: str = ""


def count_kept(candidates: int) -> int:
    """Return how many candidates take the second leg: the best third, and at least two."""
    return min(candidates, max(_FEWEST_KEPT, ceil(candidates / _KEPT_SHARE)))


def survivors(racers: Iterable[Racer]) -> tuple[str, ...]:
    """Return who takes the second leg, the best first."""
    ranking = _rank(racers)
    return tuple(racer.id for racer in ranking[: count_kept(len(ranking))])


def winner(racers: Iterable[Racer], current: float) -> str | None:
    """Return who goes on to be confirmed; None if nobody is above the score that the current version has."""
    best = next(iter(_rank(racers)), None)
    return best.id if best is not None and best.score > current else None


def _rank(racers: Iterable[Racer]) -> list[Racer]:
    """Return the best first; of those that are as good, the one that is shorter."""
    return sorted(racers, key=lambda racer: (-racer.score, racer.growth, racer.digest, racer.id))
