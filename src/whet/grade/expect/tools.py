"""Expectations over tool calls: which, how often, in what order."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, overload

from whet.dataclass import dataclass
from whet.grade.expect.group import (
    Group,
    Report,
    at_most,
    check_count,
    exactly,
    nearest,
    numbers,
    session_of,
    shorten,
    times,
)
from whet.grade.expect.matching import check_matcher, check_predicate, says, shown
from whet.model.seen import ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool call to look for: by its name and by what `where` says of its arguments."""

    tool: str | re.Pattern[str] | None = None
    where: Callable[[Any], bool] | None = None

    def __str__(self) -> str:
        parts = [shown(self.tool)] if self.tool is not None else ["any tool"]
        if self.where is not None:
            parts.append(f"where {shown(self.where)}")
        return " ".join(parts)


# A string is the tool's whole name; a predicate is given the call.
ToolMatcher: TypeAlias = str | re.Pattern[str] | Tool | Callable[[ToolCall], bool]


class ToolCallsGroup(Group):
    """Expectations over the tool calls of a session."""

    def has(
        self, report: Report, matcher: ToolMatcher, *, message: str | None = None, explain: str | None = None
    ) -> None:
        """At least one call matches."""
        calls, found = _found(report, matcher)
        if not found:
            self._miss(f"a call of {_shown(matcher)}", calls, matcher, message, explain)

    def not_has(
        self, report: Report, matcher: ToolMatcher, *, message: str | None = None, explain: str | None = None
    ) -> None:
        """No call matches."""
        calls, found = _found(report, matcher)
        if found:
            self._miss(f"no call of {_shown(matcher)}, but found {numbers(found)}", calls, None, message, explain)

    def count(
        self,
        report: Report,
        matcher: ToolMatcher,
        expected: int,
        *,
        message: str | None = None,
        explain: str | None = None,
    ) -> None:
        """Exactly so many calls match."""
        check_count(expected)
        calls, found = _found(report, matcher)
        if len(found) != expected:
            self._amount(exactly(expected), calls, found, matcher, message, explain)

    def at_least(
        self,
        report: Report,
        matcher: ToolMatcher,
        least: int,
        *,
        message: str | None = None,
        explain: str | None = None,
    ) -> None:
        """So many calls match, or more."""
        check_count(least)
        calls, found = _found(report, matcher)
        if len(found) < least:
            self._amount(f"at least {times(least)}", calls, found, matcher, message, explain)

    def at_most(
        self, report: Report, matcher: ToolMatcher, most: int, *, message: str | None = None, explain: str | None = None
    ) -> None:
        """So many calls match, or fewer."""
        check_count(most)
        calls, found = _found(report, matcher)
        if len(found) > most:
            self._amount(at_most(most), calls, found, matcher, message, explain)

    def before(
        self,
        report: Report,
        first: ToolMatcher,
        second: ToolMatcher,
        *,
        message: str | None = None,
        explain: str | None = None,
    ) -> None:
        """Both are found, and the first time of the one is before the first time of the other."""
        calls, one = _found(report, first)
        _, other = _found(report, second)
        if one and other and one[0] < other[0]:
            return
        missing = first if not one else second if not other else None
        why = (
            f"{_shown(missing)} was not called" if missing is not None else f"{one[0] + 1} is not before {other[0] + 1}"
        )
        expected = f"{_shown(first)} before {_shown(second)}, but {why}"
        self._miss(expected, calls, missing, message, explain)

    def sequence(
        self,
        report: Report,
        matchers: Sequence[ToolMatcher],
        *,
        message: str | None = None,
        explain: str | None = None,
    ) -> None:
        """Calls match these one after the other, with anything in between."""
        _check_all(matchers)
        calls = session_of(report).tool_calls()
        at = 0
        for number, matcher in enumerate(matchers, 1):
            found = next((index for index in range(at, len(calls)) if _matches(matcher, calls[index])), None)
            if found is None:
                chain = ", then ".join(_shown(item) for item in matchers)
                after = f"not called after call {at}" if at else "never called"
                expected = f"{chain}; step {number}, {_shown(matcher)}, was {after}"
                self._miss(expected, calls, matcher, message, explain)
                return
            at = found + 1

    def only(
        self,
        report: Report,
        matchers: Sequence[ToolMatcher],
        *,
        message: str | None = None,
        explain: str | None = None,
    ) -> None:
        """Every call matches one of these; an empty list allows none at all."""
        _check_all(matchers)
        calls = session_of(report).tool_calls()
        other = [index for index, call in enumerate(calls) if not any(_matches(item, call) for item in matchers)]
        if other:
            allowed = " or ".join(_shown(item) for item in matchers)
            wanted = f"only calls of {allowed}" if allowed else "no tool calls at all"
            self._miss(f"{wanted}, but found {numbers(other)}", calls, None, message, explain)

    def _miss(
        self,
        expected: str,
        calls: Sequence[ToolCall],
        matcher: ToolMatcher | None,
        message: str | None,
        explain: str | None,
    ) -> None:
        name = matcher.tool if isinstance(matcher, Tool) else matcher
        pointed = nearest(name, [call.tool for call in calls]) if isinstance(name, str) else None
        self._broken(expected, "tool calls", _Lines(calls), pointed=pointed, message=message, explain=explain)

    def _amount(
        self,
        wanted: str,
        calls: Sequence[ToolCall],
        found: list[int],
        matcher: ToolMatcher,
        message: str | None,
        explain: str | None,
    ) -> None:
        expected = f"a call of {_shown(matcher)} {wanted}, but found it {times(len(found))}"
        self._miss(expected, calls, None, message, explain)


