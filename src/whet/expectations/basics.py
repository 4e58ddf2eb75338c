"""The strict basics: for values of the author's own."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from whet.expectations.failure import ExpectationFailed, cut, place, shorten
from whet.expectations.group import Fail

_SHOWN = 1000


class Basics:
    """Equality, truth, patterns and exceptions."""

    def __init__(self, fail: Fail) -> None:
        self._fail = fail

    def ok(self, value: object, message: str | None = None) -> None:
        """It is true."""
        if not value:
            self._miss(f"expected something true, observed {_shown(value)}", message)

    def equal(self, observed: object, expected: object, message: str | None = None) -> None:
        """They are equal and of one type, so that True is not 1."""
        if type(observed) is not type(expected) or observed != expected:
            left, right = _shown(expected), _shown(observed)
            if left == right:
                left, right = (f"{text} ({type(it).__name__})" for text, it in ((left, expected), (right, observed)))
            self._miss(f"expected {left}\nobserved {right}", message)

    def not_equal(self, observed: object, other: object, message: str | None = None) -> None:
        """They are not."""
        if type(observed) is type(other) and observed == other:
            self._miss(f"expected anything but {_shown(other)}", message)

    def match(self, text: str, pattern: str | re.Pattern[str], message: str | None = None) -> None:
        """The pattern is found in the text."""
        if re.search(pattern, text) is None:
            self._miss(f"expected a match of {_pattern(pattern)}\nobserved {_shown(text)}", message)

    def does_not_match(self, text: str, pattern: str | re.Pattern[str], message: str | None = None) -> None:
        """The pattern is not found in the text."""
        found = re.search(pattern, text)
        if found is not None:
            what = _shown(found.group())
            self._miss(f"expected no match of {_pattern(pattern)}, found {what}\nobserved {_shown(text)}", message)

    def raises(
        self,
        kind: type[BaseException] | tuple[type[BaseException], ...],
        call: Callable[[], Any],
        message: str | None = None,
    ) -> BaseException | None:
        """Calling it raises this; the exception."""
        name = " or ".join(each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,)))
        try:
            call()
        except kind as error:
            return error
        except Exception as error:  # noqa: BLE001 - whatever else is raised is the observation
            self._miss(f"expected {name}, observed {type(error).__name__}: {error}", message)
            return None
        self._miss(f"expected {name}, observed no exception", message)
        return None

    def _miss(self, text: str, message: str | None) -> None:
        self._fail(ExpectationFailed(f"{cut(message)}\n{text}" if message else text, location=place()))


def _shown(value: object) -> str:
    try:
        return shorten(repr(value), _SHOWN)
    except Exception as error:  # noqa: BLE001 - a broken repr must not hide what did not hold
        return f"a {type(value).__name__} whose repr raises {type(error).__name__}"


def _pattern(pattern: str | re.Pattern[str]) -> str:
    return f"/{shorten(pattern if isinstance(pattern, str) else pattern.pattern)}/"
