"""One figure out of several, with weights that a person may choose."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from whet.errors import UsageError
from whet.numbers import is_number
from whet.score import weighted_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """How much each part counts; they are divided by their sum."""

    completion: float = 0.5
    speed: float = 0.2
    reliability: float = 0.3
    consistency: float = 0.0

    def __post_init__(self) -> None:
        values = astuple(self)
        if not all(is_number(value) and value >= 0 for value in values) or not any(values):
            raise UsageError("the weights of the composite must be at least 0, and one of them more than 0")


def composite(
    weights: Weights, *, completion: float, speed: float, error_rate: float, consistency: float | None
) -> float:
    """The weighted mean of completion, speed, reliability and consistency; one that is unknown does not count.

    Consistency counts only as far as calls are answered: a skill that never answers is consistent, and of no use.
    """
    parts = [
        (weights.completion, completion),
        (weights.speed, speed),
        (weights.reliability, 1 - error_rate),
    ]
    if consistency is not None:
        parts.append((weights.consistency, consistency * (1 - error_rate)))
    return weighted_mean((value, weight) for weight, value in parts) or 0.0
