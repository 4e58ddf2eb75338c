"""Say whether a candidate reaches its goal: cheaper, faster or shorter than its baseline, and not worse."""

from __future__ import annotations

from whet.model.callable import Interval
from whet.model.comparison import Aim, Amount, Comparison, Goal

_OPPOSITES: dict[Goal, str] = {"cheaper": "dearer", "faster": "slower", "shorter": "longer"}
_MEASURES: dict[Amount, str] = {
    "cost_usd": "the cost",
    "seconds": "the time",
    "tokens": "the tokens",
    "steps": "the steps",
}
_UNKNOWN: dict[Goal, str] = {
    "cheaper": "what a trial costs is not known in both arms",
    "faster": "how long a session takes is not known in both arms",
    "shorter": "how many tokens or steps a session takes is not known in both arms",
}


def decided_aim(aim: Aim, comparison: Comparison, margin: str) -> str:
    """Return what is decided about a goal, with the *margin* in points."""
    candidate, baseline = comparison.candidate, comparison.baseline
    if aim.progress == "reached":
        return f"{candidate} is {aim.goal} than {baseline}, and not worse by {margin} points or more"
    if aim.progress == "open":
        claim = f"{candidate} is {aim.goal} than {baseline} and not worse by {margin} points or more"
        return f"not known yet whether {claim}"
    if comparison.verdict == "worse":
        return f"{candidate} is worse than {baseline}, so it does not matter whether it is {aim.goal}"
    return f"{candidate} is {_OPPOSITES[aim.goal]} than {baseline}, and not {aim.goal}"


def ratio_so_far(ratio: Interval | None) -> str:
    """Return how many times as much a candidate takes, short enough for the line after each round."""
    return "" if ratio is None else f", {ratio.value:.2f} times as much ({ratio.low:.2f} to {ratio.high:.2f})"


def hardly_reached(goal: Goal) -> str:
    """Return why a run gives up that asks for a goal."""
    return f"whether a candidate is {goal} and not worse would hardly be known by the end"


def ratio_in_words(aim: Aim, level: str) -> str:
    """Return how many times as much a candidate takes, such as "0.71 times the cost (95 % interval 0.6 to 0.85)"."""
    if aim.amount is None or aim.ratio is None:
        return _UNKNOWN[aim.goal]
    ratio = aim.ratio
    return f"{ratio.value:.2f} times {_MEASURES[aim.amount]} ({level} {ratio.low:.2f} to {ratio.high:.2f})"
