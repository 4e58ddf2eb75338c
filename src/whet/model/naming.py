"""How ids become folder names, and what files of a record are called that several parts know."""

from __future__ import annotations

import unicodedata

# What resuming the session of an attempt takes.
STATE_FILE = "state.json"
LONGEST_ID = 120
_LONGEST_FOLDER = 200


def folder_name(identifier: str) -> str:
    """The folder that belongs to an id: what is not a letter, digit, dot, dash or underscore becomes a dash."""
    plain = unicodedata.normalize("NFC", identifier)
    name = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in plain)
    # A name that begins with a dash is an option to most programs.
    return f"_{name}" if name.startswith("-") else name


def id_problem(identifier: str) -> str | None:
    """Why an id cannot be used, if it cannot."""
    if not identifier.strip():
        return "must not be empty"
    if len(identifier) > LONGEST_ID:
        return f"is longer than {LONGEST_ID} characters"
    if len(folder_name(identifier).encode()) > _LONGEST_FOLDER:
        return "is too long for a folder name"
    if not identifier.isprintable():
        return "must not contain control characters"
    if set(folder_name(identifier)) <= {"."}:
        return "would leave the run folder once it is a folder name"
    return None
