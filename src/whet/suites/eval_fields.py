"""Taking fields out of an eval suite: each is as it should be, or gives a problem with its path."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from whet.dataclass import dataclass
from whet.errors import UsageError
from whet.model.eval_cases import LONGEST_TEXT
from whet.reading.fields import is_number
from whet.reading.text import shown


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One thing that is wrong, and where: a path such as `cases_json[3].environment_ref`, empty for the whole."""

    path: str
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class EvalSuiteError(UsageError):
    """A document that is no eval suite; holds every problem that was found."""

    code = "suite"

    def __init__(self, problems: Sequence[FieldProblem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


DEEPEST = 64


def unsound(value: Any, path: str = "", depth: int = 0) -> Iterator[FieldProblem]:
    """A problem for each text with a NUL or half a surrogate pair, number that is none, and nesting too deep."""
    if depth > DEEPEST:
        yield FieldProblem(path, f"is nested more than {DEEPEST} levels deep")
        return
    match value:
        case Mapping():
            for key, item in value.items():
                if not isinstance(key, str) or _text_problem(key) is not None:
                    yield FieldProblem(path, f"has the key {key!r}, which is no text that can be stored")
                    continue
                yield from unsound(item, f"{path}.{key}" if path else key, depth + 1)
        case list() | tuple():
            for index, item in enumerate(value):
                yield from unsound(item, f"{path}[{index}]", depth + 1)
        case _:
            if (why := _problem(value)) is not None:
                yield FieldProblem(path, why)


def _problem(value: Any) -> str | None:
    match value:
        case None | bool():
            return None
        case int():
            # What can be stored of whole numbers.
            return None if -(2**63) <= value < 2**64 else "is a number that is too large"
        case str():
            return _text_problem(value)
        case float():
            return None if math.isfinite(value) else "is a number that JSON does not have"
        case _:
            return f"is a {type(value).__name__}, which JSON does not have"


def _text_problem(text: str) -> str | None:
    if "\0" in text:
        return "holds a NUL character"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "holds half a surrogate pair"
    return None


T = TypeVar("T")
# Looking for the name that was meant takes long; whoever has more slips than this made up a document of them.
_MOST_HINTS = 100


@dataclass(slots=True)
class Fields:
    """One object of a document, where it stands, and what was found to be wrong so far."""

    values: Mapping[str, Any]
    problems: list[FieldProblem]
    path: str = ""

    def problem(self, name: str, message: str, hint: str | None = None) -> None:
        """Something is wrong with the field *name*, or without a name with the object."""
        self.problems.append(FieldProblem(self.place(name), message, hint))

    def place(self, name: str) -> str:
        """The path of the field *name*."""
        return f"{self.path}.{name}" if self.path and name else name or self.path

    def refuse_unknown(self, known: Sequence[str]) -> None:
        """A key that nothing reads is most likely a slip, and would change what is measured."""
        for name in self.values:
            if name not in known:
                near = get_close_matches(name, known, n=1) if len(self.problems) < _MOST_HINTS else []
                self.problem(name, "is not a known field", f'did you mean "{near[0]}"?' if near else None)

    def point_at_slip(self, name: str) -> None:
        """Where *name* is missing and decides which others are known, only what looks like it can be told."""
        if name not in self.values and len(self.problems) < _MOST_HINTS:
            for near in get_close_matches(name, list(self.values), n=1, cutoff=0.8):
                self.problem(near, "is not a known field", f'did you mean "{name}"?')

    def given(self, name: str) -> Any:
        """The value as it is; null is none."""
        return self.values.get(name)

    def text(self, name: str, *, required: bool = False, empty: bool = False) -> str | None:
        """A string."""
        value = self.given(name)
        if value is None:
            if required:
                self.problem(name, "is missing" if name not in self.values else "must not be null")
            return None
        if not isinstance(value, str):
            self.problem(name, f"must be a string, not {shown(value)}")
        elif not empty and not value.strip():
            self.problem(name, "must not be empty")
        elif len(value) > LONGEST_TEXT:
            self.problem(name, f"has more than {LONGEST_TEXT:,} characters")
        else:
            return value
        return None

    def choice(self, name: str, words: Sequence[T], *, required: bool = False, default: T | None = None) -> T | None:
        """One of some words."""
        value = self.text(name, required=required, empty=True)
        if value is None:
            return default
        for word in words:
            if word == value:
                return word
        known = [str(word) for word in words]
        near = get_close_matches(value, known, n=1)
        hint = f'did you mean "{near[0]}"?' if near else None
        self.problem(name, f"must be one of {', '.join(known)}, not {shown(value)}", hint)
        return default

    def number(
        self, name: str, *, above: float | None = None, least: float | None = None, most: float = math.inf
    ) -> float | None:
        """A number within its bounds."""
        value = self.given(name)
        if value is None:
            return None
        fits = is_number(value)
        too_small = fits and ((above is not None and value <= above) or (least is not None and value < least))
        if not fits or too_small or value > most:
            floor = f" above {above:g}" if above is not None else f" of at least {least:g}" if least is not None else ""
            ceiling = f" and at most {most:g}" if most < math.inf else ""
            self.problem(name, f"must be a number{floor}{ceiling}, not {shown(value)}")
            return None
        # As it was written: what comes back to its author is 120000, and not 120000.0.
        number: float = value
        return number

    def count(self, name: str, *, most: int) -> int | None:
        """A whole number from 1 to *most*."""
        value = self.given(name)
        if value is None:
            return None
        if not is_number(value) or value != int(value) or not 1 <= value <= most:
            self.problem(name, f"must be a whole number from 1 to {most}, not {shown(value)}")
            return None
        return int(value)

    def flag(self, name: str, default: bool) -> bool:
        """Yes or no."""
        value = self.given(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.problem(name, f"must be true or false, not {shown(value)}")
            return default
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings that say something."""
        return tuple(
            self.item_text(place, item) for place, item in self.items(name) if self.item_text(place, item, note=True)
        )

    def item_text(self, place: str, item: Any, *, note: bool = False) -> str:
        """A string in a list; an empty one where it is none, which is noted once."""
        if isinstance(item, str) and item.strip() and len(item) <= LONGEST_TEXT:
            return item
        if note:
            self.problem(place, f"must be a string that is not empty, not {shown(item)}")
        return ""

    def items(self, name: str, *, most: int | None = None) -> Iterator[tuple[str, Any]]:
        """The items of a list, each with its place."""
        value = self.given(name)
        if value is None:
            return
        if not isinstance(value, list | tuple):
            self.problem(name, f"must be a list, not {shown(value)}")
            return
        if most is not None and len(value) > most:
            self.problem(name, f"has {len(value)} items, and at most {most} are allowed")
            return
        for index, item in enumerate(value):
            yield f"{name}[{index}]", item

    def table(self, name: str) -> Fields:
        """An object within this one; an empty one where there is none."""
        return self.object(name, {} if self.given(name) is None else self.given(name))

    def object(self, name: str, value: Any) -> Fields:
        """*value*, which stands at *name*, as an object; noted where it is none."""
        if not isinstance(value, Mapping):
            self.problem(name, f"must be an object, not {shown(value)}")
        return Fields(value if isinstance(value, Mapping) else {}, self.problems, self.place(name))

    def checked(self, name: str, value: T | None, reason: Callable[[T], str | None]) -> T | None:
        """*value*, unless there is a *reason* against it."""
        why = reason(value) if value is not None else None
        if why is not None:
            self.problem(name, why)
            return None
        return value
