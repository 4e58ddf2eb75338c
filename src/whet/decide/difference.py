"""Estimate how far two arms are apart on these cases: the interval that decides.

The cases are fixed and their trials are the sample, so more trials narrow the interval (`like_these.py` has the other
one). Values are from 0 to 1: whether the checks of a trial held, or its score. Nothing depends on chance or on the
order of cases, and no interval has a width of zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, erfc, fsum, sqrt

from whet.dataclass import dataclass
from whet.grade.quantiles import FARTHEST_Z, as_t
from whet.grade.scores import Z95, wilson_interval
from whet.grade.variation import (
    Shares,
    Values,
    Variation,
    Weights,
    of_one_trial,
    rate_of_arm,
    shared_cases,
    shares_of,
    thinning,
    variation,
)
from whet.model.benchmark import Interval

_STEPS = 40
# If all cases are alike, these limits would be a little too close: 6 % instead of 5 % of arms that are alike differ.
_CAUTION = 1.03
# A normal variable stays below it in 90 %.
_Z90 = 1.2815516


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The candidate's rate less the baseline's on the cases that both have, each with an interval.

    `error` is the standard error that the limits have, with all their caution, and `spread` the variance of one trial
    within its case, summed over both arms.
    """

    value: float
    low: float
    high: float
    baseline: Interval
    candidate: Interval
    error: float
    spread: float
    cases: int
    # How many times as far the limits reach because trials of a round went alike.
    stretch: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """How many rounds there were, and the variance of the difference as they show it."""

    count: int
    variance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """What trials do not show one by one, and the limits must still allow for.

    `variance` is added to that of the difference: verdicts that are wrong. `rounds` are known if each trial has one: a
    provider that is in another mood in each round moves all of its trials together.
    """

    variance: float = 0.0
    rounds: Rounds | None = None


NO_DOUBT = Doubt()


