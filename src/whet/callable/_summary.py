"""Summarize the calls of a skill: completion, error rate, score, consistency, latency and composite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from statistics import pstdev
from typing import Any

from whet.grade.scores import Weights, by_task, composite, counted, weight_unit, wilson_interval
from whet.grade.statistics import Cluster, bootstrap, pass_at_k, passes_of, ratio
from whet.model.benchmark import (
    DEFAULT_MAX_LATENCY_MS,
    CompletionReport,
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
    ordered = sorted(values)
    return ordered[min(len(ordered), max(1, ceil(share * len(ordered)))) - 1]


def latency_of(samples: Iterable[Sample]) -> Latency | None:
    """Return the percentiles of the answers; None if there was no answer."""
    known = [sample.latency_ms for sample in samples if sample.answered and sample.latency_ms is not None]
    if not known:
        return None
    return Latency(p50_ms=percentile(known, 0.5), p95_ms=percentile(known, 0.95), p99_ms=percentile(known, 0.99))


def speed(samples: Iterable[Sample], max_latency_ms: float) -> float | None:
    """Return 1 for no latency to 0 for a p95 at the maximum; no answer counts as the maximum, so that it never pays."""
    taken = [
        max_latency_ms if not sample.answered or sample.latency_ms is None else min(sample.latency_ms, max_latency_ms)
        for sample in counted(samples)
    ]
    return 1 - percentile(taken, 0.95) / max_latency_ms if taken else None


def status_of(result: TrialResult) -> SampleStatus:
    """Return how a trial ended, in the words of reports."""
    if result.status == "errored":
        return "errored"
    if result.failure is None:
        return "pass"
    if result.failure.code == "assertion":
        return "fail"
    return "timeout" if result.failure.code == "timeout" else "error"


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
    known = counted(samples)
    clusters = _clusters(known, scoring, ks[0])
    completion = rate(known, lambda sample: sample.status == "pass")
    error_rate = rate(known, lambda sample: not sample.answered)
    quick = speed(known, max_latency_ms)
    consistency = consistency_of(known)
    whole = None
    if completion is not None and error_rate is not None and quick is not None:
        whole = composite(
            weights, completion=completion.value, speed=quick, error_rate=error_rate.value, consistency=consistency
        )
    return Summary(
        samples=len(samples),
        errored=len(samples) - len(known),
        completion=completion,
        error_rate=error_rate,
        score=ratio(clusters),
        score_interval=_interval(clusters),
        consistency=consistency,
        composite=whole,
        latency=latency_of(known),
        passes=tuple(found for found in (passes_of(known, k) for k in ks) if found is not None),
    )


def report_on(
    calls: Sequence[Sample],
    *,
    scoring: ScoringMethod,
    ks: tuple[int, ...],
    max_latency_ms: float,
    weights: Mapping[str, float],
    **about: Any,
) -> CompletionReport:
    """Return the report on *calls*; *about* are its other fields."""
    return CompletionReport(
        summary=summarize(calls, scoring=scoring, ks=ks, max_latency_ms=max_latency_ms, weights=Weights(**weights)),
        calls=tuple(calls),
        scoring=scoring,
        ks=ks,
        max_latency_ms=max_latency_ms,
        weights=weights,
        **about,
    )


def _interval(clusters: Sequence[Cluster]) -> Interval | None:
    """Return the interval of the score by resampling.

    Scores that are all equal say nothing about their spread. Then the interval is that of zeros and ones with the same
    mean, which are the furthest apart.
    """
    found = bootstrap(clusters)
    if found is None or found.low < found.high:
        return found
    low, high = wilson_interval(found.value, len(clusters))
    return Interval(value=found.value, low=low, high=high)


def rate(samples: Sequence[Sample], holds: Callable[[Sample], bool]) -> Interval | None:
    """Return the share of samples for which *holds* is true, with Wilson's interval; None without samples.

    Runs of one task are alike, so they count as fewer samples, by their spread between tasks. If all samples agree,
    the spread is unknown, and each task counts as one.
    """
    groups = [[holds(sample) for sample in found] for found in by_task(samples).values()]
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
    for sample in counted(samples):
        runs.setdefault(sample.run, []).append(sample.status == "pass")
    rates = [sum(found) / len(found) for found in runs.values()]
    return max(0.0, 1 - pstdev(rates)) if len(rates) > 1 else None


def _clusters(samples: Sequence[Sample], scoring: ScoringMethod, k: int) -> list[Cluster]:
    """Return what each task adds to the score, and to its divisor."""
    groups = by_task(samples).values()
    match scoring:
        case "mean":
            return [(sum(sample.score for sample in found), len(found)) for found in groups]
        case "weighted_mean":
            unit = weight_unit(sample.weight for sample in samples)
            tasks = [[(sample.score, sample.weight / unit) for sample in found] for found in groups]
            return [(sum(score * share for score, share in task), sum(share for _, share in task)) for task in tasks]
        case "pass_at_k":
            tries = [[sample.status == "pass" for sample in found] for found in groups]
            return [(pass_at_k(len(found), sum(found), k), 1) for found in tries if len(found) >= k]
