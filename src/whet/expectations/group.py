"""What all groups of expectations share: where failures go, and how they are put into words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from whet.expectations.failure import ExpectationFailed, Pointed, cut, describe, place
from whet.model.session import Session

Fail = Callable[[AssertionError], None]


class HasSession(Protocol):
    """A check's context, which stands for its session."""

    @property
    def session(self) -> Session:
        """The session."""


Report = Session | HasSession


def session_of(report: Report) -> Session:
    """The session, whether it or the context was given."""
    if isinstance(report, Session):
        return report
    session = getattr(report, "session", None)
    if isinstance(session, Session):
        return session
    raise TypeError(f"the first argument is the session or the context of the check, not a {type(report).__name__}")


class Group:
    """A set of expectations over one kind of evidence."""

    def __init__(self, fail: Fail) -> None:
        self._fail = fail

    def _broken(
        self,
        expected: str,
        what: str,
        observed: Sequence[str],
        *,
        pointed: Pointed | None = None,
        message: str | None,
        explain: str | None,
    ) -> None:
        self._say(describe(expected, what, observed, pointed), message=message, explain=explain)

    def _say(self, text: str, *, message: str | None, explain: str | None) -> None:
        """Fail with *text*, after the author's own words where there are any."""
        check_words(message=message, explain=explain)
        said = f"{cut(message)}\n{text}" if message else text
        self._fail(ExpectationFailed(said, location=place(), question=explain))


def check_words(**words: object) -> None:
    """Refuse what an author cannot have meant to say."""
    for name, given in words.items():
        if given is not None and not isinstance(given, str):
            raise TypeError(f"{name} is a string, not a {type(given).__name__}")


def numbers(indexes: Sequence[int]) -> str:
    """Such as "number 5" or "numbers 1, 3 and 12 more", as they are numbered in a message."""
    shown_most = 5
    listed = ", ".join(str(index + 1) for index in indexes[:shown_most])
    more = f" and {len(indexes) - shown_most} more" if len(indexes) > shown_most else ""
    return f"number{'' if len(indexes) == 1 else 's'} {listed}{more}"


def characters(text: str) -> str:
    """Such as "1 character"."""
    return f"{len(text)} character{'' if len(text) == 1 else 's'}"


def check_count(count: object) -> None:
    """Refuse what nothing can be counted to."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"a count is a whole number, not {cut(repr(count), 80)}")
    if count < 0:
        raise ValueError(f"a count is 0 or more, not {count}")


def exactly(count: int) -> str:
    """Such as "never", "exactly once" and "exactly 3 times"."""
    return "never" if count == 0 else f"exactly {times(count)}"


def at_most(count: int) -> str:
    """Such as "never", "at most once" and "at most 3 times"."""
    return "never" if count == 0 else f"at most {times(count)}"


def times(count: int) -> str:
    """Such as "never", "once" and "3 times"."""
    return {0: "never", 1: "once"}.get(count, f"{count} times")
