"""Turn comparisons and rates into a gate: pass, fail or not known yet, and what it would take to know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil, isinf, log
from typing import Literal

from whet.dataclass import dataclass
from whet.grade.comparison import looks_at
from whet.grade.difference import rate_on_these_cases
from whet.grade.doubts import doubt_about_rate
from whet.grade.errored import values_of
from whet.grade.outlook import Outlook
from whet.grade.quantiles import z_of
from whet.grade.sequential import ALPHA, FIRST_LOOK, trials_needed, z_after_looks
from whet.model.benchmark import Interval
from whet.model.comparison import MOST_ADDED, Comparison, RunSamples

Answer = Literal["pass", "fail", "unknown"]
EXIT_CODES: dict[Answer, int] = {"pass": 0, "fail": 1, "unknown": 5}
# A second look at a run asks for so much.
_ALPHA_OF_NEXT_LOOK = ALPHA / 8
# Below this, a plan would take more trials than anybody runs.
_SMALLEST_EFFECT = 0.005
# People read 8 of 10 runs that look like this one; a little more, since the error is known only roughly.
_POWER = 0.85


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated:
    """One thing that a gate looked at, what it says, and why in one sentence."""

    answer: Answer
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class More:
    """More trials per case and arm that would decide in 80 % of runs that look like this one; and their cost."""

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


def gate_like_these(found: Comparison) -> Gated:
    """Return whether the candidate is better on other cases like these too."""
    like_these = found.like_these
    who = f"{found.candidate} on other cases like these"
    if like_these is None:
        return Gated(answer="unknown", reason=f"{who}: one case says nothing about others; add cases")
    low, high = (f"{100 * end:+.3g}" for end in (like_these.low, like_these.high))
    answer: Answer = "pass" if like_these.low > 0 else "fail" if like_these.high < 0 else "unknown"
    return Gated(answer=answer, reason=f"{who}: {low} to {high} points; more cases narrow this most")


def gate_cost(found: Comparison, most: float) -> Gated:
    """Return whether the candidate costs at most so many times as much."""
    ratio = _cost_ratio(found)
    if ratio is None:
        return Gated(answer="unknown", reason="the cost of the trials is not known in both arms")
    level = f"{100 * found.level:.3g} % interval"
    words = f"costs {ratio.value:.2f} times as much ({level} {ratio.low:.2f} to {ratio.high:.2f})"
    words += f", and {most:g} are allowed"
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


def passing(samples: RunSamples) -> RunSamples:
    """Return the same with trials that count by whether they pass, and not by their scores."""
    arms = (
        replace(each, trials=tuple(replace(trial, value=trial.share) for trial in each.trials)) for each in samples.arms
    )
    return replace(samples, arms=tuple(arms))


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
    """Return how many more trials would decide in 80 % of runs that look like this one; None if out of reach."""
    cases = sum(case.baseline is not None and case.candidate is not None for case in found.cases)
    if not cases or not samples.rounds:
        return None
    again = samples.rounds_planned is not None
    z = _z_of_next_look(found, samples)
    seen = Outlook(
        value=found.difference,
        error=(found.high - found.low) / 2 / z_of(1 - found.level),
        rounds=samples.rounds,
        margin=found.margin,
        is_new=again,
    )
    needed = seen.rounds_to_decide(z, _POWER, most=samples.rounds + MOST_ADDED)
    return None if needed is None else _beyond(needed, cases, samples, parallel)


def _z_of_next_look(found: Comparison, samples: RunSamples) -> float:
    """Return how far an interval reaches that is looked at once more."""
    if samples.rounds_planned is not None:
        return z_of(1 - found.level)
    alpha = min(ALPHA, 1 - found.level) if found.looks == 1 else ALPHA
    return z_after_looks((*samples.grown_from, samples.rounds, samples.rounds + 1), alpha)


def more_for_cost(found: Comparison, most: float, samples: RunSamples, *, parallel: int) -> More | None:
    """Return how many more trials would tell the ratio of costs from *most*; None if that is out of reach."""
    ratio = _cost_ratio(found)
    if ratio is None or isinf(ratio.high):
        return None
    distance, half = abs(log(most / ratio.value)), log(ratio.high / ratio.value)
    if distance < _SMALLEST_EFFECT:
        return None
    # The interval must be so much narrower that it ends before *most* in 80 % of runs; it narrows by the square root.
    narrower = (_z_of_next_look(found, samples) + z_of(2 * (1 - _POWER))) / z_of(1 - found.level)
    needed = ceil(samples.rounds * (narrower * half / distance) ** 2)
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
