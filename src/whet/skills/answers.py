"""What a skill sends as JSON, read strictly: what others could not read, or not in the same way, is no answer."""

from __future__ import annotations

import json
import math
from typing import Any

# Deeper than anybody nests an answer, and shallow enough for every walk over it.
DEEPEST = 200


class BadAnswer(ValueError):
    """What is wrong with an answer."""


def read_answer(data: bytes | str) -> Any:
    """The value that *data* is; a `BadAnswer` says why it is none."""
    try:
        value = json.loads(data, parse_constant=_refuse)
    except RecursionError:
        raise BadAnswer(f"is nested deeper than {DEEPEST} levels") from None
    except BadAnswer:
        raise
    except ValueError as error:
        raise BadAnswer(f"is no JSON: {error}") from error
    _refuse_deep_and_endless(value)
    return value


def _refuse(name: str) -> Any:
    raise BadAnswer(f"holds {name}, which is no JSON")


def _refuse_deep_and_endless(value: Any) -> None:
    """Level by level and not by recursion: how deep it goes is what is asked."""
    level = [value]
    for _ in range(DEEPEST):
        if any(isinstance(item, float) and not math.isfinite(item) for item in level):
            raise BadAnswer("holds a number that is too large")
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return
    raise BadAnswer(f"is nested deeper than {DEEPEST} levels")
