"""Estimate how far two arms are apart on other cases like these: the cases are the sample, not their trials."""

from __future__ import annotations

from math import fsum, sqrt

from whet.decide.quantiles import t_quantile
from whet.decide.variation import Values, Weights, mean, shared_cases, shares_of, variation
from whet.model.callable import Interval

# The variance of differences between cases if nothing is known of it, which counts as one case: with few cases that
# happen to agree, other cases may well differ.
_UNKNOWN_SPREAD = 0.5
_LEAST_CASES = 2


def difference_like_these(baseline: Values, candidate: Values, weights: Weights | None = None) -> Interval | None:
    """Return the difference with its interval for cases like these; None if there are fewer than two cases.

    A t interval of the differences of cases, to which one case of unknown spread is added.
    """
    shares = shares_of(shared_cases(baseline, candidate), weights)
    if shares is None or len(shares) < _LEAST_CASES:
        return None
    changes = {case: mean(candidate[case]) - mean(baseline[case]) for case in shares}
    value = fsum(share * changes[case] for case, share in shares.items())
    # The number of cases of equal weight that say as much.
    evenness = fsum(share * share for share in shares.values())
    count = 1 / evenness
    spread = fsum(share * (changes[case] - value) ** 2 for case, share in shares.items()) / (1 - evenness)
    enters = fsum(
        share * share * (1 / len(baseline[case]) + 1 / len(candidate[case])) for case, share in shares.items()
    )
    least = variation((baseline, candidate), shares).within * enters * count
    half = t_quantile(0.975, len(shares) - 1) * error_like_these(count, spread, least)
    return Interval(value=value + 0.0, low=max(-1.0, value - half), high=min(1.0, value + half))


def error_like_these(cases: float, spread: float, least: float = 0.0) -> float:
    """Return the standard error of a difference over so many cases; *spread* is the variance of their differences."""
    variance = ((cases - 1) * spread + max(least, _UNKNOWN_SPREAD)) / cases
    return sqrt(variance / cases)
