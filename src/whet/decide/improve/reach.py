"""Say how large an effect has to be to be found on the held-out cases, before anybody pays for it."""

from __future__ import annotations

from typing import Literal

from whet.decide.like_these import error_like_these
from whet.decide.quantiles import t_quantile, z_of
from whet.decide.sequential import FIRST_ANALYSIS, USUAL_SPREAD, effect_by_end

_POWER = 0.8
# By simulation: rounds that look hopeless end runs that the last round would have decided.
_GIVING_UP = 1.3
# By simulation too: a gain differs from case to case, so less of it is sure of others.
_DIFFERENCES = 1.3


def effect_in_reach(cases: int, rounds: int, error: float, rule: Literal["these", "like-these"] = "these") -> float:
    """Return the smallest effect that a confirm step on so many held-out cases accepts in about 80 % of runs."""
    smallest = _in_reach_on_these(cases, rounds, error)
    if rule == "these":
        return smallest
    # A larger effect is decided on these cases after fewer rounds, and then less is known of others like these.
    for stopped_after in range(rounds, FIRST_ANALYSIS - 1, -1):
        on_others = _in_reach_like_these(cases, stopped_after)
        decided_then = _in_reach_on_these(cases, stopped_after, error)
        if on_others <= decided_then:
            return min(1.0, _DIFFERENCES * max(smallest, on_others))
        smallest = decided_then
    return min(1.0, _DIFFERENCES * max(smallest, _in_reach_like_these(cases, FIRST_ANALYSIS)))


def _in_reach_on_these(cases: int, rounds: int, error: float) -> float:
    return min(1.0, _GIVING_UP * effect_by_end(cases, rounds, error))


def _in_reach_like_these(cases: int, rounds: int) -> float:
    """Return the effect that is found on cases like these if nothing but chance tells the cases from each other."""
    distance = t_quantile(0.975, cases - 1) + z_of(2 * (1 - _POWER))
    return distance * error_like_these(cases, USUAL_SPREAD / rounds)
