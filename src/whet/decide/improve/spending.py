"""Share 5 % of error among the confirm steps of a split, however many there will be."""

from __future__ import annotations

from math import pi

from whet.decide.sequential import ALPHA


def error_of_step(step: int) -> float:
    """Return the error that the confirm step of this number may make; those of all numbers together are 5 %.

    The first has three fifths of it (0.030, 0.008, 0.003 and so on): most runs have one round, and nobody knows
    how many there will be.
    """
    return ALPHA * 6 / (pi * pi * step * step)
