"""Expectations over what reads as one line each: commands and file reads."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar, Unpack

from whet.checks.items import OrderedGroup, OrderedItems, check_count, exactly, numbers
from whet.checks.looked_at import look_at
from whet.checks.matching import (
    LINE_MATCHERS,
    TEXT_MATCHERS,
    LineMatcher,
    MatcherKinds,
    TextMatcher,
    check_matcher,
    describe_matcher,
    finder_of,
    matches,
)
from whet.checks.message import ExpectationOptions, Pointer, Report, describe, session_of
from whet.model.events import CommandRun, Event, FileRead

L = TypeVar("L", bound=LineMatcher)


class _Lines(OrderedItems[L, str]):
    """Lines of a session, found through an index that lives as long as the session."""

    def __init__(
        self, report: Report, name: str, lines: Sequence[str], kinds: MatcherKinds, event_type: type[Event]
    ) -> None:
        super().__init__(lines)
        self._session, self._event_type = session_of(report), event_type
        self.name, self.many, self._kinds = name, f"{name}s", kinds
        self.singular, self.plural = f"{self.name} matching", f"{self.many} matching"
        self._finder = finder_of(self._session, self.many, lines)

    def check(self, matcher: object) -> None:
        check_matcher(matcher, self._kinds)

    def matches(self, matcher: L, item: str) -> bool:
        return matches(matcher, item)

    def find(self, matcher: L) -> list[int]:
        return self._finder.matching(matcher)

    def look_at(self, indexes: Sequence[int]) -> None:
        look_at(self._session, self._event_type, indexes)

    def line(self, item: str) -> str:
        return item

    def name_matcher(self, matcher: L) -> str:
        return describe_matcher(matcher)

    def nearest(self, matcher: L) -> Pointer | None:
        return self._finder.nearest(matcher)

    def point_at(self, matcher: L, index: int, word: str) -> Pointer | None:
        return self._finder.read(matcher, index, word)

    def size_problem(self, expected_count: int) -> str | None:
        """Return what is wrong unless there are exactly so many lines."""
        if len(self.all) == check_count(expected_count):
            return None
        return self.describe(f"1 {self.name}" if expected_count == 1 else f"{expected_count} {self.many}")

    def place_problem(self, matcher: L, index: int, position: str) -> str | None:
        """Return what is wrong unless the line at *index* matches."""
        indexes = self.find_checked(matcher)
        index %= len(self.all) or 1
        if index in indexes:
            return None
        expectation = f"the {position} {self.name} to match {self.name_matcher(matcher)}"
        if not indexes:
            return self.describe(expectation, self.nearest(matcher))
        return self.describe(f"{expectation}, but found {numbers(indexes)}", self.point_at(matcher, index, position))


class LinesGroup(OrderedGroup[L]):
    """Expectations over lines of a session."""

    @abstractmethod
    def _items(self, report: Report) -> _Lines[L]: ...

    def includes(self, report: Report, matcher: L, **words: Unpack[ExpectationOptions]) -> None:
        """At least one line matches."""
        self._expect(self._items(report).missing(matcher), words)

    def not_includes(self, report: Report, matcher: L, **words: Unpack[ExpectationOptions]) -> None:
        """No line matches."""
        self._expect(self._items(report).present(matcher), words)

    def exactly_one(self, report: Report, matcher: L, **words: Unpack[ExpectationOptions]) -> None:
        """One line matches, and no other."""
        self._expect(self._items(report).count_problem(matcher, exactly(1)), words)

    def size(self, report: Report, expected: int, **words: Unpack[ExpectationOptions]) -> None:
        """There are exactly so many lines."""
        self._expect(self._items(report).size_problem(expected), words)

    def first(self, report: Report, matcher: L, **words: Unpack[ExpectationOptions]) -> None:
        """The first line matches."""
        self._expect(self._items(report).place_problem(matcher, 0, "first"), words)

    def last(self, report: Report, matcher: L, **words: Unpack[ExpectationOptions]) -> None:
        """The last line matches."""
        self._expect(self._items(report).place_problem(matcher, -1, "last"), words)


class CommandsGroup(LinesGroup[LineMatcher]):
    """Expectations over the shell commands that were run."""

    def _items(self, report: Report) -> _Lines[LineMatcher]:
        return _Lines(report, "command", session_of(report).commands(), LINE_MATCHERS, CommandRun)

    def succeeded(self, report: Report, matcher: LineMatcher, **words: Unpack[ExpectationOptions]) -> None:
        """A matching command ended with exit code 0."""
        self._expect(self._exit_problem(report, matcher, well=True), words)

    def failed(self, report: Report, matcher: LineMatcher, **words: Unpack[ExpectationOptions]) -> None:
        """A matching command ended with another exit code."""
        self._expect(self._exit_problem(report, matcher, well=False), words)

    def _exit_problem(self, report: Report, matcher: LineMatcher, *, well: bool) -> str | None:
        commands = self._items(report)
        indexes = commands.find_checked(matcher)
        runs = [event for event in session_of(report).events if isinstance(event, CommandRun)]
        codes = [runs[index].exit_code for index in indexes]
        if any(code is not None and (code == 0) is well for code in codes):
            return None
        unknown = " (the agent does not report exit codes)" if codes and all(code is None for code in codes) else ""
        expectation = f"{commands.describe_wanted(matcher)} to {'succeed' if well else 'fail'}{unknown}"
        lines = [f"{run.command}  (exit code {'unknown' if run.exit_code is None else run.exit_code})" for run in runs]
        return describe(
            expectation, commands.many, lines, Pointer(indexes[0]) if indexes else commands.nearest(matcher)
        )


class FileReadsGroup(LinesGroup[TextMatcher]):
    """Expectations over the files that were read."""

    def _items(self, report: Report) -> _Lines[TextMatcher]:
        return _Lines(report, "file read", session_of(report).file_reads(), TEXT_MATCHERS, FileRead)
