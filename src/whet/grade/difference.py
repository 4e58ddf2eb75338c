"""Estimate how far two arms are apart: on these cases, on cases like these, and what they cost.

*On these cases* the cases are fixed and their trials are the sample, so more trials narrow the interval. This one
decides. *On cases like these* the cases are the sample, and only more cases narrow it. Values are from 0 to 1: whether
the checks of a trial held, or its score. Nothing depends on chance or on the order of cases, and no interval has a
width of zero. Sums are exact (`fsum`), so that no order of cases or trials changes a last digit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb, erfc, exp, fsum, inf, log, sqrt
from typing import TypeAlias

from whet.dataclass import dataclass
from whet.grade.quantiles import FARTHEST_Z, as_t, t_quantile
from whet.grade.scores import Z95, weight_unit, wilson_interval
from whet.model.benchmark import Interval

# The values of the trials of each case.
Values: TypeAlias = Mapping[str, Sequence[float]]
Weights: TypeAlias = Mapping[str, float]

# So many cases of the pooled variance are added to those that were seen, because few trials say little about it.
_ADDED_CASES = 2
# The least share of the variance that lies within cases; scores may hardly vary within a case.
_LEAST_BINARY, _LEAST_GRADED = 0.5, 0.25
_STEPS = 40
# If all cases are alike, these limits would be a little too close: 6 % instead of 5 % of arms that are alike differ.
_CAUTION = 1.03
# The variance of differences between cases if nothing is known of it, which counts as one case: with few cases that
# happen to agree, other cases may well differ.
_UNKNOWN_SPREAD = 0.5
_LEAST_CASES = 2
# Less than this of money, time, tokens or steps is nothing.
_LEAST_TAKEN = 1e-12
# The largest power of e that a number can hold is a little above.
_LARGEST_LOG = 700.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The candidate's rate less the baseline's on the cases that both have, each with an interval.

    `error` is the standard error, and `spread` the variance of one trial within its case, summed over both arms.
    """

    value: float
    low: float
    high: float
    baseline: Interval
    candidate: Interval
    error: float
    spread: float
    cases: int


