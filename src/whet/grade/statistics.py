"""Compute intervals and lifts by resampling whole tasks: runs of one task are not independent samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import ceil, comb, exp, floor, lgamma, log, sqrt
from random import Random

from whet.grade.comparison import comparisons_in
from whet.grade.scores import by_task, weight_unit
from whet.model.benchmark import Difference, Interval, PassK, Sample
from whet.model.comparison import Comparison
from whet.model.event import Results
from whet.model.grade import CaseLift, Lift
from whet.model.suite import NO_SKILL, SKILL

_STEPS = 200
_TINY = 1e-300
_CLOSE = 1e-14


@lru_cache
def t_quantile(share: float, degrees: int) -> float:
    """The value that a t variable stays below with probability *share* (above one half)."""
    low, high = 0.0, 1e8
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if _cdf(middle, degrees) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _cdf(value: float, degrees: int) -> float:
    """For values of at least 0."""
    return 1 - _beta(degrees / 2, 0.5, degrees / (degrees + value * value)) / 2


def _beta(a: float, b: float, x: float) -> float:
    """The regularized incomplete beta function."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(1 - x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1 - front * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """Its continued fraction, by Lentz's method."""
    c, d = 1.0, 1 / _nonzero(1 - (a + b) * x / (a + 1))
    result = d
    for m in range(1, _STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d, c = 1 / _nonzero(1 + even * d), _nonzero(1 + even / c)
        result *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d, c = 1 / _nonzero(1 + odd * d), _nonzero(1 + odd / c)
        result *= d * c
        if abs(d * c - 1) < _CLOSE:
            break
    return result


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


RESAMPLES = 2000
_LEVEL = 0.95
_LEAST_TASKS = 2
# From so many tasks on the spread itself says the same as resampling, and says it at once.
_MANY_TASKS = 200

# What the samples of one task add to the sum, and to what the sum is divided by.
Cluster = tuple[float, float]


def bootstrap(clusters: Sequence[Cluster], *, seed: int = 0, resamples: int = RESAMPLES) -> Interval | None:
    """The ratio of the sums with an interval; none where fewer than two tasks say anything.

    The percentiles are widened as Hesterberg (2015) does: plain ones are too narrow for few tasks.
    """
    if len(clusters) < _LEAST_TASKS or sum(weight for _, weight in clusters) <= 0:
        return None
    if len(clusters) >= _MANY_TASKS:
        return _by_spread(clusters)
    random = Random(seed)  # noqa: S311 - reproducible on purpose
    drawn = (ratio(random.choices(clusters, k=len(clusters))) for _ in range(resamples))
    # A draw of nothing but tasks of weight 0 says nothing.
    ratios = sorted(found for found in drawn if found is not None)
    tail = _tail(len(clusters))
    value = ratio(clusters)
    assert value is not None
    low, high = ratios[floor(tail * (len(ratios) - 1))], ratios[ceil((1 - tail) * (len(ratios) - 1))]
    return Interval(value=value, low=min(low, value), high=max(high, value))


def _by_spread(clusters: Sequence[Cluster]) -> Interval:
    """The interval by the variance of a ratio over whole tasks; it stays within what single tasks have."""
    value = ratio(clusters)
    assert value is not None
    count, weight = len(clusters), sum(weight for _, weight in clusters)
    variance = count / (count - 1) * sum((part - value * share) ** 2 for part, share in clusters) / weight**2
    half = t_quantile((1 + _LEVEL) / 2, count - 1) * sqrt(variance)
    single = [part / share for part, share in clusters if share > 0]
    return Interval(value=value, low=max(min(single), value - half), high=min(max(single), value + half))


def paired_difference(
    before: Mapping[str, Sequence[float]],
    after: Mapping[str, Sequence[float]],
    *,
    weights: Mapping[str, float] | None = None,
    seed: int = 0,
) -> Difference | None:
    """By how much *after* is above *before*, task by task; none where no task is in both."""
    common = [task for task in before if after.get(task) and before[task]]
    if not common:
        return None
    changes = {task: _mean(after[task]) - _mean(before[task]) for task in common}
    given = {task: (weights or {}).get(task, 1.0) for task in common}
    unit = weight_unit(given.values())
    weigh = {task: weight / unit for task, weight in given.items()}
    clusters = [(changes[task] * weigh[task], weigh[task]) for task in common]
    value = ratio(clusters)
    if value is None:
        return None
    interval = bootstrap(clusters, seed=seed)
    return Difference(
        value=value,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        tasks=len(common),
        better=tuple(task for task in common if changes[task] > 0),
        worse=tuple(task for task in common if changes[task] < 0),
        only_before=tuple(task for task in before if task not in changes),
        only_after=tuple(task for task in after if task not in changes),
    )


def ratio(clusters: Sequence[Cluster]) -> float | None:
    """The sum of what tasks add over the sum of what it is divided by; none where that is nothing."""
    weight = sum(weight for _, weight in clusters)
    return sum(value for value, _ in clusters) / weight if weight > 0 else None


def _tail(count: int) -> float:
    """The share to cut off at each end."""
    # Only here: it brings fractions and decimals along, and most runs have no interval by bootstrap.
    from statistics import NormalDist  # noqa: PLC0415

    t = t_quantile((1 + _LEVEL) / 2, count - 1)
    return NormalDist().cdf(-sqrt(count / (count - 1)) * t)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def pass_at_k(n: int, c: int, k: int) -> float:
    """That at least one of k tries passes: 1 - C(n-c, k) / C(n, k)."""
    _check(n, c, k)
    return 1 - comb(n - c, k) / comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """That all of k tries pass: C(c, k) / C(n, k)."""
    _check(n, c, k)
    return comb(c, k) / comb(n, k)


def passes_of(samples: Iterable[Sample], k: int) -> PassK | None:
    """Both, as means over the tasks that have k counted tries; none where no task has."""
    tries = {task: [sample.status == "pass" for sample in found] for task, found in by_task(samples).items()}
    enough = {task: found for task, found in tries.items() if len(found) >= k}
    if not enough:
        return None
    return PassK(
        k=k,
        at=sum(pass_at_k(len(found), sum(found), k) for found in enough.values()) / len(enough),
        all=sum(pass_hat_k(len(found), sum(found), k) for found in enough.values()) / len(enough),
        tasks=len(enough),
        left_out=tuple(task for task in tries if task not in enough),
    )


def _check(n: int, c: int, k: int) -> None:
    if not 1 <= k <= n:
        raise ValueError(f"k must be between 1 and the number of tries, and {k} of {n} is not")
    if not 0 <= c <= n:
        raise ValueError(f"{c} of {n} cannot have passed")


def lifts_of(results: Results) -> tuple[Lift, ...]:
    """A lift for each runner that some case was run by with the skill and without; it compares the two arms."""
    if {execution.arm for execution in results.plan.executions} != {SKILL, NO_SKILL}:
        return ()
    triggers: dict[str, list[bool]] = {}
    for execution in results.plan.executions:
        apart = {check.label for check in execution.case.checks if not check.compared}
        if apart and execution.arm == SKILL:
            asked = triggers.setdefault(execution.runner.id, [])
            asked += (
                each.passed for trial in results.trials(execution) for each in trial.grades if each.check in apart
            )
    return tuple(_lift(found, triggers.get(found.runner or "", [])) for found in comparisons_in(results))


def _lift(found: Comparison, triggers: Sequence[bool]) -> Lift:
    paired = tuple(
        CaseLift(case=each.case, skill=each.candidate, no_skill=each.baseline, weight=each.weight)
        for each in found.cases
        if each.candidate is not None and each.baseline is not None
    )
    return Lift(
        runner=found.runner or "",
        value=found.difference,
        low=found.low,
        high=found.high,
        skill=found.candidate_rate.value,
        no_skill=found.baseline_rate.value,
        cases=paired,
        unpaired=tuple(each.case for each in found.cases if each.candidate is None or each.baseline is None),
        triggered=sum(triggers),
        asked=len(triggers),
    )


def told_lift(lift: Lift) -> str:
    """The lift in one line."""
    interval = f" ({lift.low:+.2f} to {lift.high:+.2f})" if lift.low is not None and lift.high is not None else ""
    counts = f"{lift.better} better, {lift.worse} worse, {lift.same} the same"
    rest = f"; {len(lift.unpaired)} without a score in both" if lift.unpaired else ""
    told = f"{lift.value:+.2f}{interval}: {lift.skill:.2f} with the skill, {lift.no_skill:.2f} without; {counts}{rest}"
    return f"{told}; triggered {lift.triggered} of {lift.asked}, not counted" if lift.asked else told
