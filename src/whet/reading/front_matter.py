"""Front matter: the YAML at the top of a SKILL.md, which strangers write; it is read within bounds."""

from __future__ import annotations

import re
from typing import Any

from whet.reading.documents import DocumentError, TooMuch
from whet.reading.yaml import read_yaml

_FRONT_MATTER = re.compile(r"\A---\r?\n(.*?)\r?\n---\s*(?:\r?\n|\Z)", re.DOTALL)
_OPENING = re.compile(r"\A---[ \t]*(?:\r?\n|\Z)")
_EMPTY = re.compile(r"\A---()\s*\r?\n---\s*(?:\r?\n|\Z)")
# A name has 64 characters and a description 1,024; people write a little more than that.
_LONGEST = 64 * 1024
# Aliases included: each counts with everything that it repeats.
_MOST_NODES = 10_000


def front_matter(text: str) -> dict[str, Any]:
    """Return what the front matter of *text* says, nothing without one; raises `DocumentError`, or `TooMuch`."""
    match = _FRONT_MATTER.match(text)
    return parse_front_matter(match[1]) if match else {}


def split_front_matter(text: str) -> tuple[str | None, str]:
    """Return the YAML at the top of *text*, None without any, and what follows; raises `DocumentError` if it is open.

    As many line breaks are put before the YAML as there are lines before it, so that its lines are those of *text*.
    """
    if not _OPENING.match(text):
        return None, text
    match = _FRONT_MATTER.match(text) or _EMPTY.match(text)
    if match is None:
        raise DocumentError("has a front matter without an end", line=1, hint="close it with a line of three dashes")
    return "\n" + (match[1] or ""), text[match.end() :]


def parse_front_matter(text: str) -> dict[str, Any]:
    """Return what the YAML of a front matter says; raises as `front_matter` does."""
    if len(text) > _LONGEST:
        raise TooMuch(f"has a front matter of {len(text):,} characters, and may have {_LONGEST:,}")
    value = read_yaml(text, number_keys=True, most_nodes=_MOST_NODES).root.plain()
    if not isinstance(value, dict):
        raise DocumentError("has a front matter that is not an object", line=1)
    return value
