"""What all groups of expectations share: where failures go, and how they are put into words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from whet.expectations.failure import ExpectationFailed, cut, describe, place
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
    return report if isinstance(report, Session) else report.session


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
        near: str | None = None,
        names: Sequence[str] | None = None,
        message: str | None,
        explain: str | None,
    ) -> None:
        text = describe(expected, what, observed, near=near, names=names)
        self._say(text, message=message, explain=explain)

    def _say(self, text: str, *, message: str | None, explain: str | None) -> None:
        """Fail with *text*, after the author's own words where there are any."""
        said = f"{cut(message)}\n{text}" if message else text
        self._fail(ExpectationFailed(said, location=place(), question=explain))


def exactly(count: int) -> str:
    """Such as "never", "exactly once" and "exactly 3 times"."""
    return "never" if count == 0 else f"exactly {times(count)}"


def times(count: int) -> str:
    """Such as "once" and "3 times"."""
    return {0: "never", 1: "once"}.get(count, f"{count} times")
