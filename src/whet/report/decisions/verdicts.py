"""What a run of arms decided as a whole: one word for each candidate, and which of them speaks for the run.

The pages and the lists of runs take their word from here, so that none contradicts another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from whet.model.comparison import Comparison, Decision, Goal

VerdictWord = Literal[
    "better", "not-worse", "worse", "inconclusive", "cheaper", "faster", "shorter", "dearer", "slower", "longer"
]
_OPPOSITES: dict[Goal, VerdictWord] = {"cheaper": "dearer", "faster": "slower", "shorter": "longer"}
# Of one candidate on several runners, the first of these speaks: it is better only if it is so on all.
_WORST_FIRST: tuple[Decision, ...] = ("worse", "inconclusive", "not-worse", "better")


def word_of(comparison: Comparison) -> VerdictWord:
    """Return what was decided in one word; with a goal, whether it was reached."""
    aim = comparison.aim
    if aim is None or (comparison.verdict == "worse" and aim.progress != "reached"):
        return comparison.verdict
    if aim.progress == "reached":
        return aim.goal
    return _OPPOSITES[aim.goal] if aim.progress == "missed" else "inconclusive"


def decided(comparisons: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """Return the comparison that speaks for each candidate, that of the best candidate first."""
    by_candidate: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        by_candidate.setdefault(comparison.candidate, []).append(comparison)
    speaking = [min(group, key=_worst) for group in by_candidate.values()]
    return tuple(sorted(speaking, key=_worst, reverse=True))


def _worst(comparison: Comparison) -> tuple[int, float]:
    return _WORST_FIRST.index(comparison.verdict), comparison.difference
