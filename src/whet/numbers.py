"""Numbers as people write them: the one guard of every reader, and how a message shows one."""

from __future__ import annotations

import re
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


# With the key that stands before it, in JSON or in TOML; each run of characters is begun once, however long it is.
_LONG = r'(?:(?:"([^"\\\n]*)"|(?<![\w.-])([\w.-]+))[ \t]*[:=]\s*)?[-+]?(?<![\d_])\d(?:_?\d){%d}'


def too_long_in(text: str) -> str:
    """What to say of JSON or TOML with a number that Python does not read: where it is, and how long it may be."""
    most = sys.get_int_max_str_digits()
    found = re.search(_LONG % most, text)
    key = found and (found[1] or found[2])
    place = f"line {text.count(chr(10), 0, found.end()) + 1}: " if found else ""
    return f"{place}{f'{key[:60]}: ' if key else ''}number is too long: it may have {most:,} digits"
