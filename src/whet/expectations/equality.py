"""Whether two values are the same, type and all, and where they are not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from whet.asserting.difference import difference
from whet.asserting.text import value_text

_SHORT = 200
_MOST_LINES = 20
_DEEPEST = 100
# The sides of a comparison, in the lines that name them.
_SIDES = re.compile(r"(^- |^only |, \+ )(left|right)\b")
_WORDS = {"left": "observed", "right": "expected"}


def is_same(one: Any, other: Any, depth: int = 0) -> bool:
    """Whether they are equal and of one type, and so is all that plain lists, tuples and maps in them hold."""
    if type(one) is not type(other):
        return False
    # As Python compares what containers hold; deeper than anybody writes, it decides alone.
    if one is other or type(one) not in (list, tuple, dict) or depth > _DEEPEST:
        return one is other or bool(one == other)
    if len(one) != len(other):
        return False
    if isinstance(one, dict):
        return all(key in other and is_same(one[key], other[key], depth + 1) for key in one)
    return all(is_same(left, right, depth + 1) for left, right in zip(one, other, strict=True))


def differences(observed: Any, expected: Any) -> list[str]:
    """Where two values that are not the same differ; nothing where that is plain to see."""
    path = _first(observed, expected)
    if path is not None:
        where, left, right = path
        return [f"differs at {where}: {_typed(left, right)}, expected {_typed(right, left)}"]
    try:
        lines = difference(observed, ast.Eq(), expected)
    except Exception:  # noqa: BLE001 - comparing parts runs an author's `__eq__`
        return []
    return [_SIDES.sub(lambda found: f"{found[1]}{_WORDS[found[2]]}", line) for line in lines[:_MOST_LINES]]


def _first(observed: Any, expected: Any) -> tuple[str, Any, Any] | None:
    """The path to the innermost values that differ, where both sides have it."""
    where = ""
    for _ in range(_DEEPEST):
        step = next(_steps(observed, expected), None)
        if step is None:
            break
        where, observed, expected = where + step[0], step[1], step[2]
    return (where, observed, expected) if where else None


def _steps(observed: Any, expected: Any) -> Iterator[tuple[str, Any, Any]]:
    if type(observed) is not type(expected) or type(observed) not in (list, tuple, dict):
        return
    if len(observed) != len(expected):
        return
    keys = observed if isinstance(observed, dict) else range(len(observed))
    for key in keys:
        if isinstance(expected, dict) and key not in expected:
            return
        if not is_same(observed[key], expected[key]):
            yield f"[{value_text(key, _SHORT)}]", observed[key], expected[key]


def _typed(value: Any, other: Any) -> str:
    text = value_text(value, _SHORT)
    return text if type(value) is type(other) else f"{text} ({type(value).__name__})"
