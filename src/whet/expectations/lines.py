"""Expectations over things that happened in order and read as one line each: commands and file reads."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from whet.expectations.failure import indented, nearest
from whet.expectations.group import Group, Report, exactly, session_of, times
from whet.expectations.matchers import LineMatcher, TextMatcher, check_matcher, check_matchers, matches, shown, sought
from whet.model.session import CommandRun, Session
from whet.shell import CommandIndex, CommandMatcher

M = TypeVar("M", TextMatcher, LineMatcher)


class LinesGroup(Group, Generic[M]):
    """Counting, order and exclusiveness of lines."""

    _one: str
    _many: str

    @abstractmethod
    def _observed(self, report: Report) -> Sequence[str]:
        """The lines, in order."""

    def includes(self, report: Report, matcher: M, *, message: str | None = None, explain: str | None = None) -> None:
        """At least one line matches."""
        lines, found = self._found(report, matcher)
        if not found:
            self._miss(f"a {self._one} matching {shown(matcher)}", lines, matcher, message, explain)

    def not_includes(
        self, report: Report, matcher: M, *, message: str | None = None, explain: str | None = None
    ) -> None:
        """No line matches."""
        lines, found = self._found(report, matcher)
        if found:
            expected = f"no {self._one} matching {shown(matcher)}, but found {_numbers(found)}"
            self._broken(expected, self._many, lines, message=message, explain=explain)

    def count(
        self, report: Report, matcher: M, expected: int, *, message: str | None = None, explain: str | None = None
    ) -> None:
        """Exactly so many lines match."""
        lines, found = self._found(report, matcher)
        if len(found) != expected:
            self._amount(exactly(expected), lines, found, matcher, message, explain)

    def at_least(
        self, report: Report, matcher: M, least: int, *, message: str | None = None, explain: str | None = None
    ) -> None:
        """So many lines match, or more."""
        lines, found = self._found(report, matcher)
        if len(found) < least:
            self._amount(f"at least {times(least)}", lines, found, matcher, message, explain)

    def at_most(
        self, report: Report, matcher: M, most: int, *, message: str | None = None, explain: str | None = None
    ) -> None:
        """So many lines match, or fewer."""
        lines, found = self._found(report, matcher)
        if len(found) > most:
            self._amount(f"at most {times(most)}", lines, found, matcher, message, explain)

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
        self._broken(expected, self._many, lines, near=sought(missing), message=message, explain=explain)

    def only(
        self, report: Report, matchers: Sequence[M], *, message: str | None = None, explain: str | None = None
    ) -> None:
        """Every line matches one of these; an empty list allows none at all."""
        check_matchers(matchers)
        lines = self._observed(report)
        other = [index for index, line in enumerate(lines) if not any(matches(item, line) for item in matchers)]
        if other:
            allowed = " or ".join(shown(matcher) for matcher in matchers)
            wanted = f"only {self._many} matching {allowed}" if allowed else f"no {self._many} at all"
            expected = f"{wanted}, but found {_numbers(other)}"
            self._broken(expected, self._many, lines, message=message, explain=explain)

    def size(self, report: Report, expected: int, *, message: str | None = None, explain: str | None = None) -> None:
        """There are exactly so many lines."""
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
        check_matcher(matcher)
        lines = self._observed(report)
        if not lines or not matches(matcher, lines[index]):
            self._miss(f"the {which} {self._one} to match {shown(matcher)}", lines, matcher, message, explain)

    def _found(self, report: Report, matcher: M) -> tuple[Sequence[str], list[int]]:
        check_matcher(matcher)
        lines = self._observed(report)
        finders = _finders.setdefault(session_of(report), {})
        if self._many not in finders:
            finders[self._many] = _Finder(lines)
        return lines, finders[self._many].matching(matcher)

    def _miss(self, expected: str, lines: Sequence[str], matcher: M, message: str | None, explain: str | None) -> None:
        expected += _reading(matcher, lines)
        self._broken(expected, self._many, lines, near=sought(matcher), message=message, explain=explain)

    def _amount(
        self,
        wanted: str,
        lines: Sequence[str],
        found: list[int],
        matcher: M,
        message: str | None,
        explain: str | None,
    ) -> None:
        expected = f"a {self._one} matching {shown(matcher)} {wanted}, but found it {times(len(found))}"
        self._broken(expected, self._many, lines, message=message, explain=explain)


class CommandsGroup(LinesGroup[LineMatcher]):
    """Expectations over the shell commands that were run."""

    _one = "command"
    _many = "commands"

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
        check_matcher(matcher)
        runs = [event for event in session_of(report).events if isinstance(event, CommandRun)]
        codes = [run.exit_code for run in runs if matches(matcher, run.command)]
        if any(code is not None and (code == 0) is well for code in codes):
            return
        how = "succeed" if well else "fail"
        unknown = " (the agent does not tell exit codes)" if codes and all(code is None for code in codes) else ""
        lines = [f"{run.command}  (exit code {'unknown' if run.exit_code is None else run.exit_code})" for run in runs]
        self._broken(
            f"a command matching {shown(matcher)} to {how}{unknown}",
            self._many,
            lines,
            near=sought(matcher),
            message=message,
            explain=explain,
        )


class FileReadsGroup(LinesGroup[TextMatcher]):
    """Expectations over the files that were read."""

    _one = "file read"
    _many = "file reads"

    def _observed(self, report: Report) -> Sequence[str]:
        return session_of(report).file_reads()


class _Finder:
    """A session's lines, made ready to find things in quickly."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._text = "\n".join(lines)
        self._index: CommandIndex | None = None

    def matching(self, matcher: LineMatcher) -> list[int]:
        """The numbers of the lines that match, from 0."""
        if isinstance(matcher, CommandMatcher):
            self._index = self._index or CommandIndex(self._lines)
            return list(self._index.matching(matcher))
        match matcher:
            # The two usual kinds, without a call for each line: a session may have very many.
            case str():
                if matcher not in self._text:
                    return []
                return [number for number, line in enumerate(self._lines) if matcher in line]
            case re.Pattern():
                search = matcher.search
                return [number for number, line in enumerate(self._lines) if search(line)]
            case _:
                return [number for number, line in enumerate(self._lines) if matches(matcher, line)]


# A finder goes when its session goes.
_finders: WeakKeyDictionary[Session, dict[str, _Finder]] = WeakKeyDictionary()


def _reading(matcher: LineMatcher, lines: Sequence[str]) -> str:
    """How the nearest command was read, which is half of why it does not match."""
    if not isinstance(matcher, CommandMatcher):
        return ""
    closest = nearest(sought(matcher) or "", lines)
    return "" if closest is None else "\n" + indented(matcher.explain(lines[closest]))


def _numbers(indexes: list[int]) -> str:
    shown_most = 5
    listed = ", ".join(str(index + 1) for index in indexes[:shown_most])
    return listed if len(indexes) <= shown_most else f"{listed} and {len(indexes) - shown_most} more"


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
