"""How ids become folder names."""

from __future__ import annotations

import re

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
LONGEST_ID = 120


def folder_name(identifier: str) -> str:
    """The folder that belongs to an id: whatever is not a letter, digit, dot, dash or underscore becomes a dash."""
    return _UNSAFE.sub("-", identifier)


def id_problem(identifier: str) -> str | None:
    """Why an id cannot be used, if it cannot."""
    if not identifier.strip():
        return "must not be empty"
    if len(identifier) > LONGEST_ID:
        return f"is longer than {LONGEST_ID} characters"
    if not identifier.isprintable():
        return "must not contain control characters"
    if set(folder_name(identifier)) <= {"."}:
        return "would leave the run folder once it is a folder name"
    return None