class _Lines(Sequence[str]):
    """Calls as lines, written only when they are shown: a session may have very many, with long arguments."""

    def __init__(self, calls: Sequence[ToolCall]) -> None:
        self._calls = calls

    def __len__(self) -> int:
        return len(self._calls)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return _Lines(self._calls[index]) if isinstance(index, slice) else _line(self._calls[index])


def _found(report: Report, matcher: ToolMatcher) -> tuple[Sequence[ToolCall], list[int]]:
    _check(matcher)
    calls = session_of(report).tool_calls()
    if isinstance(matcher, str):
        return calls, session_of(report).tool_positions(matcher)
    if isinstance(matcher, Tool) and isinstance(matcher.tool, str):
        named = session_of(report).tool_positions(matcher.tool)
        return calls, [index for index in named if _matches(matcher, calls[index])]
    return calls, [index for index, call in enumerate(calls) if _matches(matcher, call)]


def _check_all(matchers: Sequence[Any]) -> None:
    if isinstance(matchers, str) or not isinstance(matchers, Sequence):
        raise TypeError(f"give a list of tools, not a {type(matchers).__name__}")
    for matcher in matchers:
        _check(matcher)


def _check(matcher: Any) -> None:
    if isinstance(matcher, Tool):
        if matcher.tool is not None:
            check_matcher(matcher.tool)
        if matcher.where is not None:
            check_predicate(matcher.where, "where is a function of the arguments")
    elif isinstance(matcher, str | re.Pattern):
        check_matcher(matcher)
    else:
        check_predicate(matcher, "a tool is looked for by a string, a compiled pattern, a Tool or a predicate")


def _matches(matcher: ToolMatcher, call: ToolCall) -> bool:
    match matcher:
        case str():
            return call.tool == matcher
        case re.Pattern():
            return matcher.search(call.tool) is not None
        case Tool(tool=tool, where=where):
            return (tool is None or _matches(tool, call)) and (where is None or says(where, call.args))
        case _:
            return says(matcher, call)


def _shown(matcher: ToolMatcher) -> str:
    return str(matcher) if isinstance(matcher, Tool) else shown(matcher)


def _line(call: ToolCall) -> str:
    return f"{call.tool} {shorten(repr(call.args))}" if call.args else call.tool
