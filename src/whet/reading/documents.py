"""Strict JSON, with the line of every value."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from json import JSONDecodeError, JSONDecoder
from typing import Any, TypeAlias

from whet.dataclass import dataclass

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


_BLANK = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?P<fraction>(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")
_WORD = re.compile(r"[^\s,:\]}]+")
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_STRINGS = JSONDecoder()


def read_json(text: str) -> Document:
    """The document that *text* is."""
    return _Reader(text).document()


class _Reader:
    """Goes through a text once; `_at` is how far it is."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        # The keys and indexes that lead to where it is.
        self._place: list[str | int] = []
        self._lines = [found.end() for found in re.finditer("\n", text)]
        self._repeats: list[Repeat] = []

    def document(self) -> Document:
        root = self._value()
        if self._next():
            raise self._error("goes on after its end", hint="one file holds one suite")
        return Document(root, tuple(self._repeats))

    def _value(self) -> Node:
        start = self._next()
        line = self._line()
        if start == '"':
            return Node(self._string(), line)
        if start in ("{", "["):
            if len(self._place) >= DEEPEST:
                raise self._error("is nested too deeply")
            return Node(self._object() if start == "{" else self._array(), line)
        return self._scalar(line)

    def _scalar(self, line: int) -> Node:
        found = _WORD.match(self._text, self._at)
        word = found[0] if found else ""
        if word in _CONSTANTS:
            self._at += len(word)
            return Node(_CONSTANTS[word], line, word)
        number = _NUMBER.fullmatch(word)
        if number is None:
            raise self._no_value(word)
        refuse_long_number(word, self._place, line)
        self._at += len(word)
        return Node(float(word) if number["fraction"] else int(word), line, word)

    def _object(self) -> dict[str, Node]:
        found: dict[str, Node] = {}
        self._at += 1
        while self._goes_on("}", first=not found):
            if self._next() != '"':
                raise self._error("needs a key in double quotes here", hint=self._about_keys())
            line = self._line()
            key = self._string()
            if self._next() != ":":
                raise self._error(f'needs a colon after "{key}"')
            self._at += 1
            value = self._member(key)
            if key in found:
                self._repeats.append(Repeat(key, line, found[key].line))
            else:
                found[key] = value
        return found

    def _array(self) -> tuple[Node, ...]:
        found: list[Node] = []
        self._at += 1
        while self._goes_on("]", first=not found):
            found.append(self._member(len(found)))
        return tuple(found)

    def _member(self, step: str | int) -> Node:
        self._place.append(step)
        value = self._value()
        self._place.pop()
        return value

    def _goes_on(self, end: str, *, first: bool) -> bool:
        """Whether another member follows; steps over the comma, or the end."""
        sign = self._next()
        if sign == end:
            self._at += 1
            return False
        if first:
            return True
        if sign != ",":
            raise self._error(f'needs a comma or "{end}" here' if sign else f'ends before "{end}"')
        self._at += 1
        if self._next() == end:
            raise self._error(f'has a comma before "{end}"', hint="JSON allows none after the last member")
        return True

    def _string(self) -> str:
        try:
            text, self._at = _STRINGS.raw_decode(self._text, self._at)
        except JSONDecodeError as error:
            self._at = min(error.pos, len(self._text))
            hint = "write a line break as \\n" if "control character" in error.msg else None
            raise self._error(f"has a string that cannot be read: {error.msg.lower()}", hint=hint) from None
        return str(text)

    def _no_value(self, word: str) -> DocumentError:
        if not word and self._at >= len(self._text):
            return self._error("is empty" if not self._text.strip() else "ends in the middle")
        if word.startswith(("//", "/*", "#")):
            return self._error("has a comment, and JSON has none", hint="write the suite in YAML to have comments")
        return self._error(f'cannot be read here: "{(word or self._text[self._at])[:40]}"', hint=_about(word))

    def _about_keys(self) -> str | None:
        sign = self._text[self._at : self._at + 2]
        return "write the suite in YAML to have comments" if sign in ("//", "/*") else None

    def _next(self) -> str:
        """The next sign that is not blank, or nothing."""
        found = _BLANK.match(self._text, self._at)
        assert found is not None
        self._at = found.end()
        return self._text[self._at : self._at + 1]

    def _line(self) -> int:
        return bisect_right(self._lines, self._at) + 1

    def _error(self, message: str, hint: str | None = None) -> DocumentError:
        return DocumentError(message, line=self._line(), hint=hint)


def _about(word: str) -> str | None:
    if word.startswith("'"):
        return "strings stand in double quotes"
    near = {"True": "true", "False": "false", "None": "null", "undefined": "null"}.get(word)
    return f"did you mean {near}?" if near else None
