"""The one reader of JSON: strict, as plain values or with the line of every value.

`read_json` is for files that people write: it says where a problem is. `load_json` is for JSON that programs write.
"""

from __future__ import annotations

import json
import math
import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from json import JSONDecodeError, JSONDecoder
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct

from whet.errors import Problem

Value: TypeAlias = "str | int | float | bool | tuple[Node, ...] | Mapping[str, Node] | None"
# Deeper than any suite, and shallow enough for every walk over it.
DEEPEST = 100
# More digits than any number that can be calculated with, and few enough to read at once.
LONGEST_NUMBER = 400
_INDEX = re.compile(r"\[(\d{1,9})\]\.?")


class DocumentError(ValueError):
    """A text that cannot be read as what it should be."""

    def __init__(self, message: str, *, line: int | None = None, hint: str | None = None) -> None:
        super().__init__(message if line is None else f"{message} in line {line}")
        self.message = message
        self.line = line
        self.hint = hint

    def problem(self, file: Path) -> Problem:
        """Return the error as a problem of *file*."""
        place = f"line {self.line}" if self.line else None
        return Problem(file=str(file), field=place, message=self.message, hint=self.hint)


class TooMuch(DocumentError):
    """A text that is not read to its end, because it holds more than anybody writes."""


def refuse_long_number(number: str, place: Iterable[str | int], line: int) -> None:
    """Raise `DocumentError` if a number has too many characters; *place* is the keys and indexes that lead to it."""
    if len(number) > LONGEST_NUMBER:
        steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
        message = f"number is too long: it has {len(number):,} characters, and may have {LONGEST_NUMBER}"
        raise TooMuch(": ".join(part for part in (steps.lstrip("."), message) if part), line=line)


class Node(Struct, frozen=True):
    """A value, its line, and if it is not a string, how it is written."""

    value: Value
    line: int
    written: str | None = None

    def plain(self) -> Any:
        """Return the value without lines."""
        match self.value:
            case tuple():
                return [item.plain() for item in self.value]
            case Mapping():
                return {name: item.plain() for name, item in self.value.items()}
            case _:
                return self.value

    def at(self, path: str) -> Node:
        """Return the innermost node that exists on *path*, such as `cases[3].env.HOME`."""
        node, remainder = self, path
        while remainder and (step := node._step(remainder)) is not None:
            node, remainder = step
        return node

    def _step(self, path: str) -> tuple[Node, str] | None:
        match self.value:
            case tuple() if match := _INDEX.match(path):
                index = int(match[1])
                return (self.value[index], path[match.end() :]) if index < len(self.value) else None
            case Mapping():
                names = [path.partition(".")[0].partition("[")[0], *self.value]
                # A name may have a dot or a bracket in it.
                fits = (name for name in names if name in self.value and _leads(path, name))
                name = next(fits, None)
                return None if name is None else (self.value[name], path[len(name) :].removeprefix("."))
            case _:
                return None


def _leads(path: str, name: str) -> bool:
    return path.startswith(name) and path[len(name) : len(name) + 1] in ("", ".", "[")


class Repeat(Struct, frozen=True):
    """A key that is repeated in one object; the first one counts, so that the rest can be checked."""

    key: str
    line: int
    first: int


class Document(Struct, frozen=True):
    """The root of a document, and the keys that are repeated in one object."""

    root: Node
    repeats: tuple[Repeat, ...] = ()

    def repeat_problems(self, file: Path) -> list[Problem]:
        """Return a problem of *file* for each key that is repeated."""
        return [
            Problem(
                file=str(file),
                field=f"line {repeat.line}",
                message=f'has the key "{repeat.key}" a second time; the first is in line {repeat.first}',
                hint="only one of them would count: remove the other",
            )
            for repeat in self.repeats
        ]


