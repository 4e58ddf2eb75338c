"""One reader for the fields of any document: each field gives a checked value, or a problem with its place."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeGuard, TypeVar, cast, overload

from msgspec import Struct, field
from msgspec.structs import replace

from whet.errors import Problem
from whet.reading.documents import Node
from whet.reading.text import did_you_mean, shorten, shown

# The largest whole number up to which other readers of JSON tell all of them apart.
LARGEST_WHOLE = 2**53


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether *value* is a number to calculate with: finite, not beyond every float, and not True or False."""
    # A comparison, because `math.isfinite` and `float` raise for whole numbers beyond every float.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def is_whole(value: object, least: int, most: int = LARGEST_WHOLE) -> TypeGuard[int]:
    """Return whether *value* is a whole number from *least* to *most*."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


ANY_VARIABLE = re.compile(r"[^=]+", re.DOTALL)
# Finding the field that was meant takes long, and does not help with more slips than this.
MOST_HINTS = 100
T = TypeVar("T")

# How a text begins that `whet init` leaves to the author.
UNWRITTEN = "TODO:"


class Language(Struct, frozen=True):
    """How a document writes what it holds, for messages about it."""

    show: Callable[[Any], str] = shown
    name: Callable[[str], str] = str
    an_object: str = "an object"
    a_flag: str = "true or false"


class Findings(Struct):
    """The problems and warnings of one document, and what holds for all of its fields.

    With the `root` of the document, each problem has its line. If `null_is_missing`, a field that is null counts
    as missing. No message shows the text of a field whose name `is_secret`.
    """

    file: str = ""
    root: Node | None = None
    null_is_missing: bool = True
    longest_text: int | None = None
    language: Language = Language()
    is_secret: Callable[[str], bool] = lambda _: False
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def line(self, path: str) -> int:
        """Return the line of what is at *path*; 1 if the lines are not known."""
        return 1 if self.root is None else self.root.at(path).line

    def note(self, path: str, message: str, hint: str | None = None, case: str | None = None) -> None:
        """Note a problem with what is at *path*; an empty path is the whole document."""
        self.problems.append(self.at(path, message, hint, case))

    def at(self, path: str, message: str, hint: str | None = None, case: str | None = None) -> Problem:
        """Return a problem with its place."""
        return Problem(file=self.file, case=case, field=self.place(path) or None, message=message, hint=hint)

    def place(self, path: str) -> str:
        """Return *path* with its line, if lines are known."""
        if self.root is None:
            return path
        line = f"line {self.line(path)}"
        return f"{path} ({line})" if path else line


class Fields(Struct):
    """Reads the fields of one object: returns each value checked, or notes a problem and returns None.

    `path` is the place of the object in its document, such as `cases[3].env`.
    """

    values: Mapping[str, Any]
    findings: Findings
    path: str = ""
    case: str | None = None

    def problem(self, name: str, message: str, hint: str | None = None) -> None:
        """Note what is wrong with the field *name*, or without a name with the object."""
        self.findings.note(self.place(name), message, hint, self.case)

    def warn(self, name: str, message: str, hint: str | None = None) -> None:
        """Note what looks wrong with the field *name*."""
        self.findings.warnings.append(self.findings.at(self.place(name), message, hint, self.case))

    def place(self, name: str) -> str:
        """Return the path of the field *name*."""
        label = self.findings.language.name(name) if name else ""
        return f"{self.path}.{label}" if self.path and name else label or self.path

    def refuse_unknown(self, known: Sequence[str], aliases: Mapping[str, str] = MappingProxyType({})) -> None:
        """Note a problem for each field that nothing reads: most likely a slip that changes what is measured.

        *aliases* gives the field that another word most likely means.
        """
        for name in self.values:
            if name not in known:
                self.problem(name, "is not a known field", self._meant(name, known, aliases))

    def warn_of_unknown(self, known: Sequence[str], aliases: Mapping[str, str] = MappingProxyType({})) -> None:
        """Note a warning for each field that nothing reads."""
        for name in self.values:
            if name not in known:
                self.warn(name, "is not a known field, and is ignored", self._meant(name, known, aliases))

    def _meant(self, name: str, known: Sequence[str], aliases: Mapping[str, str]) -> str | None:
        if len(self.findings.problems) >= MOST_HINTS:
            return None
        if field := aliases.get(re.sub(r"[^a-z]", "", name.lower())):
            return f'did you mean "{field}"?'
        return did_you_mean(name, known) or f"known: {', '.join(known)}"

    def given(self, name: str) -> Any:
        """Return the value as it is; None if it is missing or null."""
        return self.values.get(name)

    def has(self, name: str, *, required: bool = False, hint: str | None = None) -> bool:
        """Return whether the field is there; note a problem if it is *required* and missing."""
        if self.values.get(name) is not None or (name in self.values and not self.findings.null_is_missing):
            return True
        if required:
            self.problem(name, "must not be null" if name in self.values else "is missing", hint)
        return False

    def text(self, name: str, *, required: bool = False, empty: bool = False, hint: str | None = None) -> str | None:
        """Read a string that says something, or with *empty* any string."""
        if not self.has(name, required=required, hint=hint):
            return None
        return self.text_at(name, self.given(name), empty=empty)

    def text_at(self, name: str, value: Any, *, empty: bool = False, blank: bool = False) -> str | None:
        """Check that *value*, which is at *name*, is a string that says something; *blank* allows "  " as well."""
        longest = self.findings.longest_text
        if not isinstance(value, str):
            self.problem(name, f"must be a string, not {self._shown_text(name, value)}", self._quoted(name, value))
        elif not (empty or (value if blank else value.strip())):
            self.problem(name, "must not be empty")
        elif longest is not None and len(value) > longest:
            self.problem(name, f"has more than {longest:,} characters")
        elif not is_portable(value):
            self.problem(name, "holds a character that no program can be given (NUL or half a surrogate pair)")
        else:
            return value
        return None

    def texts(
        self,
        name: str,
        *,
        required: bool = False,
        empty: bool = False,
        blank: bool = False,
        reason: Callable[[str], str | None] = lambda _: None,
    ) -> tuple[str, ...]:
        """Read a list of strings that say something, or with *empty* any strings; a *required* one has an item.

        A string is refused if there is a *reason* against it.
        """
        if not self.has(name, required=required):
            return ()
        value = self.given(name)
        if not isinstance(value, list | tuple):
            hint = "put it into a list" if isinstance(value, str) else None
            self.problem(name, f"must be a list of strings, not {self.shown(name, value)}", hint)
            return ()
        if required and not value:
            self.problem(name, "must not be empty")
        items = (
            self.checked(place, self.text_at(place, item, empty=empty, blank=blank), reason)
            for place, item in self.items(name)
        )
        return tuple(text for text in items if text is not None)

    def choice(self, name: str, words: Sequence[T], *, required: bool = False) -> T | None:
        """Read one of some *words*."""
        if not self.has(name, required=required):
            return None
        value = self.given(name)
        for word in words:
            if word == value:
                return word
        names = [str(word) for word in words]
        hint = did_you_mean(value, names) if isinstance(value, str) else None
        self.problem(name, f"must be one of {', '.join(names)}, not {self.shown(name, value)}", hint)
        return None

    @overload
    def number(
        self, name: str, *, default: float, above: float | None = ..., least: float | None = ..., most: float = ...
    ) -> float: ...

    @overload
    def number(
        self,
        name: str,
        *,
        above: float | None = ...,
        least: float | None = ...,
        most: float = ...,
        hint: str | None = ...,
    ) -> float | None: ...

    def number(
        self,
        name: str,
        *,
        default: float | None = None,
        above: float | None = None,
        least: float | None = None,
        most: float = math.inf,
        hint: str | None = None,
    ) -> float | None:
        """Read a number within its bounds, as it is written: 120000 does not become 120000.0."""
        if not self.has(name):
            return default
        value = self.given(name)
        if isinstance(value, int) and value > sys.float_info.max:
            self.problem(name, "is too large a number")
            return default
        fits = is_number(value) and value <= most
        if not fits or (above is not None and value <= above) or (least is not None and value < least):
            if above is not None:
                floor = f" above {above:g}"
            elif least is not None:
                floor = f" of at least {least:g}"
            else:
                floor = ""
            ceiling = f" and at most {most:g}" if most < math.inf else ""
            if isinstance(value, str) and re.fullmatch(r"[0-9.]+", value):
                hint = "leave out the quotes"
            self.problem(name, f"must be a number{floor}{ceiling}, not {self.shown(name, value)}", hint)
            return default
        return cast("float", value)

    def whole(self, name: str, *, least: int = 1, most: int = LARGEST_WHOLE, exact: bool = False) -> int | None:
        """Read a whole number; 3.0 is one unless *exact*, because JSON does not tell it from 3."""
        if not self.has(name):
            return None
        value = self.given(name)
        is_whole = isinstance(value, int) if exact else is_number(value) and value == int(value)
        if not is_whole or isinstance(value, bool) or not least <= value <= most:
            ceiling = f" and at most {'2**53' if most == LARGEST_WHOLE else f'{most:,}'}"
            if most == LARGEST_WHOLE and not (is_whole and value > most):
                # The ceiling is only of interest to those who reach it.
                ceiling = ""
            self.problem(name, f"must be an integer of at least {least}{ceiling}, not {self.shown(name, value)}")
            return None
        return int(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """Read true or false."""
        value = self.given(name)
        if not self.has(name) or isinstance(value, bool):
            return default if value is None else value
        self.problem(name, f"must be {self.findings.language.a_flag}, not {self.shown(name, value)}")
        return default

    def items(self, name: str, *, most: int | None = None) -> Iterator[tuple[str, Any]]:
        """Yield the items of a list, each with its place."""
        if not self.has(name):
            return
        value = self.given(name)
        if not isinstance(value, list | tuple):
            self.problem(name, f"must be a list, not {self.shown(name, value)}")
            return
        if most is not None and len(value) > most:
            self.problem(name, f"has {len(value)} items, and at most {most} are allowed")
            return
        for index, item in enumerate(value):
            yield f"{name}[{index}]", item

    def table(self, name: str, *, required: bool = False) -> Fields:
        """Read an object within this one; an empty one if there is none."""
        return self.object(name, self.given(name) if self.has(name, required=required) else {})

    def object(self, name: str, value: Any) -> Fields:
        """Check that *value*, which is at *name*, is an object; an empty one if it is not."""
        if not isinstance(value, Mapping):
            self.problem(name, f"must be {self.findings.language.an_object}, not {self.shown(name, value)}")
        return replace(self, values=value if isinstance(value, Mapping) else {}, path=self.place(name))

    def variables(self, name: str, names: re.Pattern[str] = ANY_VARIABLE) -> dict[str, str]:
        """Read environment variables and their values; *names* is what their names must match."""
        table = self.table(name)
        for key, value in table.values.items():
            table.checked(str(key), key, lambda key: variable_problem(key, names))
            table.text_at(str(key), value, empty=True)
        return {str(key): str(value) for key, value in table.values.items()}

    def checked(self, name: str, value: T | None, reason: Callable[[T], str | None]) -> T | None:
        """Return *value*, unless there is a *reason* against it, which is noted."""
        why = reason(value) if value is not None else None
        if why is not None:
            self.problem(name, why)
            return None
        return value

    def shown(self, name: str, value: Any) -> str:
        """Return *value*, which is at *name*, for a message: a number as it is written in the document."""
        return shorten(self._written(name) or self.findings.language.show(value))

    def _shown_text(self, name: str, value: Any) -> str:
        return "***" if self.findings.is_secret(name) else self.shown(name, value)

    def _quoted(self, name: str, value: Any) -> str | None:
        if isinstance(value, Mapping) and len(value) == 1 and self.findings.root is not None:
            return "if it is YAML, put the text into quotes: a colon and a blank make an object of it"
        source = self._written(name) if isinstance(value, bool | int | float) else None
        return f'put it in quotes: "{shorten(source)}"' if source else None

    def _written(self, name: str) -> str | None:
        root = self.findings.root
        return None if root is None else root.at(self.place(name)).written


def is_portable(text: str) -> bool:
    """Return whether a program can be given *text*: it has no NUL and no half of a surrogate pair."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def variable_problem(name: object, names: re.Pattern[str] = ANY_VARIABLE) -> str | None:
    """Return why *name* cannot be the name of an environment variable; None if it can."""
    fits = isinstance(name, str) and is_portable(name) and names.fullmatch(name)
    return None if fits else "is not the name of a variable"


