"""Expectations over tool calls: which, how often, in what order."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, Unpack

from msgspec import Struct

from whet.checks.items import OrderedGroup, OrderedItems
from whet.checks.looked_at import look_at
from whet.checks.matching import check_matcher, check_predicate, describe_matcher, says
from whet.checks.message import ExpectationOptions, Pointer, Report, nearest, session_of, shorten
from whet.model.events import ToolCall


class Tool(Struct, frozen=True, kw_only=True):
    """A tool call to look for: by its name and by what `where` says of its arguments."""

    tool: str | re.Pattern[str] | None = None
    where: Callable[[Any], bool] | None = None

    def __str__(self) -> str:
        parts = [describe_matcher(self.tool)] if self.tool is not None else ["any tool"]
        if self.where is not None:
            parts.append(f"where {describe_matcher(self.where)}")
        return " ".join(parts)


# A string is the tool's whole name; a predicate is given the call.
ToolMatcher: TypeAlias = str | re.Pattern[str] | Tool | Callable[[ToolCall], bool]


class ToolCallsGroup(OrderedGroup[ToolMatcher]):
    """Expectations over the tool calls of a session."""

    def _items(self, report: Report) -> _ToolCalls:
        return _ToolCalls(report)

    def has(self, report: Report, matcher: ToolMatcher, **words: Unpack[ExpectationOptions]) -> None:
        """At least one call matches."""
        self._expect(self._items(report).missing(matcher), words)

    def not_has(self, report: Report, matcher: ToolMatcher, **words: Unpack[ExpectationOptions]) -> None:
        """No call matches."""
        self._expect(self._items(report).present(matcher), words)

    def sequence(self, report: Report, matchers: Sequence[ToolMatcher], **words: Unpack[ExpectationOptions]) -> None:
        """Calls match these one after the other, with anything in between."""
        self._expect(self._items(report).sequence_problem(matchers), words)


class _ToolCalls(OrderedItems[ToolMatcher, ToolCall]):
    many = "tool calls"
    matchers = "tools"
    singular = "call of"
    plural = "calls of"

    def __init__(self, report: Report) -> None:
        self._session = session_of(report)
        super().__init__(self._session.tool_calls())

    def check(self, matcher: object) -> None:
        if isinstance(matcher, Tool):
            if matcher.tool is not None:
                check_matcher(matcher.tool)
            if matcher.where is not None:
                check_predicate(matcher.where, "where is a function of the arguments")
        elif isinstance(matcher, str | re.Pattern):
            check_matcher(matcher)
        else:
            check_predicate(matcher, "a tool is looked for by a string, a compiled pattern, a Tool or a predicate")

    def find(self, matcher: ToolMatcher) -> list[int]:
        name = _name(matcher)
        if name is None:
            return super().find(matcher)
        # By name there is an index: a session may have very many calls.
        indexes = self._session.tool_positions(name)
        return indexes if matcher == name else [index for index in indexes if self.matches(matcher, self.all[index])]

    def look_at(self, indexes: Sequence[int]) -> None:
        look_at(self._session, ToolCall, indexes)

    def matches(self, matcher: ToolMatcher, item: ToolCall) -> bool:
        match matcher:
            case str():
                return item.tool == matcher
            case re.Pattern():
                return matcher.search(item.tool) is not None
            case Tool(tool=tool, where=where):
                return (tool is None or self.matches(tool, item)) and (where is None or says(where, item.args))
            case _:
                return says(matcher, item)

    def line(self, item: ToolCall) -> str:
        return f"{item.tool} {shorten(repr(item.args))}" if item.args else item.tool

    def name_matcher(self, matcher: ToolMatcher) -> str:
        return str(matcher) if isinstance(matcher, Tool) else describe_matcher(matcher)

    def nearest(self, matcher: ToolMatcher) -> Pointer | None:
        return nearest(_name(matcher), [call.tool for call in self.all])

    def order(
        self, first: ToolMatcher, first_indexes: Sequence[int], second: ToolMatcher, second_indexes: Sequence[int]
    ) -> str:
        if first_indexes and second_indexes:
            return f"{first_indexes[0] + 1} is not before {second_indexes[0] + 1}"
        return f"{self.name_matcher(second if first_indexes else first)} was not called"

    def sequence_problem(self, matchers: Sequence[ToolMatcher]) -> str | None:
        """Return what is wrong unless calls match these one after the other."""
        self.check_list(matchers)
        at = 0
        for number, matcher in enumerate(matchers, 1):
            calls = enumerate(self.all[at:], at)
            match_index = next((index for index, call in calls if self.matches(matcher, call)), None)
            if match_index is None:
                chain = ", then ".join(map(self.name_matcher, matchers))
                after = f"not called after call {at}" if at else "never called"
                expectation = f"{chain}; step {number}, {self.name_matcher(matcher)}, was {after}"
                return self.describe(expectation, self.nearest(matcher))
            at = match_index + 1
        return None


def _name(matcher: ToolMatcher) -> str | None:
    """Return the name that the matcher asks for, if it asks for exactly one."""
    name = matcher.tool if isinstance(matcher, Tool) else matcher
    return name if isinstance(name, str) else None
