"""Numbers and names as plans and their errors tell them."""

from __future__ import annotations

from collections.abc import Sequence

_MOST_LISTED = 12


def counted(number: int, one: str, many: str | None = None) -> str:
    """Such as "2 cases"."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def listed(names: Sequence[str]) -> str:
    """*names* in quotes, and how many are not told."""
    shown = ", ".join(f'"{name}"' for name in names[:_MOST_LISTED])
    return shown if len(names) <= _MOST_LISTED else f"{shown} and {len(names) - _MOST_LISTED} more"
