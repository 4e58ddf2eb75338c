"""Turn comparisons and rates into a gate: pass, fail or not known yet, and what it would take to know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, isinf, log
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from whet import exit_codes
from whet.decide.comparison import analyses_of
from whet.decide.difference import rate_on_these_cases
from whet.decide.doubts import doubt_about_rate
from whet.decide.errored import values_of
from whet.decide.outlook import Outlook
from whet.decide.quantiles import z_of
from whet.decide.sequential import ALPHA, FIRST_ANALYSIS, alpha_of_each, trials_needed, z_after_analyses
from whet.model.callable import Interval
from whet.model.comparison import MOST_ADDED, ArmSamples, Comparison, Progress, RunSamples
from whet.reading.text import points

Answer = Literal["pass", "fail", "unknown"]
EXIT_CODES: dict[Answer, int] = {
    "pass": exit_codes.DONE,
    "fail": exit_codes.FAILED,
    "unknown": exit_codes.UNDECIDED,
}
_OF_AIM: dict[Progress, Answer] = {"reached": "pass", "missed": "fail", "open": "unknown"}
# A second look at a run asks for so much.
_ALPHA_OF_NEXT_ANALYSIS = ALPHA / 8
# Below this, a plan would take more trials than anybody runs.
_SMALLEST_EFFECT = 0.005
# People read 8 of 10 runs that look like this one; a little more, since the error is known only roughly.
_POWER = 0.85


class GateAnswer(Struct, frozen=True, kw_only=True):
    """One thing that a gate looked at, what it says, and why in one sentence; also whether it is about a judge."""

    answer: Answer
    reason: str
    about: Literal["decision", "judge", "pairs"] = "decision"


class MoreTrials(Struct, frozen=True, kw_only=True):
    """More trials per case and arm that would decide in 80 % of runs that look like this one; and their cost."""

    trials: int
    cost_usd: float | None
    hours: float | None


def worst(answers: Iterable[Answer]) -> Answer:
    """Return the answer of all parts together: a failed part fails it, and an unknown part leaves it unknown."""
    distinct = set(answers)
    if "fail" in distinct:
        return "fail"
    return "unknown" if "unknown" in distinct else "pass"


def gate_comparison(comparison: Comparison) -> Answer:
    """Return whether the candidate may take the place of the baseline, and reaches its goal if it has one."""
    if comparison.aim is not None:
        return _OF_AIM[comparison.aim.progress]
    if comparison.verdict in {"better", "not-worse"}:
        return "pass"
    return "fail" if comparison.verdict == "worse" else "unknown"


def gate_like_these(comparison: Comparison) -> GateAnswer:
    """Return whether the candidate is better on other cases like these too."""
    like_these = comparison.like_these
    subject = f"{comparison.candidate} on other cases like these"
    if like_these is None:
        return GateAnswer(answer="unknown", reason=f"{subject}: one case says nothing about others; add cases")
    reason = f"{subject}: {points(like_these.low)} to {points(like_these.high)} points; more cases narrow this most"
    if like_these.low > 0:
        return GateAnswer(answer="pass", reason=reason)
    return GateAnswer(answer="fail" if like_these.high < 0 else "unknown", reason=reason)


def gate_cost(comparison: Comparison, most: float) -> GateAnswer:
    """Return whether the candidate costs at most so many times as much."""
    ratio = cost_ratio(comparison)
    if ratio is None:
        return GateAnswer(answer="unknown", reason="the cost of the trials is not known in both arms")
    level = f"{100 * comparison.level:.3g} % interval"
    words = f"costs {ratio.value:.2f} times as much ({level} {ratio.low:.2f} to {ratio.high:.2f})"
    words += f", and {most:g} are allowed"
    if ratio.high <= most:
        return GateAnswer(answer="pass", reason=words)
    return GateAnswer(answer="fail" if ratio.low > most else "unknown", reason=words)


def cost_ratio(comparison: Comparison) -> Interval | None:
    """Return how many times as much a trial of the candidate costs; None if that is not known in both arms."""
    return next((change.ratio for change in comparison.amounts if change.amount == "cost_usd"), None)


def gate_rate(rate: Interval, least: float) -> Answer:
    """Return whether a rate is at least *least*."""
    if rate.low >= least:
        return "pass"
    return "fail" if rate.high < least else "unknown"


def count_passes_only(samples: RunSamples) -> RunSamples:
    """Return the same with trials that count by whether they pass, and not by their scores."""
    arms = (
        replace(arm, trials=tuple(replace(trial, value=trial.share) for trial in arm.trials)) for arm in samples.arms
    )
    return replace(samples, arms=tuple(arms))


def asked_arms(samples: RunSamples) -> tuple[ArmSamples, ...]:
    """Return the arms whose rates a gate asks for: what a baseline does is no reason to hold a candidate back."""
    return tuple(arm for arm in samples.arms if len(samples.names) == 1 or arm.arm != samples.names[0])


def rates_sharing(samples: RunSamples, runner: str, *, per_runner: bool = False) -> int:
    """Return how many rates share one error with that of an arm on *runner*: all, or with *per_runner* those there."""
    return sum(not per_runner or arm.runner == runner for arm in asked_arms(samples))


def rates_of(samples: RunSamples, *, per_runner: bool = False) -> dict[tuple[str, str], Interval]:
    """Return the rate of each arm on each runner; its ends hold however the errored trials would have gone.

    All rates that a gate asks for share one error, unless *per_runner* gives each runner its own.
    """
    rates: dict[tuple[str, str], Interval] = {}
    for arm in samples.arms:
        sharing = rates_sharing(samples, arm.runner, per_runner=per_runner)
        z = analyses_of(samples, sharing)[1](alpha_of_each(sharing))
        doubt = doubt_about_rate(arm.trials, samples.weights, judge_error=samples.judge_error)
        ends = [
            rate_on_these_cases(values_of(arm.trials, value), samples.weights, z=z, doubt=doubt) for value in (0.0, 1.0)
        ]
        if ends[0] is None or ends[1] is None:
            continue
        # One of which all trials errored is not left out: a gate that does not ask it would let it pass.
        rate = rate_on_these_cases(values_of(arm.trials), samples.weights, z=z, doubt=doubt) or ends[0]
        rates[arm.arm, arm.runner] = Interval(value=rate.value, low=ends[0].low, high=ends[1].high)
    return rates


def more_to_decide(comparison: Comparison, samples: RunSamples, *, parallel: int) -> MoreTrials | None:
    """Return how many more trials would decide in 80 % of runs that look like this one; None if out of reach."""
    cases = sum(case.baseline is not None and case.candidate is not None for case in comparison.cases)
    if not cases or not samples.rounds:
        return None
    again = samples.rounds_planned is not None
    z = _z_of_next_analysis(comparison, samples)
    outlook = Outlook(
        value=comparison.difference,
        error=(comparison.high - comparison.low) / 2 / z_of(1 - comparison.level),
        rounds=samples.rounds,
        margin=comparison.margin,
        is_new=again,
    )
    rounds = outlook.rounds_to_decide(z, _POWER, most=samples.rounds + MOST_ADDED)
    return None if rounds is None else _beyond(rounds, cases, samples, parallel)


def _z_of_next_analysis(comparison: Comparison, samples: RunSamples) -> float:
    """Return how far an interval reaches that is looked at once more."""
    if samples.rounds_planned is not None:
        return z_of(1 - comparison.level)
    alpha = min(ALPHA, 1 - comparison.level) if comparison.looks == 1 else ALPHA
    return z_after_analyses((*samples.grown_from, samples.rounds, samples.rounds + 1), alpha)


def more_for_cost(comparison: Comparison, most: float, samples: RunSamples, *, parallel: int) -> MoreTrials | None:
    """Return how many more trials would tell the ratio of costs from *most*; None if that is out of reach."""
    return _more_for_ratio(cost_ratio(comparison), most, comparison, samples, parallel)


def more_for_aim(comparison: Comparison, samples: RunSamples, *, parallel: int) -> MoreTrials | None:
    """Return how many more trials would tell whether a candidate reaches its goal; None if that is out of reach."""
    assert comparison.aim is not None
    ratio = comparison.aim.ratio
    estimates = []
    if comparison.verdict == "inconclusive":
        estimates.append(more_to_decide(comparison, samples, parallel=parallel))
    if ratio is None or ratio.low <= 1 <= ratio.high:
        estimates.append(_more_for_ratio(ratio, 1.0, comparison, samples, parallel))
    return most_of(estimates)


def most_of(estimates: Sequence[MoreTrials | None]) -> MoreTrials | None:
    """Return what answers all questions; None if one of them stays open."""
    reachable = [estimate for estimate in estimates if estimate is not None]
    return (
        max(reachable, key=lambda estimate: estimate.trials) if reachable and len(reachable) == len(estimates) else None
    )


def _more_for_ratio(
    ratio: Interval | None, most: float, comparison: Comparison, samples: RunSamples, parallel: int
) -> MoreTrials | None:
    if ratio is None or isinf(ratio.high):
        return None
    distance, half = abs(log(most / ratio.value)), log(ratio.high / ratio.value)
    if distance < _SMALLEST_EFFECT:
        return None
    # The interval must be so much narrower that it ends before *most* in 80 % of runs; it narrows by the square root.
    narrower = (_z_of_next_analysis(comparison, samples) + z_of(2 * (1 - _POWER))) / z_of(1 - comparison.level)
    rounds = ceil(samples.rounds * (narrower * half / distance) ** 2)
    return _beyond(rounds, sum(case.weight > 0 for case in comparison.cases), samples, parallel)


def _beyond(rounds: int, cases: int, samples: RunSamples, parallel: int) -> MoreTrials | None:
    """Return what is missing to that many trials per case and arm."""
    # A run until decided has made its looks; only a new one, of more rounds, can decide.
    rounds_planned = samples.rounds_planned
    return _more(
        rounds - samples.rounds if rounds_planned is None else max(rounds_planned, rounds), cases, samples, parallel
    )


def more_for_rate(
    rate: Interval, least: float, samples: RunSamples, *, parallel: int, sharing: int = 1
) -> MoreTrials | None:
    """Return how many more trials would tell a rate from *least*; None if that is out of reach.

    *sharing* rates share one error.
    """
    distance = abs(rate.value - least)
    cases = sum(weight > 0 for weight in samples.weights.values())
    if distance < _SMALLEST_EFFECT or not cases or samples.rounds_planned is not None:
        return None
    spread = rate.value * (1 - rate.value)
    rounds = trials_needed(cases, spread, distance, alpha=_ALPHA_OF_NEXT_ANALYSIS / sharing).trials
    return _more(rounds - samples.rounds, cases, samples, parallel)


def _more(more: int, cases: int, samples: RunSamples, parallel: int) -> MoreTrials | None:
    more = max(FIRST_ANALYSIS, more)
    if more > MOST_ADDED:
        return None
    trials = more * cases * len(samples.arms)
    return MoreTrials(
        trials=more,
        cost_usd=_times(trials, [trial.cost_usd for arm in samples.arms for trial in arm.trials]),
        hours=_hours(trials, [trial.seconds for arm in samples.arms for trial in arm.trials], parallel),
    )


def _times(trials: int, figures: Sequence[float | None]) -> float | None:
    values = [figure for figure in figures if figure is not None]
    return trials * sum(values) / len(values) if values else None


def _hours(trials: int, seconds: Sequence[float | None], parallel: int) -> float | None:
    seconds_in_all = _times(trials, seconds)
    return None if seconds_in_all is None else seconds_in_all / 3600 / max(1, parallel)
