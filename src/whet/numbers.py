"""Numbers as people write them: the one guard of every reader, and how a message shows one."""

from __future__ import annotations

import sys
from typing import Any, TypeGuard

# Beyond it not every whole number is one of its own, in JSON as others read it.
LARGEST_WHOLE = 2**53


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether it is a number to count with: finite, and no larger than a float; True and False are none."""
    # A comparison, because `math.isfinite` and `float` raise for whole numbers beyond every float.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def is_whole(value: object, least: int, most: int = LARGEST_WHOLE) -> TypeGuard[int]:
    """Whether it is a whole number from *least* to *most*."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def written(value: Any) -> str:
    """*value* as Python writes it, also a number with more digits than Python likes to write."""
    try:
        return repr(value)
    except ValueError:
        return "a number of thousands of digits"