DEEPEST = 64


def unsound(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the path and a message for each part of *value* that cannot be stored as JSON.

    JSON cannot store a NUL, half a surrogate pair, a number that is none or too large, or nesting that is too deep.
    """
    if depth > DEEPEST:
        yield path, f"is nested more than {DEEPEST} levels deep"
        return
    match value:
        case Mapping():
            for key, item in value.items():
                if not isinstance(key, str) or _text_problem(key) is not None:
                    yield path, f"has the key {key!r}, which cannot be stored"
                    continue
                yield from unsound(item, f"{path}.{key}" if path else key, depth + 1)
        case list() | tuple():
            for index, item in enumerate(value):
                yield from unsound(item, f"{path}[{index}]", depth + 1)
        case _:
            if (why := _value_problem(value)) is not None:
                yield path, why


def _value_problem(value: Any) -> str | None:
    match value:
        case None | bool():
            return None
        case int():
            return None if -(2**63) <= value < 2**64 else "is a number that is too large"
        case str():
            return _text_problem(value)
        case float():
            return None if math.isfinite(value) else "is a number that JSON does not have"
        case _:
            return f"is a {type(value).__name__}, which JSON does not have"


def _text_problem(text: str) -> str | None:
    if is_portable(text):
        return None
    return "holds a NUL character" if "\0" in text else "holds half a surrogate pair"
