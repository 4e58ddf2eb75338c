"""Turn comparisons and rates into a gate: pass, fail or not known yet, and what it would take to know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil
from typing import Literal

from whet.dataclass import dataclass
from whet.grade.comparison import values_of
from whet.grade.difference import rate_on_these_cases
from whet.grade.sequential import FIRST_LOOK, trials_needed
from whet.model.benchmark import Interval
from whet.model.comparison import Comparison, RunSamples

Answer = Literal["pass", "fail", "unknown"]
EXIT_CODES: dict[Answer, int] = {"pass": 0, "fail": 1, "unknown": 5}
# A second look at a run asks for about so much.
_ALPHA_OF_NEXT_LOOK = 0.007
# Below this, a plan would take more trials than anybody runs.
_SMALLEST_EFFECT = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated:
    """One thing that a gate looked at, what it says, and why in one sentence."""

    answer: Answer
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class More:
    """More trials per case and arm that would decide with 80 % power, if things are as they look; and their cost."""

    trials: int
    cost_usd: float | None
    hours: float | None


def worst(answers: Iterable[Answer]) -> Answer:
    """Return the answer of all together: one that fails fails all, and one that is unknown leaves all unknown."""
    seen = set(answers)
    return "fail" if "fail" in seen else "unknown" if "unknown" in seen else "pass"


def gate_comparison(found: Comparison) -> Answer:
    """Return whether the candidate may take the place of the baseline."""
    if found.verdict in {"better", "not-worse"}:
        return "pass"
    return "fail" if found.verdict == "worse" else "unknown"


def gate_cost(found: Comparison, most: float) -> Gated:
    """Return whether the candidate costs at most so many times as much."""
    change = next((each for each in found.amounts if each.amount == "cost_usd"), None)
    if change is None or change.ratio is None:
        return Gated(answer="unknown", reason="the cost of the trials is not known in both arms")
    ratio = change.ratio
    words = f"costs {ratio.value:.2f} times as much ({ratio.low:.2f} to {ratio.high:.2f}), and {most:g} are allowed"
    if ratio.high <= most:
        return Gated(answer="pass", reason=words)
    return Gated(answer="fail" if ratio.low > most else "unknown", reason=words)


def gate_rate(rate: Interval, least: float) -> Answer:
    """Return whether a rate is at least *least*."""
    if rate.low >= least:
        return "pass"
    return "fail" if rate.high < least else "unknown"


def rates_of(samples: RunSamples) -> dict[tuple[str, str], Interval]:
    """Return the rate of each arm on each runner; its ends hold however the errored trials would have gone."""
    found: dict[tuple[str, str], Interval] = {}
    for each in samples.arms:
        ends = [rate_on_these_cases(values_of(each.trials, value), samples.weights) for value in (0.0, 1.0)]
        seen = rate_on_these_cases(values_of(each.trials), samples.weights)
        if seen is not None and ends[0] is not None and ends[1] is not None:
            found[each.arm, each.runner] = Interval(value=seen.value, low=ends[0].low, high=ends[1].high)
    return found


def more_to_decide(found: Comparison, samples: RunSamples, *, parallel: int) -> More | None:
    """Return how many more trials would decide, if the difference is as it looks; None if that is out of reach."""
    distance = max(abs(found.difference), found.difference + found.margin)
    if distance < _SMALLEST_EFFECT:
        return None
    cases = sum(case.baseline is not None and case.candidate is not None for case in found.cases)
    if not cases:
        return None
    needed = trials_needed(cases, found.spread, distance, alpha=min(_ALPHA_OF_NEXT_LOOK, 1 - found.level))
    done = samples.rounds
    more = max(FIRST_LOOK, ceil(needed.trials - done))
    arms = sum(1 for _ in samples.arms)
    trials = more * cases * arms
    return More(
        trials=more,
        cost_usd=_times(trials, [each.cost_usd for arm in samples.arms for each in arm.trials]),
        hours=_hours(trials, [each.seconds for arm in samples.arms for each in arm.trials], parallel),
    )


def _times(trials: int, figures: Sequence[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return trials * sum(known) / len(known) if known else None


def _hours(trials: int, seconds: Sequence[float | None], parallel: int) -> float | None:
    whole = _times(trials, seconds)
    return None if whole is None else whole / 3600 / max(1, parallel)
