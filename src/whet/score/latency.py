"""How long answers took."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil

from whet.model.benchmark import Latency, Sample
from whet.score.grouping import counted


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
