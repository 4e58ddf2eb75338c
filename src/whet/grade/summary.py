"""Summarize the samples of a skill: completion, consistency, latency and cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil
from statistics import pstdev

from whet.grade.scores import Weights, by_task, composite, counted, score_of, weight_unit, wilson_interval
from whet.grade.statistics import Cluster, bootstrap, pass_at_k, passes_of, ratio
from whet.model.benchmark import DEFAULT_MAX_LATENCY_MS, Interval, Latency, Sample, SampleStatus, ScoringMethod, Summary
from whet.model.grade import Failure, Grade


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest rank: the least value that *share* of all do not exceed."""
    if not values:
        raise ValueError("nothing has no percentile")
    ordered = sorted(values)
    return ordered[min(len(ordered), max(1, ceil(share * len(ordered)))) - 1]


def latency_of(samples: Iterable[Sample]) -> Latency | None:
    """The percentiles of the answers; none where nothing was answered."""
    known = [sample.latency_ms for sample in samples if sample.answered and sample.latency_ms is not None]
    if not known:
        return None
    return Latency(p50_ms=percentile(known, 0.5), p95_ms=percentile(known, 0.95), p99_ms=percentile(known, 0.99))


def speed(samples: Iterable[Sample], max_latency_ms: float) -> float | None:
    """From 1 (at once) to 0 (p95 at the maximum); a call without an answer took the maximum: silence gains nothing."""
    taken = [
        max_latency_ms if not sample.answered or sample.latency_ms is None else min(sample.latency_ms, max_latency_ms)
        for sample in counted(samples)
    ]
    return 1 - percentile(taken, 0.95) / max_latency_ms if taken else None


_TIMEOUT = "timeout"
_DECIDED = "assertion"


def sample_of(
    task: str, run: int, grades: Sequence[Grade], failure: Failure | None, *, latency_ms: float | None, weight: float
) -> Sample:
    """One call as data; a failure that is not the skill's doing makes it errored."""
    status = status_of(grades, failure)
    answered = status in {"pass", "fail"}
    return Sample(
        task=task,
        run=run,
        status=status,
        score=(score_of(grades) or 0.0) if answered else 0.0,
        latency_ms=latency_ms if answered else None,
        weight=weight,
    )


def status_of(grades: Sequence[Grade], failure: Failure | None) -> SampleStatus:
    """Return passed or failed if there was a decision, or else who is the reason that there was none."""
    if failure is None or failure.code == _DECIDED:
        return "pass" if grades and all(grade.passed for grade in grades) else "fail"
    if failure.cause != "agent":
        return "errored"
    return "timeout" if failure.code == _TIMEOUT else "error"


_USUAL = Weights()


def summarize(
    samples: Sequence[Sample],
    *,
    scoring: ScoringMethod = "mean",
    ks: Sequence[int] = (1,),
    max_latency_ms: float = DEFAULT_MAX_LATENCY_MS,
    weights: Weights = _USUAL,
    seed: int = 0,
) -> Summary:
    """Every figure of one skill on one benchmark; the first of *ks* is the one that `pass_at_k` scores by."""
    known = counted(samples)
    clusters = _clusters(known, scoring, ks[0])
    completion = rate(known, lambda sample: sample.status == "pass")
    error_rate = rate(known, lambda sample: not sample.answered)
    quick = speed(known, max_latency_ms)
    consistency = consistency_of(known)
    whole = None
    if completion is not None and error_rate is not None and quick is not None:
        whole = composite(
            weights,
            completion=completion.value,
            speed=quick,
            error_rate=error_rate.value,
            consistency=consistency,
        )
    return Summary(
        samples=len(samples),
        errored=len(samples) - len(known),
        completion=completion,
        error_rate=error_rate,
        score=ratio(clusters),
        score_interval=_interval(clusters, seed),
        consistency=consistency,
        composite=whole,
        latency=latency_of(known),
        passes=tuple(found for found in (passes_of(known, k) for k in ks) if found is not None),
    )


def _interval(clusters: Sequence[Cluster], seed: int) -> Interval | None:
    """The interval of the score by resampling; scores that are all alike tell nothing of their spread.

    Of all scores with the same mean none lie further apart than zeros and ones, so those decide there.
    """
    found = bootstrap(clusters, seed=seed)
    if found is None or found.low < found.high:
        return found
    low, high = wilson_interval(found.value, len(clusters))
    return Interval(value=found.value, low=low, high=high)


def rate(samples: Sequence[Sample], holds: Callable[[Sample], bool]) -> Interval | None:
    """The share of samples for which something holds, with Wilson's interval; none of nothing.

    Runs of one task are alike, so they count as fewer than they are: as many as their spread allows, and where all
    samples agree, which tells nothing of their spread, as one for each task.
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
    """1 where every run passes equally often, less the further they lie apart; none with fewer than two runs."""
    runs: dict[int, list[bool]] = {}
    for sample in counted(samples):
        runs.setdefault(sample.run, []).append(sample.status == "pass")
    rates = [sum(found) / len(found) for found in runs.values()]
    return max(0.0, 1 - pstdev(rates)) if len(rates) > 1 else None


def _clusters(samples: Sequence[Sample], scoring: ScoringMethod, k: int) -> list[Cluster]:
    """What each task adds to the score, and to what that is divided by."""
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
