"""Expectations over what reads as one line each: commands and file reads."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from whet.grade.expect.group import Pointed, Report, Words, describe, session_of
from whet.grade.expect.items import OrderedGroup, OrderedItems, check_count, numbers
from whet.grade.expect.matching import (
    LINE_MATCHERS,
    TEXT_MATCHERS,
    LineMatcher,
    MatcherKinds,
    TextMatcher,
    check_matcher,
    finder_of,
    matches,
    shown,
)
from whet.model.seen import CommandRun

L = TypeVar("L", bound=LineMatcher)


class _Lines(OrderedItems[L, str]):
    """Lines of a session, found through an index that lives as long as the session."""

    def __init__(self, report: Report, name: str, lines: Sequence[str], kinds: MatcherKinds) -> None:
        super().__init__(lines)
        self.name, self.many, self._kinds = name, f"{name}s", kinds
        self.one, self.several = f"{self.name} matching", f"{self.many} matching"
        self._finder = finder_of(session_of(report), self.many, lines)

    def check(self, matcher: object) -> None:
        check_matcher(matcher, self._kinds)

    def matches(self, matcher: L, item: str) -> bool:
        return matches(matcher, item)

    def find(self, matcher: L) -> list[int]:
        return self._finder.matching(matcher)

    def line(self, item: str) -> str:
        return item

    def named(self, matcher: L) -> str:
        return shown(matcher)

    def nearest(self, matcher: L) -> Pointed | None:
        return self._finder.nearest(matcher)

    def point_at(self, matcher: L, index: int, word: str) -> Pointed | None:
        return self._finder.read(matcher, index, word)


class LinesGroup(OrderedGroup[L]):
    """Expectations over lines of a session."""

    @abstractmethod
    def _items(self, report: Report) -> _Lines[L]: ...

    def includes(self, report: Report, matcher: L, *, message: str | None = None, explain: str | None = None) -> None:
        """At least one line matches."""
        self._has(self._items(report), matcher, Words(message, explain))

    def not_includes(
        self, report: Report, matcher: L, *, message: str | None = None, explain: str | None = None
    ) -> None:
        """No line matches."""
        self._has_not(self._items(report), matcher, Words(message, explain))

    def exactly_one(
        self, report: Report, matcher: L, *, message: str | None = None, explain: str | None = None
    ) -> None:
        """One line matches, and no other."""
        self.count(report, matcher, 1, message=message, explain=explain)

    def size(self, report: Report, expected: int, *, message: str | None = None, explain: str | None = None) -> None:
        """There are exactly so many lines."""
        check_count(expected)
        lines = self._items(report)
        if len(lines.all) != expected:
            wanted = f"1 {lines.name}" if expected == 1 else f"{expected} {lines.many}"
            self._miss(lines, wanted, Words(message, explain))

    def first(self, report: Report, matcher: L, *, message: str | None = None, explain: str | None = None) -> None:
        """The first line matches."""
        self._at(self._items(report), matcher, 0, "first", Words(message, explain))

    def last(self, report: Report, matcher: L, *, message: str | None = None, explain: str | None = None) -> None:
        """The last line matches."""
        self._at(self._items(report), matcher, -1, "last", Words(message, explain))

    def _at(self, lines: _Lines[L], matcher: L, index: int, which: str, words: Words) -> None:
        lines.check(matcher)
        found = lines.find(matcher)
        index %= len(lines.all) or 1
        if index in found:
            return
        expected = f"the {which} {lines.name} to match {lines.named(matcher)}"
        if found:
            expected += f", but found {numbers(found)}"
        pointed = lines.point_at(matcher, index, which) if found else lines.nearest(matcher)
        self._miss(lines, expected, words, pointed)


class CommandsGroup(LinesGroup[LineMatcher]):
    """Expectations over the shell commands that were run."""

    def _items(self, report: Report) -> _Lines[LineMatcher]:
        return _Lines(report, "command", session_of(report).commands(), LINE_MATCHERS)

    def succeeded(
        self, report: Report, matcher: LineMatcher, *, message: str | None = None, explain: str | None = None
    ) -> None:
        """A matching command ended with exit code 0."""
        self._ended(report, matcher, Words(message, explain), well=True)

    def failed(
        self, report: Report, matcher: LineMatcher, *, message: str | None = None, explain: str | None = None
    ) -> None:
        """A matching command ended with another exit code."""
        self._ended(report, matcher, Words(message, explain), well=False)

    def _ended(self, report: Report, matcher: LineMatcher, words: Words, *, well: bool) -> None:
        commands = self._items(report)
        commands.check(matcher)
        found = commands.find(matcher)
        runs = [event for event in session_of(report).events if isinstance(event, CommandRun)]
        codes = [runs[index].exit_code for index in found]
        if any(code is not None and (code == 0) is well for code in codes):
            return
        unknown = " (the agent does not tell exit codes)" if codes and all(code is None for code in codes) else ""
        expected = f"{commands.wanted(matcher)} to {'succeed' if well else 'fail'}{unknown}"
        lines = [f"{run.command}  (exit code {'unknown' if run.exit_code is None else run.exit_code})" for run in runs]
        pointed = Pointed(found[0]) if found else commands.nearest(matcher)
        self._say(describe(expected, commands.many, lines, pointed), words)


class FileReadsGroup(LinesGroup[TextMatcher]):
    """Expectations over the files that were read."""

    def _items(self, report: Report) -> _Lines[TextMatcher]:
        return _Lines(report, "file read", session_of(report).file_reads(), TEXT_MATCHERS)