@dataclass(frozen=True, slots=True)
class _Arm:
    """The rate of one arm, and what a trial's variance is multiplied by to get that of the rate."""

    rate: float
    thinning: float

    def interval(self, share: float, z: float) -> Interval:
        """Return Wilson's interval with as many trials as those of these cases are worth."""
        low, high = wilson_interval(self.rate, 1 / (share * self.thinning), z)
        return Interval(value=self.rate, low=low, high=high)

    @property
    def spread(self) -> float:
        return of_one_trial(self.rate, 1 / self.thinning)


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two arms on the cases that both have."""

    baseline: _Arm
    candidate: _Arm
    variation: Variation
    cases: int
    doubt: Doubt

    def limits(self, z: float) -> tuple[Interval, Interval, float, float]:
        """Return the rates with their intervals, and how far the difference may be below and above what it is."""
        reach = _reach(z, self.variation)
        first, second = (arm.interval(self.variation.share, reach) for arm in (self.baseline, self.candidate))
        doubt = reach * sqrt(self.doubt.variance)
        stretch = self.stretch(z)
        below = _length(second.value - second.low, first.high - first.value, doubt) * stretch
        above = _length(second.high - second.value, first.value - first.low, doubt) * stretch
        return first, second, below, above

    def stretch(self, z: float) -> float:
        """Return how many times as far limits reach because trials of a round went alike."""
        return _stretch(self.doubt.rounds, self.variation, self.baseline.thinning + self.candidate.thinning, z)


def difference(
    baseline: Values,
    candidate: Values,
    weights: Weights | None = None,
    *,
    z: float = Z95,
    doubt: Doubt = NO_DOUBT,
) -> Difference | None:
    """Compare two arms on these cases by a stratified Newcombe interval; None if they share no case with a weight."""
    pair = _pair(baseline, candidate, weights, doubt)
    if pair is None:
        return None
    first, second, below, above = pair.limits(z)
    # Not -0.0, which would be shown with its sign.
    value = second.value - first.value + 0.0
    return Difference(
        value=value,
        low=max(-1.0, value - below),
        high=min(1.0, value + above),
        baseline=first,
        candidate=second,
        error=(below + above) / (2 * z) if z > 0 else 0.0,
        # As the limits have it: if trials hardly vary, that is more than was seen.
        spread=fsum(pair.variation.share * arm.spread for arm in (pair.baseline, pair.candidate)),
        cases=pair.cases,
        stretch=pair.stretch(z),
    )


def rate_on_these_cases(
    values: Values, weights: Weights | None = None, *, z: float = Z95, doubt: Doubt = NO_DOUBT
) -> Interval | None:
    """Return the rate of one arm with its interval on these cases; None without a value."""
    shares = shares_of(sorted(case for case, found in values.items() if found), weights)
    if shares is None:
        return None
    found, arm = variation([values], shares), _arm(values, shares)
    reach, stretch = _reach(z, found), _stretch(doubt.rounds, found, arm.thinning, z)
    plain, doubted = arm.interval(found.share, reach), reach * sqrt(doubt.variance)
    below, above = (stretch * _length(side, doubted) for side in (plain.value - plain.low, plain.high - plain.value))
    return Interval(value=plain.value, low=max(0.0, plain.value - below), high=min(1.0, plain.value + above))


def chance(baseline: Values, candidate: Values, weights: Weights | None = None, *, doubt: Doubt = NO_DOUBT) -> float:
    """Return how likely a difference as large as this is if there is none: where the interval begins to touch zero."""
    pair = _pair(baseline, candidate, weights, doubt)
    if pair is None or pair.baseline.rate == pair.candidate.rate:
        return 1.0
    value = pair.candidate.rate - pair.baseline.rate
    low, high = 0.0, FARTHEST_Z
    for _ in range(_STEPS):
        z = (low + high) / 2
        _, _, below, above = pair.limits(z)
        low, high = (z, high) if value > below or -value > above else (low, z)
    return erfc((low + high) / 2 / sqrt(2))


def case_chance(baseline: Sequence[float], candidate: Sequence[float]) -> float:
    """Return the same for one case; exactly (Fisher) if its trials pass or fail, because they are few."""
    if not all(value in (0.0, 1.0) for value in (*baseline, *candidate)):
        return chance({"": baseline}, {"": candidate})
    first, second, passed = len(baseline), len(candidate), round(sum(baseline) + sum(candidate))
    possible = range(max(0, passed - first), min(second, passed) + 1)
    ways = [comb(first, passed - each) * comb(second, each) for each in possible]
    seen = comb(first, round(sum(baseline))) * comb(second, round(sum(candidate)))
    return sum(way for way in ways if way <= seen) / comb(first + second, passed)


def holm(chances: Sequence[float]) -> list[float]:
    """Return each chance as it counts beside the others: the smallest times their number, and so on."""
    order = sorted(range(len(chances)), key=chances.__getitem__)
    adjusted, highest = [0.0] * len(chances), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(chances) - rank) * chances[place]))
        adjusted[place] = highest
    return adjusted


def _pair(baseline: Values, candidate: Values, weights: Weights | None, doubt: Doubt) -> _Pair | None:
    shares = shares_of(shared_cases(baseline, candidate), weights)
    if shares is None:
        return None
    arms = (baseline, candidate)
    return _Pair(_arm(baseline, shares), _arm(candidate, shares), variation(arms, shares), len(shares), doubt)


def _arm(values: Values, shares: Shares) -> _Arm:
    return _Arm(rate_of_arm(values, shares), thinning(values, shares))


def _reach(z: float, found: Variation) -> float:
    """Return how far limits reach whose variance is known from so many trials."""
    return _CAUTION * as_t(z, found.freedom)


def _stretch(rounds: Rounds | None, found: Variation, thinned: float, z: float) -> float:
    """Return how many times as far limits reach if rounds are farther apart than trials one by one would be."""
    expected = found.within * thinned
    if rounds is None or rounds.variance <= expected * _more_than_usual(rounds.count - 1):
        return 1.0
    # A variance that is known from few rounds is known less well than one from many trials.
    wider = as_t(z, rounds.count - 1) / as_t(z, found.freedom)
    return max(1.0, sqrt(rounds.variance / expected) * wider)


def _more_than_usual(freedom: int) -> float:
    """Return what a variance that is known from so little exceeds by chance in one of ten cases, as a multiple."""
    middle = 2 / (9 * freedom)
    return (1 - middle + _Z90 * sqrt(middle)) ** 3


def _length(*sides: float) -> float:
    return sqrt(fsum(side * side for side in sides))
