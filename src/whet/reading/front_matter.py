"""Front matter: the YAML at the top of a SKILL.md, which strangers write; it is read within bounds."""

from __future__ import annotations

import re
from typing import Any

from whet.reading.document_files import read_yaml
from whet.reading.documents import DocumentError, TooMuch

_FRONT_MATTER = re.compile(r"\A---\r?\n(.*?)\r?\n---\s*(?:\r?\n|\Z)", re.DOTALL)
# A name has 64 characters and a description 1,024; people write a little more than that.
_LONGEST = 64 * 1024
# Aliases included: each of them counts with all that it stands for.
_MOST_NODES = 10_000


def front_matter(text: str) -> dict[str, Any]:
    """Return what the front matter of *text* says, nothing without one; raises `DocumentError`, or `TooMuch`."""
    found = _FRONT_MATTER.match(text)
    return parse_front_matter(found[1]) if found else {}


def parse_front_matter(text: str) -> dict[str, Any]:
    """Return what the YAML of a front matter says; raises as `front_matter` does."""
    if len(text) > _LONGEST:
        raise TooMuch(f"has a front matter of {len(text):,} characters, and may have {_LONGEST:,}")
    value = read_yaml(text, number_keys=True, most_nodes=_MOST_NODES).root.plain()
    if not isinstance(value, dict):
        raise DocumentError("has a front matter that is not an object", line=1)
    return value