@dataclass(frozen=True, slots=True)
class _Arm:
    """What is known of one arm: its rate, and the variance of a trial within its case and in all."""

    rate: float
    within: float
    pooled: float
    # The sum of all values, and how many these are.
    taken: float
    count: int
    # The sum of squared weights over trials: what one trial's variance is multiplied by to get that of the rate.
    thinning: float

    def interval(self, ratio: float, z: float) -> Interval:
        """Return Wilson's interval with as many trials as those of these cases are worth."""
        low, high = wilson_interval(self.rate, 1 / (ratio * self.thinning), z)
        return Interval(value=self.rate, low=low, high=high)


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two arms on the cases that both have; `ratio` is the share of the variance that lies within cases."""

    baseline: _Arm
    candidate: _Arm
    ratio: float
    cases: int
    # The trials of the arm that has fewer.
    trials: int

    def limits(self, z: float) -> tuple[Interval, Interval, float, float]:
        """Return the rates with their intervals, and the limits of the difference."""
        z = _cautious(z, self.trials)
        first, second = self.baseline.interval(self.ratio, z), self.candidate.interval(self.ratio, z)
        value = second.value - first.value
        low = value - _distance(second.value - second.low, first.high - first.value)
        high = value + _distance(second.high - second.value, first.value - first.low)
        return first, second, max(-1.0, low), min(1.0, high)


def shared_cases(baseline: Values, candidate: Values) -> list[str]:
    """Return the cases that have a value in both arms, sorted."""
    return sorted(case for case, values in baseline.items() if values and candidate.get(case))


def difference(
    baseline: Values, candidate: Values, weights: Weights | None = None, *, z: float = Z95
) -> Difference | None:
    """Compare two arms on these cases by a stratified Newcombe interval; None if they share no case with a weight."""
    pair = _pair(baseline, candidate, weights)
    if pair is None:
        return None
    first, second, low, high = pair.limits(z)
    arms = (pair.baseline, pair.candidate)
    return Difference(
        # Not -0.0, which would be shown with its sign.
        value=second.value - first.value + 0.0,
        low=low,
        high=high,
        baseline=first,
        candidate=second,
        error=sqrt(fsum(arm.within * arm.thinning for arm in arms)),
        # As the limits have it: if trials hardly vary, that is more than was seen.
        spread=fsum(pair.ratio * arm.pooled for arm in arms),
        cases=pair.cases,
    )


def rate_on_these_cases(values: Values, weights: Weights | None = None, *, z: float = Z95) -> Interval | None:
    """Return the rate of one arm with its interval on these cases; None without a value."""
    shares = _shares(sorted(case for case, found in values.items() if found), weights)
    if shares is None:
        return None
    arm = _arm(values, shares)
    trials = sum(len(values[case]) for case in shares)
    return arm.interval(_ratio((arm,), binary=_is_binary(values, values, shares)), _cautious(z, trials))


def difference_like_these(baseline: Values, candidate: Values, weights: Weights | None = None) -> Interval | None:
    """Return the difference with its interval for cases like these; None if there are fewer than two cases.

    A t interval of the differences of cases, to which one case of unknown spread is added.
    """
    shares = _shares(shared_cases(baseline, candidate), weights)
    if shares is None or len(shares) < _LEAST_CASES:
        return None
    first, second = _arm(baseline, shares), _arm(candidate, shares)
    changes = {case: _mean(candidate[case]) - _mean(baseline[case]) for case in shares}
    value = fsum(share * changes[case] for case, share in shares.items())
    squares = fsum(share * share for share in shares.values())
    # The number of cases of equal weight that say as much.
    count = 1 / squares
    spread = fsum(share * (changes[case] - value) ** 2 for case, share in shares.items()) / (1 - squares)
    least = (first.within * first.thinning + second.within * second.thinning) * count
    variance = ((count - 1) * spread + max(least, _UNKNOWN_SPREAD)) / count
    half = t_quantile(0.975, len(shares) - 1) * sqrt(variance / count)
    return Interval(value=value + 0.0, low=max(-1.0, value - half), high=min(1.0, value + half))


def chance(baseline: Values, candidate: Values, weights: Weights | None = None) -> float:
    """Return how likely a difference as large as this is if there is none: where the interval begins to touch zero."""
    pair = _pair(baseline, candidate, weights)
    if pair is None or pair.baseline.rate == pair.candidate.rate:
        return 1.0
    low, high = 0.0, FARTHEST_Z
    for _ in range(_STEPS):
        z = (low + high) / 2
        _, _, least, most = pair.limits(z)
        low, high = (z, high) if least > 0 or most < 0 else (low, z)
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


def ratio_of_means(baseline: Values, candidate: Values) -> Interval | None:
    """Return how many times as much the candidate takes, such as money or time, with its 95 % interval.

    Each case counts the same. None if an arm takes nothing, or if the cases that both have say nothing of the spread.
    """
    cases = shared_cases(baseline, candidate)
    first, second = _amount(baseline, cases), _amount(candidate, cases)
    if first is None or second is None:
        return None
    value = second[0] / first[0]
    half = t_quantile(0.975, max(1, first[2] + second[2])) * sqrt(first[1] + second[1])
    return Interval(value=value, low=value * exp(-half), high=_finite(log(value) + half))


def _finite(logarithm: float) -> float:
    return exp(logarithm) if logarithm < _LARGEST_LOG else inf


def _amount(values: Values, cases: Sequence[str]) -> tuple[float, float, int] | None:
    """Return the mean over cases, the relative variance of that mean, and the degrees of freedom it has."""
    means = [_mean(values[case]) for case in cases]
    whole = _mean(means) if means else 0.0
    if whole < _LEAST_TAKEN:
        return None
    freedom = sum(len(values[case]) - 1 for case in cases)
    if freedom:
        variance = fsum(_squares(values[case]) for case in cases) / freedom
    else:
        # One trial of each case: how far cases differ is more than how far trials of one case do.
        freedom, variance = len(cases) - 1, (_squares(means) / (len(means) - 1) if len(means) > 1 else 0.0)
        if freedom == 0:
            return None
    thinning = fsum(1 / len(values[case]) for case in cases) / len(cases) ** 2
    return whole, variance * thinning / whole**2, freedom


def _pair(baseline: Values, candidate: Values, weights: Weights | None) -> _Pair | None:
    shares = _shares(shared_cases(baseline, candidate), weights)
    if shares is None:
        return None
    first, second = _arm(baseline, shares), _arm(candidate, shares)
    ratio = _ratio((first, second), binary=_is_binary(baseline, candidate, shares))
    trials = min(sum(len(arm[case]) for case in shares) for arm in (baseline, candidate))
    return _Pair(first, second, ratio, len(shares), trials)


def _ratio(arms: Sequence[_Arm], *, binary: bool) -> float:
    """Return the share of the variance that lies within cases.

    Trials that all end alike, in both arms, do not tell it: the first that does not may be of any case. So what of the
    variance no trial has shown yet counts as if it were within cases.
    """
    seen = fsum(arm.within for arm in arms) / fsum(arm.pooled for arm in arms)
    taken, count = fsum(arm.taken for arm in arms), sum(arm.count for arm in arms)
    rate = taken / count
    unseen = 1 - rate * (1 - rate) / _pooled(taken, count)
    least = _LEAST_BINARY if binary else _LEAST_GRADED
    return min(1.0, max(least, seen + max(0.0, unseen)))


def _pooled(taken: float, count: int) -> float:
    """Return the most that values can vary: as zeros and ones, with one more of each."""
    middle = (taken + 1) / (count + 2)
    return middle * (1 - middle)


def _cautious(z: float, trials: int) -> float:
    """Return how far limits reach that are known from so many trials."""
    return _CAUTION * as_t(z, trials - 1)


def _shares(cases: Sequence[str], weights: Weights | None) -> dict[str, float] | None:
    """Return the share of each case; cases without weight are left out."""
    given = {case: (weights or {}).get(case, 1.0) for case in cases}
    unit = weight_unit(given.values())
    scaled = {case: weight / unit for case, weight in given.items() if weight > 0}
    whole = fsum(scaled.values())
    return {case: weight / whole for case, weight in scaled.items()} if whole > 0 else None


def _is_binary(baseline: Values, candidate: Values, cases: Mapping[str, float]) -> bool:
    return all(value in (0.0, 1.0) for arm in (baseline, candidate) for case in cases for value in arm[case])


def _arm(values: Values, shares: Mapping[str, float]) -> _Arm:
    found = [values[case] for case in shares]
    count = sum(len(each) for each in found)
    taken = fsum(value for each in found for value in each)
    pooled = _pooled(taken, count)
    total = (_squares([value for each in found for value in each]) * count / max(1, count - 1) + 2 * pooled) / (
        count + 2
    )
    known = [_squares(each) / (len(each) - 1) for each in found if len(each) > 1]
    within = (fsum(known) + _ADDED_CASES * total) / (len(known) + _ADDED_CASES) if known else total
    return _Arm(
        rate=fsum(share * _mean(values[case]) for case, share in shares.items()),
        within=within,
        pooled=pooled,
        taken=taken,
        count=count,
        thinning=fsum(share * share / len(values[case]) for case, share in shares.items()),
    )


def _distance(one: float, other: float) -> float:
    return sqrt(one * one + other * other)


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values)


def _squares(values: Sequence[float]) -> float:
    """Return the sum of squared distances from the mean."""
    middle = _mean(values)
    return fsum((value - middle) ** 2 for value in values)
