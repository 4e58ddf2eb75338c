"""Competing skills that a case describes in one line, such as `deploy: Ships it.`"""

from __future__ import annotations

import re

_DESCRIBED = re.compile(r"\s*([a-z0-9][a-z0-9-]{0,63})\s*:\s+(\S.*)", re.DOTALL)


def competitor_of(text: str) -> tuple[str, str] | None:
    """Its name and description; none where *text* is the path of a folder instead."""
    found = _DESCRIBED.fullmatch(text)
    return (found[1], found[2].strip()) if found else None
