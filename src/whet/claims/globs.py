"""Patterns of paths, as `protect` has them: `*` stays in its folder, `**` goes through any number of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import takewhile

_LONGEST = 1000


def glob_problem(pattern: str) -> str | None:
    """Why a pattern cannot be used, if it cannot."""
    if pattern.startswith("/"):
        return "must be relative to the project"
    if ".." in pattern.split("/"):
        return "must not lead out of the project"
    if pattern.startswith("!"):
        return 'cannot take back: "!" has no meaning here'
    if "\0" in pattern or len(pattern) > _LONGEST:
        return "is no pattern of paths"
    return None


def literal_head(pattern: str) -> str:
    """The names at the beginning of a pattern that stand for themselves."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    return "/".join(takewhile(lambda part: "*" not in part and "?" not in part, parts))


class Globs:
    """Several patterns; a path belongs to them if one of them names it, or a folder above it."""

    def __init__(self, patterns: Iterable[str]) -> None:
        parts = [_parts(pattern) for pattern in patterns]
        self._whole = [re.compile(_expression(each) + "(?:/.*)?", re.DOTALL) for each in parts if each]
        above = {tuple(each[:count]) for each in parts for count in range(1, len(each))}
        self._above = [re.compile(_expression(list(each)), re.DOTALL) for each in above]
        exact = [each for each in above if "**" not in each]
        self._exact = [re.compile(_expression(list(each)), re.DOTALL) for each in exact]

    def __bool__(self) -> bool:
        return bool(self._whole)

    def holds(self, path: str) -> bool:
        """Whether *path* belongs to them."""
        return any(pattern.fullmatch(path) for pattern in self._whole)

    def guards(self, path: str) -> bool:
        """Whether a link at *path* would show other files in the place of those that belong to them."""
        return self.holds(path) or any(pattern.fullmatch(path) for pattern in self._exact)

    def leads_to(self, path: str) -> bool:
        """Whether *path*, as a folder, could hold something that belongs to them."""
        return self.holds(path) or any(pattern.fullmatch(path) for pattern in self._above)


def _parts(pattern: str) -> list[str]:
    parts: list[str] = []
    for part in pattern.split("/"):
        if part not in ("", ".") and not (part == "**" and parts[-1:] == ["**"]):
            parts.append(part)
    # `test/**` is all that is in the folder, which is what `test` is too: so the folder itself belongs to it.
    while len(parts) > 1 and parts[-1] == "**":
        parts.pop()
    return parts


def _expression(parts: list[str]) -> str:
    pieces = []
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            pieces.append(".*" if last else "(?:[^/]+/)*")
        else:
            pieces.append(_segment(part) + ("" if last else "/"))
    return "".join(pieces)


def _segment(part: str) -> str:
    return "".join(
        "[^/]*" if sign == "*" else "[^/]" if sign == "?" else re.escape(sign) for sign in re.sub(r"\*+", "*", part)
    )
