"""What a document is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Value: TypeAlias = "str | int | float | bool | tuple[Node, ...] | Mapping[str, Node] | None"
# Deeper than anybody nests a suite, and shallow enough for every walk over it.
DEEPEST = 100


class DocumentError(Exception):
    """A file that cannot be read as what it should be."""

    def __init__(self, message: str, *, line: int | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.hint = hint


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
