"""Quantiles of the normal and the t distribution; a library for them takes a second to import."""

from __future__ import annotations

from functools import lru_cache
from math import erfc, exp, lgamma, log, sqrt

# Farther out there is nothing to see.
FARTHEST_Z = 40.0
_STEPS = 200
_TINY = 1e-300
_CLOSE = 1e-14


@lru_cache
def t_quantile(share: float, degrees: int) -> float:
    """The value that a t variable stays below with probability *share* (above one half)."""
    low, high = 0.0, 1e8
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if _cdf(middle, degrees) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _cdf(value: float, degrees: int) -> float:
    """For values of at least 0."""
    return 1 - _beta(degrees / 2, 0.5, degrees / (degrees + value * value)) / 2


def _beta(a: float, b: float, x: float) -> float:
    """The regularized incomplete beta function."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(1 - x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1 - front * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, 1 / _nonzero(1 - (a + b) * x / (a + 1))
    result = d
    for m in range(1, _STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d, c = 1 / _nonzero(1 + even * d), _nonzero(1 + even / c)
        result *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d, c = 1 / _nonzero(1 + odd * d), _nonzero(1 + odd / c)
        result *= d * c
        if abs(d * c - 1) < _CLOSE:
            break
    return result


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


@lru_cache
def z_of(alpha: float) -> float:
    """Return the z that a normal variable exceeds, on either side, with probability *alpha*."""
    low, high = 0.0, FARTHEST_Z
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if erfc(middle / sqrt(2)) > alpha else (low, middle)
    return (low + high) / 2


def as_t(z: float, degrees: float) -> float:
    """Return about what a t variable exceeds as often as a normal one exceeds *z*, quickly (Cornish and Fisher)."""
    n = max(1.0, degrees)
    return z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n * n)
