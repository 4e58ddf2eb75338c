"""A judge's verdict, and how it is read out of what a model answers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whet.errors import NoVerdict
from whet.model.session import Usage
from whet.numbers import is_number

_BARE = re.compile(r"\A\W*(?:rating|score)?\W*(\d+(?:\.\d+)?)(?:\s*/\s*10)?\W*\Z", re.IGNORECASE)
_HIGHEST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A rating from 0 to 10, why, and whether the judge saw an attempt to influence it."""

    rating: float
    rationale: str
    manipulation: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One verdict, what it took, and whether it was asked for this time."""

    verdict: Verdict
    usage: Usage
    cached: bool = False


def read_call(arguments: Any) -> Verdict:
    """The verdict in the arguments of a tool call, as text or as an object."""
    try:
        told = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError as error:
        raise NoVerdict(f"the judge called its tool with no JSON: {_short(arguments)}") from error
    return _verdict(told, arguments)


def read_text(text: str) -> Verdict:
    """The verdict of a model that answers in words: JSON, also in a fence, or a bare number."""
    inner = re.sub(r"\A\s*```\w*\n|\n```\s*\Z", "", text.strip())
    try:
        told = json.loads(inner)
    except ValueError:
        told = None
    if isinstance(told, Mapping):
        return _verdict(told, text)
    bare = _BARE.match(inner)
    if bare is None:
        raise NoVerdict(f"the judge gave no rating: {_short(text)}")
    return _verdict({"rating": float(bare[1]), "rationale": ""}, text)


def _verdict(told: Any, shown: Any) -> Verdict:
    rating = told.get("rating") if isinstance(told, Mapping) else None
    if not is_number(rating) or not 0 <= rating <= _HIGHEST:
        raise NoVerdict(f"the judge gave no rating from 0 to {_HIGHEST}: {_short(shown)}")
    return Verdict(
        rating=float(rating),
        rationale=str(told.get("rationale") or ""),
        manipulation=told.get("manipulation") is True,
    )


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 300 else f"{text[:297]}..."  # noqa: PLR2004 - what fits into a message
