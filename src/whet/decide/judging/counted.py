"""A difference corrected for the judge by labels: *counted*, which assumes nothing about it, and Rogan-Gladen.

Counted adds to what the judge says what people say of each verdict in each arm. Rogan-Gladen divides by how much better
than a coin the judge is; it assumes that the judge errs alike in both arms, and so never changes a sign.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import ceil, fsum, sqrt

from msgspec import Struct
from msgspec.structs import replace

from whet.decide.difference import Difference, difference
from whet.decide.judging.agreement import JudgeRates
from whet.decide.judging.draw import labelled_strata
from whet.decide.judging.units import JudgedUnit, Place
from whet.decide.scores import Z95
from whet.decide.variation import Weights, mean, shared_cases, shares_of
from whet.model.callable import Interval
from whet.model.comparison import CountedDifference

# Each verdict of each arm needs so many labels.
FEWEST_OF_STRATUM = 5
_SLACK = 1.05

# What people say, by the place of the unit.
Truths = Mapping[Place, bool]


class _Cell(Struct, frozen=True):
    """The units of an arm in one stratum: what all of them count, and what the labels of some of them say.

    *mass* is the part that its units have in the rate of the arm; `worth` is how many labels of equal weight they are.
    """

    mass: float
    units: int
    labels: int
    true: float
    worth: float
    passed: bool

    @property
    def share(self) -> float:
        return self.true / self.worth

    @property
    def rectifier(self) -> float:
        return self.mass * (self.share - self.passed)

    def variance(self, labels: int) -> float:
        """Return its part in the variance of the rate, had it so many labels."""
        share = (self.true + 1) / (self.worth + 2)
        worth = self.worth * labels / self.labels
        return self.mass**2 * share * (1 - share) / worth * (1 - labels / self.units)


class _CountedArm(Struct, frozen=True):
    """One arm: its rate as the judge says, and its strata."""

    rate: float
    cells: tuple[_Cell, ...]

    @property
    def counted(self) -> float:
        return self.rate + fsum(cell.rectifier for cell in self.cells)


def counted_difference(
    baseline: Sequence[JudgedUnit],
    candidate: Sequence[JudgedUnit],
    truths: Truths,
    weights: Weights | None = None,
    *,
    z: float = Z95,
    stretch: float = 1.0,
) -> CountedDifference | None:
    """Return the difference as people count it; None if both arms share no case.

    *truths* are the labels that are sure, by the place of their unit. The limits of what the judge says reach *stretch*
    times as far if trials of a round went alike.
    """
    raw = raw_difference(baseline, candidate, weights, z=z)
    cases = _shared(baseline, candidate, weights)
    if raw is None or not cases:
        return None
    first, second = _side(baseline, truths, cases), _side(candidate, truths, cases)
    labels = sum(unit.place in truths for unit in (*baseline, *candidate) if unit.key.case in cases)
    missing = _missing(baseline, truths, cases) + _missing(candidate, truths, cases)
    if first is None or second is None or missing:
        return CountedDifference(labels=labels, missing=missing, raw=raw.value)
    sides = (first, second)
    value = second.counted - first.counted
    error = z * sqrt(_variance(sides, 1.0))
    raw = _stretch(raw, stretch)
    low, high = _limits(value, raw, error)
    return CountedDifference(
        labels=labels,
        missing=0,
        raw=raw.value,
        value=value,
        low=low,
        high=high,
        baseline=first.counted,
        candidate=second.counted,
        more=None if low > 0 or high < 0 else _more_labels(value, raw, sides, z),
    )


def raw_difference(
    baseline: Sequence[JudgedUnit], candidate: Sequence[JudgedUnit], weights: Weights | None = None, *, z: float = Z95
) -> Difference | None:
    """Return the difference of what the judge says of statements; a trial counts once, however many it has."""
    return difference(_values(baseline), _values(candidate), weights, z=z)


def _values(units: Sequence[JudgedUnit]) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for (case, _, _), members in _by_trial(units).items():
        values.setdefault(case, []).append(mean([float(unit.passed) for unit in members]))
    return values


def _by_trial(units: Sequence[JudgedUnit]) -> dict[tuple[str, str, int], list[JudgedUnit]]:
    trials: dict[tuple[str, str, int], list[JudgedUnit]] = {}
    for unit in units:
        trials.setdefault((unit.key.case, unit.run, unit.key.trial), []).append(unit)
    return trials


def _shared(
    baseline: Sequence[JudgedUnit], candidate: Sequence[JudgedUnit], weights: Weights | None
) -> dict[str, float]:
    return shares_of(shared_cases(_values(baseline), _values(candidate)), weights) or {}


def _side(units: Sequence[JudgedUnit], truths: Truths, cases: Mapping[str, float]) -> _CountedArm | None:
    """Return an arm; None if one of its strata has no label."""
    masses = _masses(units, cases)
    counting = [unit for unit in units if unit.place in masses]
    cells: list[_Cell] = []
    for members in _strata(counting, truths):
        cell = _cell(members, truths, masses)
        if cell is None:
            return None
        cells.append(cell)
    return _CountedArm(rate=fsum(cell.mass for cell in cells if cell.passed), cells=tuple(cells))


def _strata(units: Sequence[JudgedUnit], truths: Truths) -> Iterator[list[JudgedUnit]]:
    """Yield the strata of each run: those of a batch are of several suites, each with a draw of its own."""
    for run in dict.fromkeys(unit.run for unit in units):
        yield from labelled_strata([unit for unit in units if unit.run == run], truths)


def _cell(members: Sequence[JudgedUnit], truths: Truths, masses: Mapping[Place, float]) -> _Cell | None:
    """Return a stratum; None if it has no label."""
    mass = of_labels = of_true = squares = 0.0
    labels = 0
    for unit in members:
        weight = masses[unit.place]
        mass += weight
        if unit.place in truths:
            labels += 1
            of_labels += weight
            squares += weight * weight
            of_true += weight * truths[unit.place]
    if not labels:
        return None
    worth = of_labels**2 / squares
    return _Cell(
        mass=mass,
        units=len(members),
        labels=labels,
        true=of_true / of_labels * worth,
        worth=worth,
        passed=members[0].passed,
    )


def _masses(units: Sequence[JudgedUnit], cases: Mapping[str, float]) -> dict[Place, float]:
    """Return the part of each unit in the rate of its arm: cases count by weight, their trials and statements alike."""
    trials = _by_trial(units)
    counts = Counter(case for case, _, _ in trials)
    return {
        unit.place: cases[case] / counts[case] / len(members)
        for (case, _, _), members in trials.items()
        if case in cases
        for unit in members
    }


def _missing(units: Sequence[JudgedUnit], truths: Truths, cases: Mapping[str, float]) -> int:
    """Return how many labels an arm lacks: five of each verdict in each run, or all if there are fewer."""
    sizes, labels = Counter[tuple[str, bool]](), Counter[tuple[str, bool]]()
    for unit in units:
        if unit.key.case in cases:
            sizes[unit.run, unit.passed] += 1
            labels[unit.run, unit.passed] += unit.place in truths
    return sum(max(0, min(FEWEST_OF_STRATUM, size) - labels[verdict]) for verdict, size in sizes.items())


def _variance(sides: Sequence[_CountedArm], factor: float) -> float:
    """Return the variance that labels leave, had each stratum *factor* times as many."""
    return fsum(cell.variance(min(cell.units, ceil(cell.labels * factor))) for side in sides for cell in side.cells)


def _limits(value: float, raw: Difference, error: float) -> tuple[float, float]:
    low = value - sqrt((raw.value - raw.low) ** 2 + error**2)
    high = value + sqrt((raw.high - raw.value) ** 2 + error**2)
    return max(-1.0, low), min(1.0, high)


def _stretch(raw: Difference, stretch: float) -> Difference:
    below, above = (raw.value - raw.low) * stretch, (raw.high - raw.value) * stretch
    return replace(raw, low=raw.value - below, high=raw.value + above)


def _more_labels(value: float, raw: Difference, sides: Sequence[_CountedArm], z: float) -> int | None:
    """Return how many more labels would decide if what they say stays as it is; None if not even all of them would."""
    cells = [cell for side in sides for cell in side.cells]
    factor, most = 1.0, max(cell.units / cell.labels for cell in cells)
    while factor < most * _SLACK:
        factor = min(factor * _SLACK, most * _SLACK)
        low, high = _limits(value, raw, z * sqrt(_variance(sides, factor)))
        if low > 0 or high < 0:
            extra = (min(cell.units, ceil(cell.labels * factor)) - cell.labels for cell in cells)
            return sum(extra)
    return None


def better_than_coin(rates: JudgeRates) -> Interval | None:
    """Return J = TPR + TNR - 1 with its limits; None without those of both rates."""
    if rates.tpr is None or rates.tnr is None or rates.tpr_limits is None or rates.tnr_limits is None:
        return None
    value = rates.tpr + rates.tnr - 1
    below = sqrt((rates.tpr - rates.tpr_limits[0]) ** 2 + (rates.tnr - rates.tnr_limits[0]) ** 2)
    above = sqrt((rates.tpr_limits[1] - rates.tpr) ** 2 + (rates.tnr_limits[1] - rates.tnr) ** 2)
    return Interval(value=value, low=max(-1.0, value - below), high=min(1.0, value + above))


def rogan_gladen(raw: Interval, j: Interval | None) -> Interval | None:
    """Return raw / J with limits by MOVER-R; None if the judge is not known to be better than a coin."""
    if j is None or j.low <= 0:
        return None
    a, low, high = raw.value, raw.low, raw.high
    b, b_low, b_high = j.value, j.low, j.high
    below = max(0.0, (a * b) ** 2 - low * b_high * (2 * a - low) * (2 * b - b_high))
    above = max(0.0, (a * b) ** 2 - high * b_low * (2 * a - high) * (2 * b - b_low))
    return Interval(
        value=a / b,
        low=(a * b - sqrt(below)) / (b_high * (2 * b - b_high)),
        high=(a * b + sqrt(above)) / (b_low * (2 * b - b_low)),
    )


def corrected_rate(rate: float, rates: JudgeRates) -> float | None:
    """Return the rate of an arm as Rogan-Gladen corrects it, from 0 to 1."""
    if rates.tpr is None or rates.tnr is None or rates.tpr + rates.tnr <= 1:
        return None
    return min(1.0, max(0.0, (rate + rates.tnr - 1) / (rates.tpr + rates.tnr - 1)))
