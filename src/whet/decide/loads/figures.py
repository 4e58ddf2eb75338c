"""Precision, recall and F1 of the loading of a skill, with intervals over queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from whet.decide.resampling import Cluster, bootstrap, ratio
from whet.decide.scores import wilson_interval
from whet.model.callable import Interval
from whet.model.grade import QueryLoads, TriggerFigures


def figures_of(arm: str, runner: str, queries: Sequence[QueryLoads]) -> TriggerFigures:
    """Return what the *queries* of one arm on one runner say together; sessions that cannot tell count nowhere."""
    counts = [_counts(query) for query in queries]
    rightly, wrongly, missed = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0, 0)
    told = sum(query.told for query in queries)
    return TriggerFigures(
        arm=arm,
        runner=runner,
        precision=_share((right, right + wrong) for right, wrong, _ in counts),
        recall=_share((right, right + missing) for right, _, missing in counts),
        f1=_f1(counts),
        rightly=rightly,
        wrongly=wrongly,
        missed=missed,
        left_alone=told - rightly - wrongly - missed,
        unknown=sum(query.sessions for query in queries) - told,
        queries=tuple(queries),
    )


def _counts(query: QueryLoads) -> tuple[int, int, int]:
    """Return how many sessions loaded the skill rightly and wrongly, and how many missed it."""
    if query.wanted:
        return query.loaded, 0, query.told - query.loaded
    return 0, query.loaded, 0


def _share(clusters: Iterable[Cluster]) -> Interval | None:
    """Return a share with the wider of two intervals: by resampling queries, and Wilson's for as many as there are.

    The first sees that trials of one query are alike, and says nothing where all are; the second does not.
    """
    deciding = [cluster for cluster in clusters if cluster[1]]
    value = ratio(deciding)
    if value is None:
        return None
    low, high = wilson_interval(value, len(deciding))
    resampled = bootstrap(deciding)
    if resampled is not None:
        low, high = min(low, resampled.low), max(high, resampled.high)
    return Interval(value=value, low=low, high=high)


def _f1(counts: Sequence[tuple[int, int, int]]) -> Interval | None:
    """Return F1, by the share of rightful loads among all that were made or missed: F1 grows with it alone."""
    share = _share((right, right + wrong + missing) for right, wrong, missing in counts)
    if share is None:
        return None
    return Interval(value=_to_f1(share.value), low=_to_f1(share.low), high=_to_f1(share.high))


def _to_f1(share: float) -> float:
    return 2 * share / (1 + share)
