"""Estimate how much trials of a case vary: that decides how far two arms can be apart by chance.

A trial counts for more if cases differ from each other and not from trial to trial: a case that always passes adds no
chance. So everything is about the variance *within* cases, summed as it enters the result: a case with a large weight
or few trials counts by the square of its weight over its trials. Pass or fail and scores between are treated alike.
Sums are exact (`fsum`), so that no order of cases or trials changes a last digit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from typing import TypeAlias

from msgspec import Struct

from whet.decide.scores import weight_unit

# The values of the trials of each case.
Values: TypeAlias = Mapping[str, Sequence[float]]
Weights: TypeAlias = Mapping[str, float]
# The part that each case has in the whole; together they are 1.
Shares: TypeAlias = Mapping[str, float]

# So many cases that vary as much as all trials together are added to those that were seen, since few trials that agree
# say little.
_ADDED_CASES = 1.5
# An added case, and what no trial has shown, counts fully if all trials pass or fail. Scores in between show sooner how
# they vary, so it counts by the share of trials that are at an end, and at least by so much.
_LEAST_OF_SCORES = 0.25
# Around the mean of both arms, a case that one arm passes and the other fails varies; around the mean of its own arm it
# does not. The first alone hides real differences; the second alone takes one unstable case for a difference.
_AROUND_BOTH = 0.5
# To say from how many trials the variance is known, each case is moved towards the average by so many trials.
_STEADYING = 20
_LEAST_FREEDOM = 2


class Variation(Struct, frozen=True, kw_only=True):
    """How trials vary within their cases, in all arms together.

    `within` is the variance of a trial within its case, and `share` the part that it has in the variance of trials
    that pass or fail at this rate. `freedom` is how many trials it is known from, as degrees of freedom.
    """

    within: float
    share: float
    freedom: float


def shared_cases(baseline: Values, candidate: Values) -> list[str]:
    """Return the cases that have a value in both arms, sorted."""
    return sorted(case for case, values in baseline.items() if values and candidate.get(case))


def shares_of(cases: Sequence[str], weights: Weights | None) -> dict[str, float] | None:
    """Return the part of each case; cases without weight are left out, and None if none is left."""
    case_weights = {case: (weights or {}).get(case, 1.0) for case in cases}
    unit = weight_unit(case_weights.values())
    relative_weights = {case: weight / unit for case, weight in case_weights.items() if weight > 0}
    total = fsum(relative_weights.values())
    return {case: weight / total for case, weight in relative_weights.items()} if total > 0 else None


def thinning(values: Values, shares: Shares) -> float:
    """Return what the variance of one trial is multiplied by to get that of the rate of an arm."""
    return fsum(share * share / len(values[case]) for case, share in shares.items())


def rate_of_arm(values: Values, shares: Shares) -> float:
    """Return the rate of an arm: the weighted mean of its cases."""
    return fsum(share * mean(values[case]) for case, share in shares.items())


def mean(values: Sequence[float]) -> float:
    """Return the mean, exactly rounded."""
    return fsum(values) / len(values)


def of_one_trial(rate: float, trials: float, arms: int = 1) -> float:
    """Return the variance of trials that pass or fail at that rate, with one more of each in every arm."""
    middle = (rate * trials + arms) / (trials + 2 * arms)
    return middle * (1 - middle)


class _CaseVariation(Struct, frozen=True):
    """One case in all arms: how it enters the result, and what its trials say."""

    # The square of its share, over its trials, summed over arms.
    enters: float
    trials: int
    mean: float
    mean_square: float
    # The variance of a trial within it; None if it has one trial.
    variance: float | None
    # How many of its trials are 0 or 1.
    at_ends: int

    @property
    def freedom(self) -> int:
        return max(1, self.trials - 1)


def variation(arms: Sequence[Values], shares: Shares) -> Variation:
    """Return how trials vary within the cases of *shares*, of which every arm has a trial."""
    cases = [_case([arm[case] for arm in arms], share) for case, share in shares.items()]
    trials = sum(case.trials for case in cases)
    total_entry = fsum(case.enters for case in cases)
    # Every case counts once here: of what none of them has shown, a light one may show as much as a heavy one.
    plain = fsum(case.mean for case in cases) / len(cases)
    most = of_one_trial(plain, trials)
    total = _total(cases, total_entry, trials, most)
    variances = [(case, total if case.variance is None else case.variance) for case in cases]
    doubt = max(_LEAST_OF_SCORES, sum(case.at_ends for case in cases) / trials)
    prior_weight = doubt * _ADDED_CASES / len(cases)
    within = (fsum(case.enters * variance for case, variance in variances) / total_entry + prior_weight * total) / (
        1 + prior_weight
    )
    # Trials that all end alike do not tell how they vary: the first that does not may be of any case.
    unseen = doubt * max(0.0, 1 - plain * (1 - plain) / most)
    share = within / of_one_trial(*_pooled_rate(arms, shares), arms=len(arms)) + unseen
    # If all cases count the same, they cannot vary by more than trials at this rate do.
    is_even = len({*shares.values()}) == 1
    return Variation(
        within=within, share=min(1.0, share) if is_even else share, freedom=_freedom(variances, within, arms, shares)
    )


def _case(arms: Sequence[Sequence[float]], share: float) -> _CaseVariation:
    every = [value for values in arms for value in values]
    enters = share * share * fsum(1 / len(values) for values in arms)
    square = fsum(value * value for value in every) / len(every)
    at_ends = sum(value in (0.0, 1.0) for value in every)
    if len(every) == 1:
        return _CaseVariation(enters, 1, every[0], square, None, at_ends)
    variance = squares(every) / (len(every) - 1)
    if len(every) > len(arms):
        within_arms = fsum(squares(values) for values in arms) / (len(every) - len(arms))
        variance = _AROUND_BOTH * variance + (1 - _AROUND_BOTH) * within_arms
    return _CaseVariation(enters, len(every), mean(every), square, variance, at_ends)


def _total(cases: Sequence[_CaseVariation], total_entry: float, trials: int, most: float) -> float:
    """Return the variance of all trials, within cases and between them, with two trials more that are far apart."""
    middle = fsum(case.enters * case.mean for case in cases) / total_entry
    variance = fsum(case.enters * case.mean_square for case in cases) / total_entry - middle * middle
    return (max(0.0, variance) * trials * trials / max(1, trials - 1) + 2 * most) / (trials + 2)


def _pooled_rate(arms: Sequence[Values], shares: Shares) -> tuple[float, float]:
    """Return the rate of all arms together, and how many trials they are worth."""
    worth = [1 / thinning(arm, shares) for arm in arms]
    total = fsum(worth)
    rate = fsum(weight * rate_of_arm(arm, shares) for weight, arm in zip(worth, arms, strict=True)) / total
    return rate, total


def _freedom(
    variances: Sequence[tuple[_CaseVariation, float]], within: float, arms: Sequence[Values], shares: Shares
) -> float:
    """Return from how many trials the variance is known (Satterthwaite), at most those of the arm that has fewest."""
    parts = [
        (case.enters * (case.freedom * variance + _STEADYING * within) / (case.freedom + _STEADYING), case.freedom)
        for case, variance in variances
    ]
    spread = fsum(part * part / freedom for part, freedom in parts)
    effective = fsum(part for part, _ in parts) ** 2 / spread if spread > 0 else 0.0
    fewest = min(sum(len(arm[case]) for case in shares) for arm in arms)
    return max(1.0, min(max(_LEAST_FREEDOM, effective), fewest - 1))


def squares(values: Sequence[float]) -> float:
    """Return the sum of squared distances from the mean."""
    middle = mean(values)
    return fsum((value - middle) ** 2 for value in values)
