"""The strict basics: for values of the author's own."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar, overload

from whet.expectations.equality import differences, is_same
from whet.expectations.failure import ExpectationFailed, cut, place, shorten
from whet.expectations.group import Fail, check_words
from whet.expectations.raising import Raised, Raising, Wanted, check_kind
from whet.expectations.scope import hard_block

X = TypeVar("X", bound=BaseException)
Pattern = str | re.Pattern[str]

_SHOWN = 1000


class Basics:
    """Equality, truth, patterns and exceptions."""

    def __init__(self, fail: Fail) -> None:
        self._fail = fail

    def ok(self, value: object, message: str | None = None) -> None:
        """It is true."""
        if inspect.iscoroutine(value):
            value.close()
            raise TypeError("a coroutine is always true: await it first")
        if inspect.isawaitable(value):
            raise TypeError(f"a {type(value).__name__} is always true: await it first")
        if callable(value):
            raise TypeError(f"{_named(value)} is always true: call it, and give what it gives")
        if not value:
            self._miss(f"expected something true, observed {_shown(value)}", message)

    def equal(self, observed: object, expected: object, message: str | None = None) -> None:
        """They are equal and of one type, also inside of lists and maps, so that True is not 1."""
        if not is_same(observed, expected):
            left, right = _shown(expected), _shown(observed)
            if left == right or _is_only_of_another_type(observed, expected):
                left, right = (f"{text} ({type(it).__name__})" for text, it in ((left, expected), (right, observed)))
            told = "".join(f"\n  {line}" for line in differences(observed, expected))
            self._miss(f"expected {left}\nobserved {right}{told}", message)

    def not_equal(self, observed: object, other: object, message: str | None = None) -> None:
        """They are not."""
        if is_same(observed, other):
            self._miss(f"expected anything but {_shown(other)}", message)

    def match(self, text: str, pattern: Pattern, message: str | None = None) -> None:
        """The pattern is found in the text."""
        if _found(pattern, text) is None:
            self._miss(f"expected a match of {_pattern(pattern)}\nobserved {_shown(text)}", message)

    def does_not_match(self, text: str, pattern: Pattern, message: str | None = None) -> None:
        """The pattern is not found in the text."""
        found = _found(pattern, text)
        if found is not None:
            what = _shown(found.group())
            self._miss(f"expected no match of {_pattern(pattern)}, found {what}\nobserved {_shown(text)}", message)

    @overload
    def raises(
        self, kind: type[X] | tuple[type[X], ...], *, match: Pattern | None = None, message: str | None = None
    ) -> AbstractContextManager[Raised[X]]: ...
    @overload
    def raises(
        self,
        kind: type[X] | tuple[type[X], ...],
        call: Callable[[], object],
        message: str | None = None,
        *,
        match: Pattern | None = None,
    ) -> X | None: ...
    def raises(
        self,
        kind: type[X] | tuple[type[X], ...],
        call: Callable[[], object] | None = None,
        message: str | None = None,
        *,
        match: Pattern | None = None,
    ) -> AbstractContextManager[Raised[X]] | X | None:
        """The block, or the call, raises this, with a text in which *match* is found; the exception."""
        wanted: Wanted[X] = Wanted(check_kind(kind), None if match is None else compiled(match))
        if call is None:
            return Raising(wanted, lambda text: self._miss(text, message), hard_block())
        error = _raised_by(call)
        if error is not None and not wanted.takes(error):
            raise error
        if complaint := wanted.complaint(error):
            self._miss(complaint, message)
        return wanted.found_in(error)

    def _miss(self, text: str, message: str | None) -> None:
        check_words(message=message)
        self._fail(ExpectationFailed(f"{cut(message)}\n{text}" if message else text, location=place()))


def _raised_by(call: Callable[[], object]) -> BaseException | None:
    """What the call raises; one that is async raises nothing before it is awaited."""
    if not callable(call):
        raise TypeError(f"give a function to call, not a {type(call).__name__}")
    given: object = None
    with hard_block():
        try:
            given = call()
        except BaseException as error:  # noqa: BLE001 - it is the observation
            return error
    if inspect.isawaitable(given):
        if inspect.iscoroutine(given):
            given.close()
        raise TypeError("what the call gives is async and raises nothing yet: await it in `with expect.raises(...):`")
    return None


def compiled(pattern: Pattern) -> re.Pattern[str]:
    """*pattern*, ready to be searched for."""
    try:
        found = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{_shown(pattern)} is no regular expression: {error}") from None
    except TypeError:
        raise TypeError(f"a pattern is a string or a compiled pattern, not a {type(pattern).__name__}") from None
    if not isinstance(found.pattern, str):
        raise TypeError("a pattern is one of text, not of bytes")
    return found


class NotText(TypeError):
    """What should be searched is no text; what was observed may be anything, so this is no wrong call."""


def _named(function: object) -> str:
    name = getattr(function, "__name__", None)
    return f"a {type(function).__name__}" if name in (None, "<lambda>") else f"the function {name}"


def _is_only_of_another_type(one: object, other: object) -> bool:
    try:
        return type(one) is not type(other) and bool(one == other)
    except Exception:  # noqa: BLE001 - an author's `__eq__` may raise
        return False


def _found(pattern: Pattern, text: str) -> re.Match[str] | None:
    if not isinstance(text, str):
        raise NotText(f"a pattern is looked for in a string, not in a {type(text).__name__}: {_shown(text)}")
    return compiled(pattern).search(text)


def _shown(value: object) -> str:
    try:
        return shorten(repr(value), _SHOWN)
    except Exception as error:  # noqa: BLE001 - a broken repr must not hide what did not hold
        return f"a {type(value).__name__} whose repr raises {type(error).__name__}"


def _pattern(pattern: Pattern) -> str:
    return f"/{shorten(pattern if isinstance(pattern, str) else pattern.pattern)}/"
