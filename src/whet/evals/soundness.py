"""Texts that nothing could store or give to a program, and values that are nested without end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from whet.evals.problems import FieldProblem

DEEPEST = 64


def unsound(value: Any, path: str = "", depth: int = 0) -> Iterator[FieldProblem]:
    """A problem for each text with a NUL or half a surrogate pair, number that is none, and nesting too deep."""
    if depth > DEEPEST:
        yield FieldProblem(path, f"is nested more than {DEEPEST} levels deep")
        return
    match value:
        case Mapping():
            for key, item in value.items():
                if not isinstance(key, str) or _text_problem(key) is not None:
                    yield FieldProblem(path, f"has the key {key!r}, which is no text that can be stored")
                    continue
                yield from unsound(item, f"{path}.{key}" if path else key, depth + 1)
        case list() | tuple():
            for index, item in enumerate(value):
                yield from unsound(item, f"{path}[{index}]", depth + 1)
        case _:
            if (why := _problem(value)) is not None:
                yield FieldProblem(path, why)


def _problem(value: Any) -> str | None:
    match value:
        case None | bool():
            return None
        case int():
            # What can be stored of whole numbers.
            return None if -(2**63) <= value < 2**64 else "is a number that is too large"
        case str():
            return _text_problem(value)
        case float():
            return None if math.isfinite(value) else "is a number that JSON does not have"
        case _:
            return f"is a {type(value).__name__}, which JSON does not have"


def _text_problem(text: str) -> str | None:
    if "\0" in text:
        return "holds a NUL character"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "holds half a surrogate pair"
    return None
