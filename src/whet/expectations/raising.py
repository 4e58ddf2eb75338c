"""Waiting for an exception: a block, or a call, that must raise it."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, TypeVar

from whet.expectations.failure import shorten

X = TypeVar("X", bound=BaseException)

_MOST_SHOWN = 1000


@dataclass(slots=True)
class Raised(Generic[X]):
    """What a block raised; known when the block is over."""

    error: X | None = None


@dataclass(frozen=True, slots=True)
class Wanted(Generic[X]):
    """The exceptions that will do, and what their text must have in it."""

    kinds: tuple[type[X], ...]
    match: re.Pattern[str] | None

    def __str__(self) -> str:
        names = " or ".join(kind.__name__ for kind in self.kinds)
        return names if self.match is None else f"{names} with a match of /{shorten(self.match.pattern)}/"

    def found_in(self, error: BaseException | None) -> X | None:
        """The exception, if it is of a kind that was asked for."""
        return error if isinstance(error, self.kinds) else None

    def takes(self, error: BaseException) -> bool:
        """Whether it is an observation; what ends a program is one only where it is asked for."""
        return isinstance(error, (*self.kinds, Exception))

    def complaint(self, error: BaseException | None) -> str | None:
        """What is wrong with what was raised, if anything is."""
        if error is None:
            return f"expected {self}, observed no exception"
        fits = isinstance(error, self.kinds) and (self.match is None or self.match.search(str(error)))
        return None if fits else f"expected {self}, observed {_told(error)}"


def check_kind(kind: Any) -> tuple[type[Any], ...]:
    """The kinds of exceptions that were given, one or several."""
    kinds: tuple[Any, ...] = kind if isinstance(kind, tuple) else (kind,)
    for each in kinds:
        if not (isinstance(each, type) and issubclass(each, BaseException)):
            raise TypeError(f"give the class of an exception, such as ValueError, not {shorten(repr(each))}")
    if not kinds:
        raise TypeError("give the class of at least one exception")
    return kinds


class Raising(AbstractContextManager[Raised[X]]):
    """The block; inside of it plain asserts raise, also where a soft block is around it."""

    def __init__(self, wanted: Wanted[X], miss: Callable[[str], None], hard: AbstractContextManager[None]) -> None:
        self._wanted, self._miss, self._hard = wanted, miss, hard
        self._raised: Raised[X] = Raised()

    def __enter__(self) -> Raised[X]:
        self._hard.__enter__()
        return self._raised

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        # It only sets things back: what was raised is looked at here.
        self._hard.__exit__(None, None, None)
        if error is not None and not self._wanted.takes(error):
            return False
        self._raised.error = self._wanted.found_in(error)
        if complaint := self._wanted.complaint(error):
            self._miss(complaint)
        return True


def _told(error: BaseException) -> str:
    return shorten(f"{type(error).__name__}: {error}".removesuffix(": "), _MOST_SHOWN)
