"""The fields of a bench suite, one by one: each is taken as it should be, or gives a problem with its place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from difflib import get_close_matches
from pathlib import Path

from whet.dataclass import dataclass
from whet.errors import Problem
from whet.reading.documents import Node
from whet.reading.fields import is_number

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOOKS_LIKE_MS = 10_000
# Spellings that are too far from the right one to be found by likeness.
_OTHER_WORDS = {
    "budgetusd": "budget",
    "maxcost": "budget",
    "timeoutms": "timeout",
    "timeoutseconds": "timeout",
    "expectations": "expect",
    "assert": "expect",
    "task": "prompt",
    "tests": "cases",
    "bootstrap": "setup",
    "environment": "env",
    "title": "name",
}


@dataclass(slots=True)
class Notes:
    """What was found to be wrong, and what merely looks so."""

    file: Path
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)


@dataclass(slots=True)
class Fields:
    """An object of the file: takes its members, and notes what is wrong with them; `path` is where it stands."""

    notes: Notes
    node: Node
    path: str = ""
    case: str | None = None

    @property
    def members(self) -> Mapping[str, Node]:
        """The members, of which there are none where it is no object."""
        return self.node.value if isinstance(self.node.value, Mapping) else {}

    def note(self, name: str, message: str, hint: str | None = None) -> None:
        """Something is wrong with a member, or without a name with the object."""
        self.notes.problems.append(self._problem(name, message, hint))

    def warn(self, name: str, message: str, hint: str | None = None) -> None:
        """Something looks wrong with it."""
        self.notes.warnings.append(self._problem(name, message, hint))

    def is_object(self) -> bool:
        """Whether it is one; noted where it is not."""
        if not isinstance(self.node.value, Mapping):
            self.note("", f"must be an object, not {shown(self.node)}")
            return False
        return True

    def warn_unknown(self, known: tuple[str, ...]) -> None:
        """Tell of members that have no meaning, with the nearest that has."""
        for name in self.members:
            if name not in known:
                plain = re.sub(r"[^a-z]", "", name.lower())
                near = get_close_matches(_OTHER_WORDS.get(plain, plain), known, n=1)
                hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(known)}"
                self.warn(name, "is not a field, and is ignored", hint)

    def text(self, name: str, *, required: bool = False) -> str | None:
        """A string that says something."""
        node = self._member(name, required=required)
        if node is None:
            return None
        problem = text_problem(node)
        if problem:
            self.note(name, *problem)
            return None
        return str(node.value)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        node = self._member(name)
        if node is None:
            return ()
        if not isinstance(node.value, tuple):
            hint = "put it into a list" if isinstance(node.value, str) else None
            self.note(name, f"must be a list of strings, not {shown(node)}", hint)
            return ()
        return tuple(
            dict.fromkeys(text for index, item in enumerate(node.value) for text in self._item(name, index, item))
        )

    def number(self, name: str) -> float | None:
        """A number above 0."""
        node = self._member(name)
        if node is None:
            return None
        value = node.value
        if not is_number(value) or value <= 0:
            hint = "leave out the quotes" if isinstance(value, str) and re.fullmatch(r"[0-9.]+", value) else None
            self.note(name, f"must be a number above 0, not {shown(node)}", hint)
            return None
        return float(value)

    def seconds(self, name: str) -> float | None:
        """A time limit; one of hours is told, for it is more likely one in milliseconds."""
        value = self.number(name)
        if value is not None and value >= _LOOKS_LIKE_MS:
            self.warn(name, f"is {value:g} seconds, which looks like milliseconds", f"write {value / 1000:g}")
        return value

    def variables(self, name: str) -> dict[str, str]:
        """Variables and their values."""
        node = self._member(name)
        if node is None:
            return {}
        inner = Fields(self.notes, node, self._place(name), self.case)
        if not inner.is_object():
            return {}
        for key in inner.members:
            if not _VARIABLE.fullmatch(key):
                inner.note(key, "is no name of a variable")
        values = {key: inner.members[key] for key in inner.members}
        for key, value in values.items():
            if not isinstance(value.value, str) or "\0" in value.value:
                inner.note(key, f"must be a string, not {shown(value)}", "put it in quotes")
        return {key: str(value.value) for key, value in values.items()}

    def script(self, name: str) -> str | None:
        """A line of shell, or several in a list."""
        node = self._member(name)
        if node is None:
            return None
        if isinstance(node.value, tuple):
            lines = self.texts(name)
            return "\n".join(("set -e", *lines)) if lines else None
        return self.text(name)

    def _member(self, name: str, *, required: bool = False) -> Node | None:
        found = self.members.get(name)
        if found is None and required:
            self.note(name, "is missing")
        return found

    def _item(self, name: str, index: int, item: Node) -> list[str]:
        problem = text_problem(item)
        if problem:
            inner = Fields(self.notes, item, f"{self._place(name)}[{index}]", self.case)
            inner.note("", *problem)
            return []
        return [str(item.value)]

    def _place(self, name: str) -> str:
        return ".".join(part for part in (self.path, name) if part)

    def _problem(self, name: str, message: str, hint: str | None) -> Problem:
        line = self.members[name].line if name in self.members else self.node.line
        place = self._place(name)
        where = f"{place} (line {line})" if place else f"line {line}"
        return Problem(file=str(self.notes.file), case=self.case, field=where, message=message, hint=hint)


def text_problem(node: Node) -> tuple[str, str | None] | None:
    """Why a value is no string that says something, and what to do."""
    value = node.value
    if not isinstance(value, str):
        plain = isinstance(value, bool | int | float)
        return f"must be a string, not {shown(node)}", f'put it in quotes: "{node.written}"' if plain else None
    if not value.strip():
        return "must not be empty", None
    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        return "holds a character that no program can be given (NUL or half a surrogate pair)", None
    return None


def shown(node: Node) -> str:
    """A value, as a person would name it."""
    match node.value:
        case None:
            return "null"
        case bool():
            return f"the truth value {node.written}"
        case int() | float():
            return f"the number {node.written}"
        case str():
            return f'"{node.value[:40]}"'
        case tuple():
            return "a list"
        case _:
            return "an object"
