"""Compute intervals by resampling whole tasks: runs of one task are not independent samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, comb, erfc, floor, sqrt
from random import Random

from whet.decide.difference import difference
from whet.decide.quantiles import t_quantile
from whet.decide.scores import by_task
from whet.model.callable import Interval, PassK, Sample, TaskDifference

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
    draws = (ratio(random.choices(clusters, k=len(clusters))) for _ in range(resamples))
    # A draw of nothing but tasks of weight 0 says nothing.
    ratios = sorted(draw for draw in draws if draw is not None)
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
) -> TaskDifference | None:
    """By how much *after* is above *before* on the tasks of both; none where no task is in both."""
    result = difference(before, after, weights)
    if result is None:
        return None
    common = [task for task in before if before[task] and after.get(task)]
    changes = {task: _mean(after[task]) - _mean(before[task]) for task in common}
    return TaskDifference(
        value=result.value,
        low=result.low,
        high=result.high,
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
    # That of the normal distribution; `statistics` takes long to import.
    return erfc(sqrt(count / (count - 1)) * t / sqrt(2)) / 2


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the chance that at least one of k tries passes: 1 - C(n-c, k) / C(n, k)."""
    _check(n, c, k)
    return 1 - comb(n - c, k) / comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Return the chance that all of k tries pass: C(c, k) / C(n, k)."""
    _check(n, c, k)
    return comb(c, k) / comb(n, k)


def passes_of(samples: Iterable[Sample], k: int) -> PassK | None:
    """Return both chances, as means over the tasks that have k counted tries; None if no task has."""
    tries = {task: [sample.status == "pass" for sample in outcomes] for task, outcomes in by_task(samples).items()}
    enough = {task: outcomes for task, outcomes in tries.items() if len(outcomes) >= k}
    if not enough:
        return None
    return PassK(
        k=k,
        at=sum(pass_at_k(len(outcomes), sum(outcomes), k) for outcomes in enough.values()) / len(enough),
        all=sum(pass_hat_k(len(outcomes), sum(outcomes), k) for outcomes in enough.values()) / len(enough),
        tasks=len(enough),
        left_out=tuple(task for task in tries if task not in enough),
    )


def _check(n: int, c: int, k: int) -> None:
    if not 1 <= k <= n:
        raise ValueError(f"k must be between 1 and the number of tries, and {k} of {n} is not")
    if not 0 <= c <= n:
        raise ValueError(f"{c} of {n} cannot have passed")
