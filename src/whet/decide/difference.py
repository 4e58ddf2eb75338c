"""Estimate how far two arms are apart on these cases: the interval that decides.

The cases are fixed and their trials are the sample, so more trials narrow the interval (`like_these.py` has the other
one). Values are from 0 to 1: whether the checks of a trial held, or its score. Nothing depends on chance or on the
order of cases, and no interval has a width of zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, erfc, fsum, sqrt

from msgspec import Struct

from whet.decide.quantiles import FARTHEST_Z, as_t
from whet.decide.scores import Z95, wilson_interval
from whet.decide.variation import (
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
from whet.model.callable import Interval

_STEPS = 40
# If all cases are alike, these limits would be a little too close: 6 % instead of 5 % of arms that are alike differ.
_CAUTION = 1.03
# A normal variable stays below it in 97.5 %.
_Z975 = 1.9599640
# What is known of rounds before they are seen counts for so many: few rounds say little about how far they are apart.
_ROUNDS_BEFORE = 4
# If cases are nearly settled, the few trials that go another way are rare events: their number is skewed, and Wilson's
# limits know of that only as far as trials vary within cases. This part of the rest is allowed for,
# and less of it with about so few trials, whose limits are far away as it is.
_SKEW = 0.5
_TRIALS_OF_SKEW = 20


class Difference(Struct, frozen=True, kw_only=True):
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


class RoundVariance(Struct, frozen=True, kw_only=True):
    """How many rounds there were, and the variance of the difference as they show it."""

    count: int
    variance: float


class Doubt(Struct, frozen=True, kw_only=True):
    """What trials do not show one by one, and the limits must still allow for.

    `variance` is added to that of the difference: verdicts that are wrong. `rounds` are known if each trial has one: a
    provider that is in another mood in each round moves all of its trials together.
    """

    variance: float = 0.0
    rounds: RoundVariance | None = None


NO_DOUBT = Doubt()


class _ArmRate(Struct, frozen=True):
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


class _Pair(Struct, frozen=True):
    """Two arms on the cases that both have."""

    baseline: _ArmRate
    candidate: _ArmRate
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

    def caution(self, z: float) -> float:
        """Return how much farther the difference may be away since few trials of settled cases go another way."""
        thinnings = (self.baseline.thinning, self.candidate.thinning)
        skew = z * z * _SKEW * (1 - min(1.0, self.variation.share)) / (1 / max(thinnings) + _TRIALS_OF_SKEW) / 2
        plain = z * sqrt(self.variation.within * fsum(thinnings) + self.doubt.variance)
        return (skew + _length(plain, skew) - plain) * self.stretch(z)

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
    caution = pair.caution(z)
    low, high = value - below, value + above
    return Difference(
        value=value,
        # Arms are called different as the limits say; how different they may be still, takes more caution.
        low=low if low > 0 else max(-1.0, low - caution),
        high=high if high < 0 else min(1.0, high + caution),
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
    shares = shares_of(sorted(case for case, case_values in values.items() if case_values), weights)
    if shares is None:
        return None
    trial_variation, arm = variation([values], shares), _arm(values, shares)
    reach, stretch = _reach(z, trial_variation), _stretch(doubt.rounds, trial_variation, arm.thinning, z)
    plain, doubt_reach = arm.interval(trial_variation.share, reach), reach * sqrt(doubt.variance)
    below, above = (
        stretch * _length(side, doubt_reach) for side in (plain.value - plain.low, plain.high - plain.value)
    )
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
    """Return the chance of one case; exactly (Fisher) if its trials pass or fail, because they are few."""
    if not all(value in (0.0, 1.0) for value in (*baseline, *candidate)):
        return chance({"": baseline}, {"": candidate})
    first, second, passes = len(baseline), len(candidate), round(sum(baseline) + sum(candidate))
    possible = range(max(0, passes - first), min(second, passes) + 1)
    ways = [comb(first, passes - candidate_passes) * comb(second, candidate_passes) for candidate_passes in possible]
    observed_ways = comb(first, round(sum(baseline))) * comb(second, round(sum(candidate)))
    return sum(way for way in ways if way <= observed_ways) / comb(first + second, passes)


def holm(chances: Sequence[float]) -> list[float]:
    """Return each chance as it counts beside the others: the smallest times their number, and so on."""
    order = sorted(range(len(chances)), key=chances.__getitem__)
    results, highest = [0.0] * len(chances), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(chances) - rank) * chances[place]))
        results[place] = highest
    return results


def discoveries(chances: Sequence[float]) -> list[float]:
    """Return each chance so that of those below a bound at most that share is there by chance (Benjamini-Hochberg).

    Holm asks that none is, which finds nothing in hundreds of changes.
    """
    order = sorted(range(len(chances)), key=chances.__getitem__, reverse=True)
    results, lowest = [0.0] * len(chances), 1.0
    for rank, place in enumerate(order):
        lowest = min(lowest, chances[place] * len(chances) / (len(chances) - rank))
        results[place] = lowest
    return results


def _pair(baseline: Values, candidate: Values, weights: Weights | None, doubt: Doubt) -> _Pair | None:
    shares = shares_of(shared_cases(baseline, candidate), weights)
    if shares is None:
        return None
    arms = (baseline, candidate)
    return _Pair(_arm(baseline, shares), _arm(candidate, shares), variation(arms, shares), len(shares), doubt)


def _arm(values: Values, shares: Shares) -> _ArmRate:
    return _ArmRate(rate_of_arm(values, shares), thinning(values, shares))


def _reach(z: float, trial_variation: Variation) -> float:
    """Return how far limits reach whose variance is known from so many trials."""
    return _CAUTION * as_t(z, trial_variation.freedom)


def _stretch(rounds: RoundVariance | None, trial_variation: Variation, total_thinning: float, z: float) -> float:
    """Return how many times as far limits reach if rounds are farther apart than trials one by one would be.

    The variance that rounds show is moved towards the usual one; if it is far beyond chance, it counts as it is.
    """
    if rounds is None:
        return 1.0
    usual_variance, freedom = trial_variation.within * total_thinning, rounds.count - 1
    steadied = (freedom * rounds.variance + _ROUNDS_BEFORE * usual_variance) / (freedom + _ROUNDS_BEFORE)
    estimates = [(steadied, freedom + _ROUNDS_BEFORE)]
    if rounds.variance > usual_variance * _beyond_chance(freedom):
        estimates.append((rounds.variance, freedom))
    # A variance that is known from few rounds is known less well than one from many trials.
    wider = (
        sqrt(variance / usual_variance) * as_t(z, known_from) / as_t(z, trial_variation.freedom)
        for variance, known_from in estimates
        if variance > usual_variance
    )
    return max([1.0, *wider])


def _beyond_chance(freedom: int) -> float:
    """Return what a variance that is known from so little exceeds by chance in one of forty cases, as a multiple."""
    middle = 2 / (9 * freedom)
    return (1 - middle + _Z975 * sqrt(middle)) ** 3


def _length(*sides: float) -> float:
    return sqrt(fsum(side * side for side in sides))
