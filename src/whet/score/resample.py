"""Intervals by resampling whole tasks: runs of one task are no independent samples, so they stay together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, sqrt
from random import Random
from statistics import NormalDist

from whet.model.benchmark import Difference, Interval
from whet.score import weight_unit
from whet.score.student import t_quantile

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
    t = t_quantile((1 + _LEVEL) / 2, count - 1)
    return NormalDist().cdf(-sqrt(count / (count - 1)) * t)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
