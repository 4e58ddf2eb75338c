"""Taking fields out of somebody's JSON document: each is as it should be, or gives a problem with its place."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeGuard

from whet.dataclass import dataclass
from whet.errors import Problem

# Beyond it not every whole number is one of its own, in JSON as others read it.
LARGEST_WHOLE = 2**53


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether it is a number to count with: finite, and no larger than a float; True and False are none."""
    # A comparison, because `math.isfinite` and `float` raise for whole numbers beyond every float.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def is_whole(value: object, least: int, most: int = LARGEST_WHOLE) -> TypeGuard[int]:
    """Whether it is a whole number from *least* to *most*."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def written(value: Any) -> str:
    """*value* as Python writes it, also a number with more digits than Python likes to write."""
    try:
        return repr(value)
    except ValueError:
        return "a number of thousands of digits"


# With the key that stands before it, in JSON or in TOML; each run of characters is begun once, however long it is.
_LONG = r'(?:(?:"([^"\\\n]*)"|(?<![\w.-])([\w.-]+))[ \t]*[:=]\s*)?[-+]?(?<![\d_])\d(?:_?\d){%d}'


def too_long_in(text: str) -> str:
    """What to say of JSON or TOML with a number that Python does not read: where it is, and how long it may be."""
    most = sys.get_int_max_str_digits()
    found = re.search(_LONG % most, text)
    key = found and (found[1] or found[2])
    place = f"line {text.count(chr(10), 0, found.end()) + 1}: " if found else ""
    return f"{place}{f'{key[:60]}: ' if key else ''}number is too long: it may have {most:,} digits"


_SHOWN = 60


class BadDocument(ValueError):
    """A text that is no JSON, or not clearly so."""


def read_document(path: Path) -> Any:
    """The JSON value in a file; a key that stands twice and a number that is none are refused."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadDocument("is no UTF-8 text") from error
    except OSError as error:
        raise BadDocument(f"cannot be read: {error.strerror}") from error
    try:
        return json.loads(text, object_pairs_hook=_without_doubles, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise BadDocument(f"is no JSON: {error.msg} in line {error.lineno}, column {error.colno}") from error
    except BadDocument:
        raise
    except ValueError as error:
        raise BadDocument(too_long_in(text)) from error
    except RecursionError as error:
        raise BadDocument("is nested too deeply") from error


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        double = next(key for key in keys if keys.count(key) > 1)
        raise BadDocument(f'has the key "{double}" twice in one object')
    return found


def _refuse_constant(name: str) -> Any:
    raise BadDocument(f"holds {name}, which is no JSON")


@dataclass(slots=True)
class Findings:
    """What is wrong with a document, and what is only worth a word."""

    file: str
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)


@dataclass(slots=True)
class Fields:
    """One object of a document, and where it stands."""

    values: Mapping[str, Any]
    findings: Findings
    path: str = ""
    case: str | None = None

    def problem(self, name: str, message: str, hint: str | None = None) -> None:
        """Something is wrong with the field *name*."""
        self.findings.problems.append(self._at(name, message, hint))

    def note(self, name: str, message: str, hint: str | None = None) -> None:
        """Something about the field *name* is worth a word."""
        self.findings.notes.append(self._at(name, message, hint))

    def _at(self, name: str, message: str, hint: str | None) -> Problem:
        place = f"{self.path}.{name}" if self.path and name else name or self.path or None
        return Problem(file=self.findings.file, case=self.case, field=place, message=message, hint=hint)

    def mention_unknown(self, known: Sequence[str]) -> None:
        """Note each key that nothing reads: others may have put it there, but it may be a slip."""
        for name in self.values:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                self.note(name, "is not read by whet", f'did you mean "{near[0]}"?' if near else None)

    def text(self, name: str, *, required: bool = False, default: str = "", empty: bool = False) -> str:
        """A string."""
        value = self.values.get(name)
        if value is None:
            if required:
                self.problem(name, "is missing")
            return default
        if not isinstance(value, str):
            self.problem(name, f"must be a string, not {shown(value)}")
            return default
        if not empty and not value.strip():
            self.problem(name, "must not be empty")
            return default
        return value

    def choice(self, name: str, words: Sequence[str], *, required: bool = False) -> str | None:
        """One of some words."""
        value = self.text(name, required=required)
        if not value:
            return None
        if value not in words:
            near = get_close_matches(value, words, n=1)
            hint = f'did you mean "{near[0]}"?' if near else None
            self.problem(name, f'must be one of {", ".join(words)}, not "{value}"', hint)
            return None
        return value

    def number(
        self, name: str, *, default: float | None = None, least: float | None = None, most: float = math.inf
    ) -> Any:
        """A number of at least *least*, or without one more than 0."""
        value = self.values.get(name)
        if value is None:
            return default
        if not is_number(value) or value > most or (value <= 0 if least is None else value < least):
            floor = "more than 0" if least is None else f"at least {least:g}"
            ceiling = f" and at most {most:g}" if most < math.inf else ""
            self.problem(name, f"must be a number, {floor}{ceiling}, not {shown(value)}")
            return default
        return value

    def flag(self, name: str, default: bool) -> bool:
        """Yes or no."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.problem(name, f"must be true or false, not {shown(value)}")
            return default
        return value

    def texts(self, name: str, *, required: bool = False) -> tuple[str, ...]:
        """A list of strings that are not empty; a required one has at least one."""
        value = self.values.get(name)
        if value is None:
            if required:
                self.problem(name, "is missing")
            return ()
        if not isinstance(value, list):
            self.problem(name, f"must be a list of strings, not {shown(value)}")
            return ()
        if required and not value:
            self.problem(name, "must not be empty")
        for index, item in enumerate(value):
            if not isinstance(item, str) or not item:
                self.problem(f"{name}[{index}]", f"must be a string that is not empty, not {shown(item)}")
        return tuple(item for item in value if isinstance(item, str))

    def table(self, name: str, *, required: bool = False) -> Fields:
        """An object within this one; an empty one where there is none."""
        value = self.values.get(name)
        path = f"{self.path}.{name}" if self.path else name
        if value is None and required:
            self.problem(name, "is missing")
        elif value is not None and not isinstance(value, dict):
            self.problem(name, f"must be an object, not {shown(value)}")
        return Fields(value if isinstance(value, dict) else {}, self.findings, path, self.case)


def shown(value: Any) -> str:
    """A value for a message, shortened."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except ValueError:
        text = written(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
