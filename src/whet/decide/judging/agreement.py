"""How well a judge agrees with people: its rates on what is true and on what is false, from labels drawn by strata.

Units of one stratum have equal chances to be labelled, and strata have different ones. So each stratum counts by how
many units were judged in it, and not by how many of them have a label.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt
from typing import Literal

from msgspec import Struct

from whet.decide.scores import Z95, wilson_interval
from whet.model.callable import Interval

# With fewer labels of a kind, an interval says nothing that the counts do not.
FEWEST = 10
GOOD, POOR = 0.8, 0.7
_MOST_NEEDED = 100_000
Quality = Literal["good", "poor", "not known"]


class Stratum(Struct, frozen=True, kw_only=True):
    """Units with one verdict of the judge: how many there are, how many have a label, and how many labels are true."""

    arm: str
    passed: bool
    units: float
    labels: int
    true: int

    @property
    def share(self) -> float:
        """The share of its units that is true, as its labels say."""
        return self.true / self.labels

    @property
    def variance(self) -> float:
        """The variance of how many of its units are true: none is left once all have a label."""
        share = (self.true + 1) / (self.labels + 2)
        unseen = max(0.0, 1 - self.labels / self.units)
        return self.units**2 * share * (1 - share) / self.labels * unseen


class JudgeRates(Struct, frozen=True, kw_only=True):
    """How often a judge passes what is true (`tpr`) and fails what is false (`tnr`); None if no label says it.

    `true` and `false` are the labels of each kind. With fewer than ten, a rate has no limits.
    """

    true: int
    false: int
    tpr: float | None
    tpr_limits: tuple[float, float] | None
    tnr: float | None
    tnr_limits: tuple[float, float] | None


class PeopleAgreement(JudgeRates, frozen=True, kw_only=True):
    """A judge against people; `base_people` and `base_judge` are the shares that each of them calls true."""

    base_people: float
    base_judge: float
    precision: Interval | None
    agreement: Interval
    kappa: Interval | None

    @property
    def quality(self) -> Quality:
        """What the limits of both rates say: a bar of our own, and not a finding."""
        if self.tpr_limits is None or self.tnr_limits is None:
            return "not known"
        if min(self.tpr_limits[0], self.tnr_limits[0]) >= GOOD:
            return "good"
        return "poor" if min(self.tpr_limits[1], self.tnr_limits[1]) < POOR else "not known"


class _Cells(Struct):
    """How many units are true and passed (a), true and failed (b), false and failed (c), false and passed (d)."""

    a: float = 0.0
    b: float = 0.0
    c: float = 0.0
    d: float = 0.0
    # The variances of a, which is that of d, and of b, which is that of c.
    variance_a: float = 0.0
    variance_b: float = 0.0
    # Labels of each kind, and on each verdict.
    true: int = 0
    false: int = 0
    on_passes: int = 0
    on_fails: int = 0

    @classmethod
    def of(cls, strata: Iterable[Stratum]) -> _Cells:
        cells = cls()
        for stratum in strata:
            if stratum.labels:
                cells.add(stratum)
        return cells

    def add(self, stratum: Stratum) -> None:
        """Count a stratum."""
        true, false = stratum.units * stratum.share, stratum.units * (1 - stratum.share)
        self.true += stratum.true
        self.false += stratum.labels - stratum.true
        if stratum.passed:
            self.a += true
            self.d += false
            self.variance_a += stratum.variance
            self.on_passes += stratum.labels
        else:
            self.b += true
            self.c += false
            self.variance_b += stratum.variance
            self.on_fails += stratum.labels

    @property
    def total(self) -> float:
        return self.a + self.b + self.c + self.d


def rates_against_people(strata: Iterable[Stratum], z: float = Z95) -> JudgeRates:
    """Return how often the judge passes what is true, and fails what is false."""
    return _rates(_Cells.of(strata), z)


def _rates(cells: _Cells, z: float) -> JudgeRates:
    true, false = cells.a + cells.b, cells.c + cells.d
    tpr_variance = (cells.b**2 * cells.variance_a + cells.a**2 * cells.variance_b) / true**4 if true else 0.0
    tnr_variance = (cells.d**2 * cells.variance_b + cells.c**2 * cells.variance_a) / false**4 if false else 0.0
    return JudgeRates(
        true=cells.true,
        false=cells.false,
        tpr=cells.a / true if true else None,
        tpr_limits=_wilson(cells.a / true, tpr_variance, cells.true, z) if cells.true >= FEWEST else None,
        tnr=cells.c / false if false else None,
        tnr_limits=_wilson(cells.c / false, tnr_variance, cells.false, z) if cells.false >= FEWEST else None,
    )


def agreement_with_people(strata: Sequence[Stratum], z: float = Z95) -> PeopleAgreement | None:
    """Return how well the judge agrees with people; None without a label."""
    cells = _Cells.of(strata)
    if not cells.total:
        return None
    rates = _rates(cells, z)
    passes, fails = cells.a + cells.d, cells.b + cells.c
    observed = (cells.a + cells.c) / cells.total
    precision = (
        _interval(cells.a / passes, cells.variance_a / passes**2, cells.on_passes, z) if cells.on_passes else None
    )
    is_enough = min(cells.true, cells.false) >= FEWEST and passes > 0 and fails > 0
    return PeopleAgreement(
        true=rates.true,
        false=rates.false,
        tpr=rates.tpr,
        tpr_limits=rates.tpr_limits,
        tnr=rates.tnr,
        tnr_limits=rates.tnr_limits,
        base_people=(cells.a + cells.b) / cells.total,
        base_judge=passes / cells.total,
        precision=precision,
        agreement=_interval(
            observed,
            (cells.variance_a + cells.variance_b) / cells.total**2,
            cells.on_passes + cells.on_fails,
            z,
        ),
        kappa=_kappa_interval(cells, z) if is_enough else None,
    )


def _interval(share: float, variance: float, labels: int, z: float) -> Interval:
    low, high = _wilson(share, variance, labels, z)
    return Interval(value=share, low=low, high=high)


def _wilson(share: float, variance: float, labels: int, z: float) -> tuple[float, float]:
    """Return the limits of a share with as many labels as it is worth, at most those that there are."""
    kept = min(max(share, 0.5 / labels), 1 - 0.5 / labels)
    worth = min(labels, kept * (1 - kept) / variance) if variance > 0 else labels
    return wilson_interval(share, worth, z)


def _kappa_interval(cells: _Cells, z: float) -> Interval:
    """Return kappa with its limits: those of the true share of each verdict are moved one at a time (MOVER)."""
    passes, fails = cells.a + cells.d, cells.b + cells.c
    true_passed, true_failed = cells.a / passes, cells.b / fails

    def kappa(of_passed: float, of_failed: float) -> float:
        judge = passes / cells.total
        people = judge * of_passed + (1 - judge) * of_failed
        observed = judge * of_passed + (1 - judge) * (1 - of_failed)
        return kappa_of(observed, people, judge)

    value = kappa(true_passed, true_failed)
    passed_low, passed_high = _wilson(true_passed, cells.variance_a / passes**2, cells.on_passes, z)
    failed_low, failed_high = _wilson(true_failed, cells.variance_b / fails**2, cells.on_fails, z)
    below = sqrt((value - kappa(passed_low, true_failed)) ** 2 + (value - kappa(true_passed, failed_high)) ** 2)
    above = sqrt((kappa(passed_high, true_failed) - value) ** 2 + (kappa(true_passed, failed_low) - value) ** 2)
    return Interval(value=value, low=max(-1.0, value - below), high=min(1.0, value + above))


def kappa_of(observed: float, first: float, second: float) -> float:
    """Return how far two agree beyond chance, who call these shares true."""
    expected = first * second + (1 - first) * (1 - second)
    return (observed - expected) / (1 - expected) if expected < 1 else 0.0


class ArmDifference(Struct, frozen=True, kw_only=True):
    """By how much a rate of the judge is another in the candidate than in the baseline."""

    value: float
    low: float
    high: float


def rate_difference(
    baseline: float | None,
    baseline_limits: tuple[float, float] | None,
    candidate: float | None,
    candidate_limits: tuple[float, float] | None,
) -> ArmDifference | None:
    """Return the candidate's rate less the baseline's (Newcombe); None if one of them has no limits."""
    if baseline is None or candidate is None or baseline_limits is None or candidate_limits is None:
        return None
    value = candidate - baseline
    below = sqrt((candidate - candidate_limits[0]) ** 2 + (baseline_limits[1] - baseline) ** 2)
    above = sqrt((candidate_limits[1] - candidate) ** 2 + (baseline - baseline_limits[0]) ** 2)
    return ArmDifference(value=value, low=max(-1.0, value - below), high=min(1.0, value + above))


class Ceiling(Struct, frozen=True, kw_only=True):
    """How often two people agree who labelled the same: no judge can be known to do better."""

    pairs: int
    alike: int
    kappa: float | None


def ceiling_of(pairs: Sequence[tuple[bool, bool]]) -> Ceiling | None:
    """Return how far two people agree; None if no unit has two labels that are sure."""
    if not pairs:
        return None
    count, alike = len(pairs), pairs.count((True, True)) + pairs.count((False, False))
    first = (pairs.count((True, True)) + pairs.count((True, False))) / count
    second = (pairs.count((True, True)) + pairs.count((False, True))) / count
    kappa = kappa_of(alike / count, first, second) if count >= FEWEST else None
    return Ceiling(pairs=count, alike=alike, kappa=kappa)


def more_labels_for(rate: float | None, labels: int, least: float = GOOD) -> int | None:
    """Return how many more labels of a kind make the lower limit of a rate reach *least*; None if none would."""
    if rate is None or rate <= least:
        return None
    low, high = 1, _MOST_NEEDED
    if wilson_interval(rate, high)[0] < least:
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if wilson_interval(rate, middle)[0] >= least else (middle + 1, high)
    return max(0, low - labels)


class ThresholdRates(Struct, frozen=True, kw_only=True):
    """What a judge would be at another threshold, on the same labels: `j` is both rates together, less one."""

    rating: int
    tpr: float | None
    tnr: float | None
    j: float | None


def rates_by_threshold(rated: Sequence[tuple[float, bool, float]], ratings: Iterable[int]) -> list[ThresholdRates]:
    """Return the rates at each threshold, of labels as (rating, whether it is true, units that it stands for)."""
    rows: list[ThresholdRates] = []
    for least in ratings:
        tpr = _share_of([(weight, rating >= least) for rating, truth, weight in rated if truth])
        tnr = _share_of([(weight, rating < least) for rating, truth, weight in rated if not truth])
        j = None if tpr is None or tnr is None else tpr + tnr - 1
        rows.append(ThresholdRates(rating=least, tpr=tpr, tnr=tnr, j=j))
    return rows


def _share_of(entries: Sequence[tuple[float, bool]]) -> float | None:
    total = hits = 0.0
    for weight, holds in entries:
        total += weight
        hits += weight * holds
    return hits / total if total > 0 else None