_BLANK = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?P<fraction>(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")
_WORD = re.compile(r"[^\s,:\]}]+")
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_STRINGS = JSONDecoder()


def read_json(text: str) -> Document:
    """Parse *text*, with the line of every value; raises `DocumentError`."""
    return _JsonReader(text).document()


# Deeper than any answer, and shallow enough for every walk over it.
DEEPEST_VALUE = 200
_LONGEST_KEY_SHOWN = 100


def load_json(data: bytes | str, *, repeats: bool = False) -> Any:
    """Parse *data*; raises `DocumentError`, also for a key that is in one object twice unless *repeats*."""
    hook = None if repeats else unique_keys
    try:
        value = json.loads(data, parse_constant=_refuse_constant, object_pairs_hook=hook)
    except RecursionError:
        raise DocumentError(f"is nested deeper than {DEEPEST_VALUE} levels") from None
    except JSONDecodeError as error:
        place = f"in line {error.lineno}, column {error.colno}"
        raise DocumentError(f"is not JSON: {error.msg} {place}") from error
    except DocumentError:
        raise
    except UnicodeDecodeError as error:
        raise DocumentError("is not JSON: it is not UTF-8") from error
    except ValueError as error:
        raise DocumentError(too_long_in(data if isinstance(data, str) else data.decode(errors="replace"))) from error
    refuse_endless(value)
    return value


def refuse_endless(value: Any) -> None:
    """Raise a `DocumentError` if *value* is nested too deeply or has a number that JSON cannot hold."""
    # Level by level and not by recursion: the depth is what is checked.
    level = [value]
    for _ in range(DEEPEST_VALUE):
        numbers = [item for item in level if isinstance(item, float)]
        if any(map(math.isnan, numbers)):
            raise DocumentError("has the number nan, which JSON does not have")
        if any(map(math.isinf, numbers)):
            raise DocumentError("has a number that is too large")
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return
    raise DocumentError(f"is nested deeper than {DEEPEST_VALUE} levels")


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of its members; raises `DocumentError` if a key is there twice."""
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise DocumentError(f'has the key "{key[:_LONGEST_KEY_SHOWN]}" twice in one object')
        members[key] = value
    return members


def _refuse_constant(name: str) -> Any:
    raise DocumentError(f"has the number {name}, which JSON does not have")


# With the key before it, in JSON or in TOML; each run of characters is begun once, however long it is.
_LONG = r'(?:(?:"([^"\\\n]*)"|(?<![\w.-])([\w.-]+))[ \t]*[:=]\s*)?[-+]?(?<![\d_])\d(?:_?\d){%d}'


def too_long_in(text: str) -> str:
    """Return the message for JSON or TOML with a number that Python does not read: where, and how long it may be."""
    most = sys.get_int_max_str_digits()
    match = re.search(_LONG % most, text)
    key = match and (match[1] or match[2])
    place = f"line {text.count(chr(10), 0, match.end()) + 1}: " if match else ""
    return f"{place}{f'{key[:60]}: ' if key else ''}number is too long: it may have {most:,} digits"


class _JsonReader:
    """Reads a text once from start to end; `_at` is the position."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        # The keys and indexes that lead to the position.
        self._place: list[str | int] = []
        self._lines = [newline.end() for newline in re.finditer("\n", text)]
        self._repeats: list[Repeat] = []

    def document(self) -> Document:
        root = self._value()
        if self._next():
            raise self._error("continues after its end", hint="one file holds one suite")
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
        match = _WORD.match(self._text, self._at)
        word = match[0] if match else ""
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
        members: dict[str, Node] = {}
        self._at += 1
        while self._goes_on("}", first=not members):
            if self._next() != '"':
                raise self._error("needs a key in double quotes here", hint=self._about_keys())
            line = self._line()
            key = self._string()
            if self._next() != ":":
                raise self._error(f'needs a colon after "{key}"')
            self._at += 1
            value = self._member(key)
            if key in members:
                self._repeats.append(Repeat(key, line, members[key].line))
            else:
                members[key] = value
        return members

    def _array(self) -> tuple[Node, ...]:
        items: list[Node] = []
        self._at += 1
        while self._goes_on("]", first=not items):
            items.append(self._member(len(items)))
        return tuple(items)

    def _member(self, step: str | int) -> Node:
        self._place.append(step)
        value = self._value()
        self._place.pop()
        return value

    def _goes_on(self, end: str, *, first: bool) -> bool:
        """Return whether another member follows, and step over the comma or the end."""
        char = self._next()
        if char == end:
            self._at += 1
            return False
        if first:
            return True
        if char != ",":
            raise self._error(f'needs a comma or "{end}" here' if char else f'ends before "{end}"')
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
        start = self._text[self._at : self._at + 2]
        return "write the suite in YAML to have comments" if start in ("//", "/*") else None

    def _next(self) -> str:
        """Return the next character that is not blank, or nothing."""
        blank = _BLANK.match(self._text, self._at)
        assert blank is not None
        self._at = blank.end()
        return self._text[self._at : self._at + 1]

    def _line(self) -> int:
        return bisect_right(self._lines, self._at) + 1

    def _error(self, message: str, hint: str | None = None) -> DocumentError:
        return DocumentError(message, line=self._line(), hint=hint)


def _about(word: str) -> str | None:
    if word.startswith("'"):
        return "put strings in double quotes"
    near = {"True": "true", "False": "false", "None": "null", "undefined": "null"}.get(word)
    return f"did you mean {near}?" if near else None
