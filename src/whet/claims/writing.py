"""Claims written down: as the line that reads as the same claim again, and as an object."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from whet.claims import literals
from whet.claims.base import ClaimError
from whet.claims.forms import (
    Absent,
    Changed,
    Claim,
    Contains,
    Created,
    Exists,
    Fails,
    Matches,
    Passes,
    Pattern,
    Prints,
    Quits,
    command_of,
    path_of,
)
from whet.claims.reading import read_claim

# What each form is about, and what it says of it.
_WORDS: dict[type[Claim], tuple[str, str | None]] = {
    Exists: ("file", "exists"),
    Created: ("file", "created"),
    Contains: ("file", "contains"),
    Matches: ("file", "matches"),
    Changed: ("diff", None),
    Absent: ("no-file", None),
    Passes: ("test", "passes"),
    Fails: ("test", "fails"),
    Quits: ("test", "exits"),
    Prints: ("test", "prints"),
}


def write_claim(claim: Claim) -> str:
    """The line that makes this claim; its path is quoted only where it would be read otherwise."""
    about = path_of(claim) or command_of(claim) or ""
    plain = _line(claim, about)
    try:
        if read_claim(plain).claim == claim:
            return plain
    except ClaimError:
        pass
    return _line(claim, literals.quoted(about))


def write_object(claim: Claim) -> dict[str, Any]:
    """The object that makes this claim."""
    subject, operator = _WORDS[type(claim)]
    said = {subject: path_of(claim) or command_of(claim)}
    if operator is None:
        return said
    value = _value(claim)
    return {**said, operator: str(value) if isinstance(value, Pattern) else True if value is None else value}


def _line(claim: Claim, about: str) -> str:
    subject, operator = _WORDS[type(claim)]
    value = _value(claim)
    shown = literals.quoted(value) if isinstance(value, str) else "" if value is None else str(value)
    return " ".join(part for part in (f"{subject}:{about}", operator, shown) if part)


def _value(claim: Claim) -> Any:
    """What stands after the operator, if anything does: the second field of the form."""
    _, *second = fields(claim)
    return getattr(claim, second[0].name) if second else None
