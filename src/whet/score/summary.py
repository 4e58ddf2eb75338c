"""From samples to what they say about a skill."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import pstdev

from whet.model.benchmark import DEFAULT_MAX_LATENCY_MS, Interval, Sample, ScoringMethod, Summary
from whet.score import weight_unit, wilson_interval
from whet.score.composite import Weights, composite
from whet.score.grouping import by_task, counted
from whet.score.latency import latency_of, speed
from whet.score.passes import pass_at_k, passes_of
from whet.score.resample import Cluster, bootstrap, ratio

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
