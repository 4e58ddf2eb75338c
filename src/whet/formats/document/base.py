"""What a document is made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Value: TypeAlias = "str | int | float | bool | tuple[Node, ...] | Mapping[str, Node] | None"
# Deeper than anybody nests a suite, and shallow enough for every walk over it.
DEEPEST = 100
# More digits than any number has that can be counted with, and few enough to be read at once.
LONGEST_NUMBER = 400


class DocumentError(Exception):
    """A file that cannot be read as what it should be."""

    def __init__(self, message: str, *, line: int | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.hint = hint


def refuse_long_number(written: str, place: Iterable[str | int], line: int) -> None:
    """Raise where a number has more characters than it may; *place* is the keys and indexes that lead to it."""
    if len(written) > LONGEST_NUMBER:
        steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
        told = f"number is too long: it has {len(written):,} characters, and may have {LONGEST_NUMBER}"
        raise DocumentError(": ".join(part for part in (steps.lstrip("."), told) if part), line=line)


@dataclass(frozen=True, slots=True)
class Node:
    """A value, the line where it stands, and for what is no string, as what it was written."""

    value: Value
    line: int
    written: str | None = None

    def plain(self) -> Any:
        """The value without lines."""
        match self.value:
            case tuple():
                return [item.plain() for item in self.value]
            case Mapping():
                return {name: item.plain() for name, item in self.value.items()}
            case _:
                return self.value


@dataclass(frozen=True, slots=True)
class Repeat:
    """A key that stands twice in one object; the first one counts, so that the rest can be looked at."""

    key: str
    line: int
    first: int


@dataclass(frozen=True, slots=True)
class Document:
    """The root of what was read, and the keys that stand twice."""

    root: Node
    repeats: tuple[Repeat, ...] = ()
