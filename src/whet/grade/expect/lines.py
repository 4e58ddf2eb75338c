"""Expectations over things that happened in order and read as one line each: commands and file reads."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from whet.grade.expect.group import Group, Pointed, Report, at_most, check_count, exactly, numbers, session_of, times
from whet.grade.expect.matching import (
    LINE_MATCHERS,
    TEXT_MATCHERS,
    Finder,
    LineMatcher,
    MatcherKinds,
    TextMatcher,
    check_matcher,
    check_matchers,
    finder_of,
    matches,
    shown,
)
from whet.model.seen import CommandRun

M = TypeVar("M", TextMatcher, LineMatcher)


class LinesGroup(Group, Generic[M]):
    """Counting, order and exclusiveness of lines."""

    _one: str
    _many: str
    _kinds: MatcherKinds = TEXT_MATCHERS

    @abstractmethod
    def _observed(self, report: Report) -> Sequence[str]:
        """The lines, in order."""

    def includes(self, report: Report, matcher: M, *, message: str | None = None, explain: str | None = None) -> None:
        """At least one line matches."""
        lines, found = self._found(report, matcher)
        if not found:
            expected = f"a {self._one} matching {shown(matcher)}"
            pointed = self._finder(report).nearest(matcher)
            self._broken(expected, self._many, lines, pointed=pointed, message=message, explain=explain)

    def not_includes(
        self, report: Report, matcher: M, *, message: str | None = None, explain: str | None = None
    ) -> None:
        """No line matches."""
        lines, found = self._found(report, matcher)
        if found:
            expected = f"no {self._one} matching {shown(matcher)}, but found {numbers(found)}"
            pointed = self._finder(report).read(matcher, found[0], "found")
            self._broken(expected, self._many, lines, pointed=pointed, message=message, explain=explain)

    def count(
        self, report: Report, matcher: M, expected: int, *, message: str | None = None, explain: str | None = None
    ) -> None:
        """Exactly so many lines match."""
        check_count(expected)
        _, found = self._found(report, matcher)
        if len(found) != expected:
            self._amount(exactly(expected), report, found, matcher, message, explain)

    def at_least(
        self, report: Report, matcher: M, least: int, *, message: str | None = None, explain: str | None = None
    ) -> None:
        """So many lines match, or more."""
        check_count(least)
        _, found = self._found(report, matcher)
        if len(found) < least:
            self._amount(f"at least {times(least)}", report, found, matcher, message, explain)

    def at_most(
        self, report: Report, matcher: M, most: int, *, message: str | None = None, explain: str | None = None
    ) -> None:
        """So many lines match, or fewer."""
        check_count(most)
        _, found = self._found(report, matcher)
        if len(found) > most:
            self._amount(at_most(most), report, found, matcher, message, explain)

    def exactly_one(
        self, report: Report, matcher: M, *, message: str | None = None, explain: str | None = None
    ) -> None:
        """One line matches, and no other."""
        self.count(report, matcher, 1, message=message, explain=explain)

    def before(
        self, report: Report, first: M, second: M, *, message: str | None = None, explain: str | None = None
    ) -> None:
        """Both are found, and the first time of the one is before the first time of the other."""
        lines, one = self._found(report, first)
        _, other = self._found(report, second)
        if one and other and one[0] < other[0]:
            return
        expected = f"{shown(first)} before {shown(second)}, but {_order(first, one, second, other)}"
        missing = first if not one else second if not other else None
        pointed = None if missing is None else self._finder(report).nearest(missing)
        self._broken(expected, self._many, lines, pointed=pointed, message=message, explain=explain)

    def only(
        self, report: Report, matchers: Sequence[M], *, message: str | None = None, explain: str | None = None
    ) -> None:
        """Every line matches one of these; an empty list allows none at all."""
        check_matchers(matchers, self._kinds)
        lines = self._observed(report)
        other = [index for index, line in enumerate(lines) if not any(matches(item, line) for item in matchers)]
        if other:
            allowed = " or ".join(shown(matcher) for matcher in matchers)
            wanted = f"only {self._many} matching {allowed}" if allowed else f"no {self._many} at all"
            expected = f"{wanted}, but found {numbers(other)}"
            self._broken(expected, self._many, lines, message=message, explain=explain)

    def size(self, report: Report, expected: int, *, message: str | None = None, explain: str | None = None) -> None:
        """There are exactly so many lines."""
        check_count(expected)
        lines = self._observed(report)
        if len(lines) != expected:
            wanted = f"1 {self._one}" if expected == 1 else f"{expected} {self._many}"
            self._broken(wanted, self._many, lines, message=message, explain=explain)

    def first(self, report: Report, matcher: M, *, message: str | None = None, explain: str | None = None) -> None:
        """The first line matches."""
        self._at(report, matcher, 0, "first", message, explain)

    def last(self, report: Report, matcher: M, *, message: str | None = None, explain: str | None = None) -> None:
        """The last line matches."""
        self._at(report, matcher, -1, "last", message, explain)

    def _at(self, report: Report, matcher: M, index: int, which: str, message: str | None, explain: str | None) -> None:
        lines, found = self._found(report, matcher)
        index %= len(lines) or 1
        if index in found:
            return
        expected = f"the {which} {self._one} to match {shown(matcher)}"
        finder = self._finder(report)
        if found:
            expected += f", but found {numbers(found)}"
            pointed = finder.read(matcher, index, which)
        else:
            pointed = finder.nearest(matcher)
        self._broken(expected, self._many, lines, pointed=pointed, message=message, explain=explain)

    def _found(self, report: Report, matcher: M) -> tuple[Sequence[str], list[int]]:
        check_matcher(matcher, self._kinds)
        return self._observed(report), self._finder(report).matching(matcher)

    def _finder(self, report: Report) -> Finder:
        return finder_of(session_of(report), self._many, self._observed(report))

    def _amount(
        self,
        wanted: str,
        report: Report,
        found: list[int],
        matcher: M,
        message: str | None,
        explain: str | None,
    ) -> None:
        expected = f"a {self._one} matching {shown(matcher)} {wanted}, but found it {times(len(found))}"
        finder = self._finder(report)
        pointed = finder.read(matcher, found[0], "found") if found else finder.nearest(matcher)
        self._broken(expected, self._many, self._observed(report), pointed=pointed, message=message, explain=explain)


class CommandsGroup(LinesGroup[LineMatcher]):
    """Expectations over the shell commands that were run."""

    _one = "command"
    _many = "commands"
    _kinds = LINE_MATCHERS

    def _observed(self, report: Report) -> Sequence[str]:
        return session_of(report).commands()

    def succeeded(
        self, report: Report, matcher: LineMatcher, *, message: str | None = None, explain: str | None = None
    ) -> None:
        """A matching command ended with exit code 0."""
        self._ended(report, matcher, message=message, explain=explain, well=True)

    def failed(
        self, report: Report, matcher: LineMatcher, *, message: str | None = None, explain: str | None = None
    ) -> None:
        """A matching command ended with another exit code."""
        self._ended(report, matcher, message=message, explain=explain, well=False)

    def _ended(
        self, report: Report, matcher: LineMatcher, *, message: str | None, explain: str | None, well: bool
    ) -> None:
        _, found = self._found(report, matcher)
        runs = [event for event in session_of(report).events if isinstance(event, CommandRun)]
        codes = [runs[index].exit_code for index in found]
        if any(code is not None and (code == 0) is well for code in codes):
            return
        how = "succeed" if well else "fail"
        unknown = " (the agent does not tell exit codes)" if codes and all(code is None for code in codes) else ""
        lines = [f"{run.command}  (exit code {'unknown' if run.exit_code is None else run.exit_code})" for run in runs]
        self._broken(
            f"a command matching {shown(matcher)} to {how}{unknown}",
            self._many,
            lines,
            pointed=Pointed(found[0]) if found else self._finder(report).nearest(matcher),
            message=message,
            explain=explain,
        )


class FileReadsGroup(LinesGroup[TextMatcher]):
    """Expectations over the files that were read."""

    _one = "file read"
    _many = "file reads"

    def _observed(self, report: Report) -> Sequence[str]:
        return session_of(report).file_reads()


def _order(first: object, one: list[int], second: object, other: list[int]) -> str:
    match bool(one), bool(other):
        case False, False:
            return "neither was found"
        case False, True:
            return f"{shown(first)} was not found"
        case True, False:
            return f"{shown(second)} was not found"
        case _ if one[0] == other[0]:
            return f"{one[0] + 1} is the first of both"
        case _:
            return f"{one[0] + 1} comes after {other[0] + 1}"
