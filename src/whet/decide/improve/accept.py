"""Say whether a version that was compared on held-out cases is accepted, and if not, why."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Literal

from whet.decide.difference import case_chance
from whet.decide.errored import values_of
from whet.decide.sequential import ALPHA
from whet.decide.variation import mean
from whet.model.callable import Interval
from whet.model.comparison import Decision, Sampled
from whet.reading.text import count

# With fewer held-out cases, not even votes that all go one way are beyond chance.
LEAST_HELD_OUT = 6
# From so many on, what is found on these cases can be asked to hold on others too.
LIKE_THESE_FROM = 12


def default_rule(held_out: int) -> Literal["these", "like-these"]:
    """Return on which cases a version must be better, if nobody says: on others like these, where that can be found."""
    return "like-these" if held_out >= LIKE_THESE_FROM else "these"


def regressions(
    baseline: Sequence[Sampled], candidate: Sequence[Sampled], protected: Collection[str]
) -> tuple[str, ...]:
    """Return which of the *protected* cases the candidate made worse: beyond chance, or from all passed to none."""
    before, after = values_of(baseline), values_of(candidate)
    return tuple(
        case
        for case in sorted(protected)
        if before.get(case) and after.get(case) and _has_regressed(before[case], after[case])
    )


def _has_regressed(before: Sequence[float], after: Sequence[float]) -> bool:
    # Two trials that passed and two that failed may be chance, and nobody wants to ship that.
    is_lost = all(value == 1 for value in before) and not any(after)
    return is_lost or (mean(after) < mean(before) and case_chance(before, after) < ALPHA)


def objections(
    verdict: Decision,
    *,
    rule: Literal["these", "like-these"],
    goal: Literal["better", "cheaper"] = "better",
    like_these: Interval | None = None,
    cost_ratio: Interval | None = None,
    regressed: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return why a version is not accepted, one reason each; none if it is.

    What it has to be is decided on the held-out cases: better, or for *cheaper* not worse at less cost. With
    *like-these*, a version that is to be better must be so on other cases like these too.
    """
    return tuple(_objections(verdict, rule, goal, like_these, cost_ratio, regressed))


def _objections(
    verdict: Decision,
    rule: Literal["these", "like-these"],
    goal: Literal["better", "cheaper"],
    like_these: Interval | None,
    cost_ratio: Interval | None,
    regressed: Sequence[str],
) -> Iterator[str]:
    if goal == "cheaper":
        if verdict not in {"better", "not-worse"}:
            yield f"it is not shown to be as good ({_words_of(verdict)})"
        if cost_ratio is None:
            yield "what it costs is not known"
        elif cost_ratio.high >= 1:
            yield f"it is not shown to cost less: {cost_ratio.low:.2f} to {cost_ratio.high:.2f} times as much"
    elif verdict != "better":
        yield f"it is not shown to be better ({_words_of(verdict)})"
    elif rule == "like-these" and (like_these is None or like_these.low <= 0):
        yield "it is better on these cases, and not shown to be on others like these"
    if regressed:
        yield f"{count(len(regressed), 'case')} that must not regress did: {', '.join(regressed)}"


def _words_of(verdict: Decision) -> str:
    return {"worse": "it is worse", "not-worse": "it is not worse"}.get(verdict, "not decided")
