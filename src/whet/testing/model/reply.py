"""One answer on its way to the wire, and what a wire format must know."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from whet.testing.model.script import Fault, Step, Tokens

Body: TypeAlias = Mapping[str, Any]
# The name of a server-sent event, where the format gives it one, and its data.
Frame: TypeAlias = tuple[str | None, Mapping[str, Any] | str]

STATUSES: dict[Fault, int] = {
    "auth": 401,
    "model-rejected": 404,
    "bad-request": 400,
    "context": 400,
    "rate-limit": 429,
    "server": 500,
    "overloaded": 529,
}
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool as a request offers it; `kind` is "function", or "custom" for one that takes plain text."""

    name: str
    kind: str = "function"
    schema: Mapping[str, Any] = field(default_factory=dict)
    namespace: str | None = None

    @property
    def properties(self) -> Mapping[str, Any]:
        """Its arguments by name."""
        found: Mapping[str, Any] = self.schema.get("properties") or {}
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of an offered tool, with an id that is new."""

    tool: Tool
    args: Mapping[str, Any]
    id: str = field(default_factory=lambda: new_id("call"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the model answers."""

    model: str
    think: str
    say: str
    calls: tuple[Call, ...]
    usage: Tokens

    @classmethod
    def of(cls, step: Step, model: str, calls: Sequence[Call]) -> Reply:
        """What *step* says."""
        return cls(model=model, think=step.think, say=step.say, calls=tuple(calls), usage=step.usage)


class Wire(Protocol):
    """A wire format: how it offers tools, how it answers at once, in pieces, and with an error."""

    name: str

    def tools(self, body: Body) -> list[Tool]:
        """The tools that a request offers."""

    def message(self, reply: Reply) -> Mapping[str, Any]:
        """The answer in one piece."""

    def frames(self, reply: Reply, body: Body) -> Iterator[Frame]:
        """The answer as a stream."""

    def error(self, fault: Fault, status: int, message: str | None, model: str) -> Mapping[str, Any]:
        """The body of an error."""


def new_id(prefix: str) -> str:
    """An id that no other answer of this process has."""
    return f"{prefix}_scripted{next(_numbers):06d}"


def pieces(text: str) -> list[str]:
    """A text in two, as a stream would bring it."""
    middle = (len(text) + 1) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]
