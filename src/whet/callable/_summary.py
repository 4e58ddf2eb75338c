"""Summarize the calls of a skill: completion, error rate, score, consistency, latency and composite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil
from statistics import pstdev

from whet.decide.resampling import Cluster, bootstrap, pass_at_k, passes_of, ratio
from whet.decide.scores import Weights, by_task, composite, drop_errored, weight_unit, wilson_interval
from whet.errors import AgentTimedOut
from whet.model.callable import (
    DEFAULT_MAX_LATENCY_MS,
    Interval,
    Latency,
    Sample,
    SampleStatus,
    ScoringMethod,
    Summary,
)
from whet.model.run import TrialResult


def percentile(values: Sequence[float], share: float) -> float:
    """Return the least value that *share* of all *values* do not exceed (nearest rank)."""
    if not values:
        raise ValueError("nothing has no percentile")
    ascending = sorted(values)
    return ascending[min(len(ascending), max(1, ceil(share * len(ascending)))) - 1]


def latency_of(samples: Iterable[Sample]) -> Latency | None:
    """Return the percentiles of the answers; None if there was no answer."""
    latencies = [sample.latency_ms for sample in samples if sample.answered and sample.latency_ms is not None]
    if not latencies:
        return None
    return Latency(
        p50_ms=percentile(latencies, 0.5), p95_ms=percentile(latencies, 0.95), p99_ms=percentile(latencies, 0.99)
    )


def speed(samples: Iterable[Sample], max_latency_ms: float) -> float | None:
    """Return 1 for no latency to 0 for a p95 at the maximum; no answer counts as the maximum, so that it never pays."""
    latencies = [
        max_latency_ms if not sample.answered or sample.latency_ms is None else min(sample.latency_ms, max_latency_ms)
        for sample in drop_errored(samples)
    ]
    return 1 - percentile(latencies, 0.95) / max_latency_ms if latencies else None


def status_of(result: TrialResult) -> SampleStatus:
    """Return how a trial ended, in the words of reports."""
    if result.status == "errored":
        return "errored"
    if result.failure is None:
        return "pass"
    if result.failure.is_of_checks:
        return "fail"
    return "timeout" if result.failure.code == AgentTimedOut.code else "error"


_USUAL = Weights()


def summarize(
    samples: Sequence[Sample],
    *,
    scoring: ScoringMethod = "mean",
    ks: Sequence[int] = (1,),
    max_latency_ms: float = DEFAULT_MAX_LATENCY_MS,
    weights: Weights = _USUAL,
) -> Summary:
    """Compute every figure of one skill on one benchmark; `pass_at_k` scores by the first of *ks*."""
    valid_samples = drop_errored(samples)
    clusters = _clusters(valid_samples, scoring, ks[0])
    completion = rate(valid_samples, lambda sample: sample.status == "pass")
    error_rate = rate(valid_samples, lambda sample: not sample.answered)
    quick = speed(valid_samples, max_latency_ms)
    consistency = consistency_of(valid_samples)
    composite_score = None
    if completion is not None and error_rate is not None and quick is not None:
        composite_score = composite(
            weights, completion=completion.value, speed=quick, error_rate=error_rate.value, consistency=consistency
        )
    return Summary(
        samples=len(samples),
        errored=len(samples) - len(valid_samples),
        completion=completion,
        error_rate=error_rate,
        score=ratio(clusters),
        score_interval=_interval(clusters),
        consistency=consistency,
        composite=composite_score,
        latency=latency_of(valid_samples),
        passes=tuple(passes for passes in (passes_of(valid_samples, k) for k in ks) if passes is not None),
    )


def _interval(clusters: Sequence[Cluster]) -> Interval | None:
    """Return the interval of the score by resampling.

    Scores that are all equal say nothing about their spread. Then the interval is that of zeros and ones with the same
    mean, which are the furthest apart.
    """
    interval = bootstrap(clusters)
    if interval is None or interval.low < interval.high:
        return interval
    low, high = wilson_interval(interval.value, len(clusters))
    return Interval(value=interval.value, low=low, high=high)


def rate(samples: Sequence[Sample], holds: Callable[[Sample], bool]) -> Interval | None:
    """Return the share of samples for which *holds* is true, with Wilson's interval; None without samples.

    Runs of one task are alike, so they count as fewer samples, by their spread between tasks. If all samples agree,
    the spread is unknown, and each task counts as one.
    """
    groups = [[holds(sample) for sample in task_samples] for task_samples in by_task(samples).values()]
    total = sum(map(len, groups))
    if not total:
        return None
    share = sum(map(sum, groups)) / total
    low, high = wilson_interval(share, _effective(groups, share, total))
    return Interval(value=share, low=low, high=high)


def _effective(groups: Sequence[Sequence[bool]], share: float, total: int) -> float:
    tasks = len(groups)
    if tasks == total:
        return total
    if share in {0, 1} or tasks == 1:
        return tasks
    # The variance of the share by whole tasks, against what independent samples would have.
    spread = sum((sum(group) - len(group) * share) ** 2 for group in groups) * tasks / (tasks - 1) / total**2
    return min(float(total), max(float(tasks), share * (1 - share) / spread if spread else total))


def consistency_of(samples: Iterable[Sample]) -> float | None:
    """Return 1 less the standard deviation of the completion of each run; None for fewer than two runs."""
    runs: dict[int, list[bool]] = {}
    for sample in drop_errored(samples):
        runs.setdefault(sample.run, []).append(sample.status == "pass")
    rates = [sum(outcomes) / len(outcomes) for outcomes in runs.values()]
    return max(0.0, 1 - pstdev(rates)) if len(rates) > 1 else None


def _clusters(samples: Sequence[Sample], scoring: ScoringMethod, k: int) -> list[Cluster]:
    """Return what each task adds to the score, and to its divisor."""
    groups = by_task(samples).values()
    match scoring:
        case "mean":
            return [(sum(sample.score for sample in task_values), len(task_values)) for task_values in groups]
        case "weighted_mean":
            unit = weight_unit(sample.weight for sample in samples)
            tasks = [[(sample.score, sample.weight / unit) for sample in task_values] for task_values in groups]
            return [(sum(score * share for score, share in task), sum(share for _, share in task)) for task in tasks]
        case "pass_at_k":
            tries = [[sample.status == "pass" for sample in task_values] for task_values in groups]
            return [
                (pass_at_k(len(task_values), sum(task_values), k), 1) for task_values in tries if len(task_values) >= k
            ]
