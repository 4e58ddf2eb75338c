"""Estimate how many times as much one arm takes as another: money, time, tokens or steps.

Amounts have heavy tails: a few trials cost many times as much as the rest. So the interval covers two: one by the
variance of the amounts, which is right for many trials, and one by that of their logarithms (Cox), which is right for
few trials with a long tail.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, fsum, inf, log, sqrt

from msgspec import Struct

from whet.decide.quantiles import as_t
from whet.decide.scores import Z95
from whet.decide.variation import Values, mean, shared_cases, squares
from whet.model.callable import Interval

# Less than this of money, time, tokens or steps is nothing.
_LEAST_TAKEN = 1e-12
# The largest power of e that a number can hold is a little above.
_LARGEST_LOG = 700.0
_LEAST_FREEDOM = 2


class _Log(Struct, frozen=True):
    """The logarithm of a ratio, and how far its limits are away."""

    value: float
    half: float


def ratio_of_means(baseline: Values, candidate: Values, *, z: float = Z95) -> Interval | None:
    """Return how many times as much the candidate takes, with an interval that reaches as far as *z* says.

    Each case counts the same. None if an arm takes nothing, or if the cases that both have say nothing of the spread.
    """
    cases = shared_cases(baseline, candidate)
    arms = [[baseline[case] for case in cases], [candidate[case] for case in cases]]
    wholes = [mean([mean(values) for values in arm]) if arm else 0.0 for arm in arms]
    if min(wholes) < _LEAST_TAKEN:
        return None
    value = log(wholes[1] / wholes[0])
    by_amounts = _by_amounts(arms, wholes, value, z)
    if by_amounts is None:
        return None
    limits = [by_amounts, *_by_logarithms(arms, z)]
    low, high = min(limit.value - limit.half for limit in limits), max(limit.value + limit.half for limit in limits)
    return Interval(value=exp(value), low=exp(low), high=exp(high) if high < _LARGEST_LOG else inf)


def _by_amounts(
    arms: Sequence[Sequence[Sequence[float]]], wholes: Sequence[float], value: float, z: float
) -> _Log | None:
    """Return the limits by the variance of trials within cases, each as a share of what its arm takes."""
    parts: list[tuple[float, int]] = []
    for first, second in zip(*arms, strict=True):
        shares = [[amount / total for amount in values] for values, total in zip((first, second), wholes, strict=True)]
        every = [amount for values in shares for amount in values]
        variance = squares(every) / (len(every) - 1)
        if len(every) > len(shares):
            within_arms = fsum(squares(values) for values in shares) / (len(every) - len(shares))
            variance = (variance + within_arms) / 2
        parts.append((variance * (1 / len(first) + 1 / len(second)) / len(arms[0]) ** 2, len(every) - 1))
    total = fsum(part for part, _ in parts)
    spread = fsum(part * part / freedom for part, freedom in parts)
    if len(parts) == 1 and parts[0][1] == 1:
        return None
    freedom = max(_LEAST_FREEDOM, total * total / spread) if spread > 0 else _LEAST_FREEDOM
    return _Log(value, as_t(z, freedom) * sqrt(total))


def _by_logarithms(arms: Sequence[Sequence[Sequence[float]]], z: float) -> Sequence[_Log]:
    """Return the limits if logarithms of amounts are normal; nothing if a trial took nothing."""
    if any(amount < _LEAST_TAKEN for arm in arms for values in arm for amount in values):
        return ()
    logs = [[[log(amount) for amount in values] for values in arm] for arm in arms]
    freedoms = [sum(len(values) - 1 for values in arm) for arm in logs]
    middles = [mean([mean(values) for values in arm]) for arm in logs]
    if min(freedoms) == 0:
        return _by_pairs(logs, middles[1] - middles[0], z)
    variances = [fsum(map(squares, arm)) / freedom for arm, freedom in zip(logs, freedoms, strict=True)]
    thinnings = [fsum(1 / len(values) for values in arm) / len(arm) ** 2 for arm in logs]
    error = fsum(
        variance * thin + variance * variance / (2 * freedom)
        for variance, thin, freedom in zip(variances, thinnings, freedoms, strict=True)
    )
    # The mean of amounts is above that of their logarithms by half of the variance.
    value = middles[1] - middles[0] + (variances[1] - variances[0]) / 2
    return (_Log(value, as_t(z, sum(freedoms)) * sqrt(error)),)


def _by_pairs(logs: Sequence[Sequence[Sequence[float]]], value: float, z: float) -> Sequence[_Log]:
    """Return the limits by how far the arms are apart in each case, which may have one trial."""
    changes = [mean(second) - mean(first) for first, second in zip(*logs, strict=True)]
    if len(changes) == 1:
        return ()
    error = sqrt(squares(changes) / (len(changes) - 1) / len(changes))
    return (_Log(value, as_t(z, len(changes) - 1) * error),)
