"""Turn comparisons and rates into a gate: pass, fail or not known yet, and what it would take to know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, isinf, log
from typing import Literal

from whet.dataclass import dataclass
from whet.grade.comparison import looks_at
from whet.grade.difference import rate_on_these_cases
from whet.grade.doubts import doubt_about_rate
from whet.grade.errored import values_of
from whet.grade.quantiles import z_of
from whet.grade.sequential import ALPHA, FIRST_LOOK, trials_needed
from whet.model.benchmark import Interval
from whet.model.comparison import MOST_ADDED, Comparison, RunSamples

Answer = Literal["pass", "fail", "unknown"]
EXIT_CODES: dict[Answer, int] = {"pass": 0, "fail": 1, "unknown": 5}
# A second look at a run asks for about so much.
_ALPHA_OF_NEXT_LOOK = 0.007
# Below this, a plan would take more trials than anybody runs.
_SMALLEST_EFFECT = 0.005
# How much narrower than to the point an interval of 95 % must be to end before it in 80 % of runs.
_WITH_POWER = (z_of(ALPHA) + z_of(0.4)) / z_of(ALPHA)


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
    ratio = _cost_ratio(found)
    if ratio is None:
        return Gated(answer="unknown", reason="the cost of the trials is not known in both arms")
    words = f"costs {ratio.value:.2f} times as much ({ratio.low:.2f} to {ratio.high:.2f}), and {most:g} are allowed"
    if ratio.high <= most:
        return Gated(answer="pass", reason=words)
    return Gated(answer="fail" if ratio.low > most else "unknown", reason=words)


def _cost_ratio(found: Comparison) -> Interval | None:
    return next((each.ratio for each in found.amounts if each.amount == "cost_usd"), None)


def gate_rate(rate: Interval, least: float) -> Answer:
    """Return whether a rate is at least *least*."""
    if rate.low >= least:
        return "pass"
    return "fail" if rate.high < least else "unknown"


def rates_of(samples: RunSamples) -> dict[tuple[str, str], Interval]:
    """Return the rate of each arm on each runner; its ends hold however the errored trials would have gone."""
    found: dict[tuple[str, str], Interval] = {}
    z = looks_at(samples)[1](ALPHA)
    for each in samples.arms:
        doubt = doubt_about_rate(each.trials, samples.weights, judge_error=samples.judge_error)
        ends = [
            rate_on_these_cases(values_of(each.trials, value), samples.weights, z=z, doubt=doubt)
            for value in (0.0, 1.0)
        ]
        if ends[0] is None or ends[1] is None:
            continue
        # One of which all trials errored is not left out: a gate that does not ask it would let it pass.
        seen = rate_on_these_cases(values_of(each.trials), samples.weights, z=z, doubt=doubt) or ends[0]
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
    alpha = min(_ALPHA_OF_NEXT_LOOK, 1 - found.level)
    needed = trials_needed(cases, found.spread, distance, alpha=alpha).trials
    return _beyond(needed, cases, samples, parallel)


def more_for_cost(found: Comparison, most: float, samples: RunSamples, *, parallel: int) -> More | None:
    """Return how many more trials would tell the ratio of costs from *most*; None if that is out of reach."""
    ratio = _cost_ratio(found)
    if ratio is None or isinf(ratio.high):
        return None
    distance, half = abs(log(most / ratio.value)), log(ratio.high / ratio.value)
    if distance < _SMALLEST_EFFECT:
        return None
    # The interval must be so much narrower that it ends before *most* in 80 % of runs; it narrows by the square root.
    needed = ceil(samples.rounds * (_WITH_POWER * half / distance) ** 2)
    return _beyond(needed, sum(case.weight > 0 for case in found.cases), samples, parallel)


def _beyond(needed: int, cases: int, samples: RunSamples, parallel: int) -> More | None:
    """Return what is missing to that many trials per case and arm."""
    # A run until decided has made its looks; only a new one, of more rounds, can decide.
    planned = samples.rounds_planned
    return _more(needed - samples.rounds if planned is None else max(planned, needed), cases, samples, parallel)


def more_for_rate(rate: Interval, least: float, samples: RunSamples, *, parallel: int) -> More | None:
    """Return how many more trials would tell a rate from *least*; None if that is out of reach."""
    distance = abs(rate.value - least)
    cases = sum(weight > 0 for weight in samples.weights.values())
    if distance < _SMALLEST_EFFECT or not cases or samples.rounds_planned is not None:
        return None
    spread = rate.value * (1 - rate.value)
    needed = trials_needed(cases, spread, distance, alpha=_ALPHA_OF_NEXT_LOOK).trials
    return _more(needed - samples.rounds, cases, samples, parallel)


def _more(more: int, cases: int, samples: RunSamples, parallel: int) -> More | None:
    more = max(FIRST_LOOK, more)
    if more > MOST_ADDED:
        return None
    trials = more * cases * len(samples.arms)
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
