"""Expectations over items of any kind: that some are there, how many, in what order, and that there are no others.

`Items` says how items of one kind are found, matched and shown. `ItemsGroup` holds everything else, once.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar, overload

from whet.grade.expect.group import Group, Pointed, Report, Words, cut, describe

M = TypeVar("M")
T = TypeVar("T")


class Items(ABC, Generic[M, T]):
    """What one expectation looks at, in order, and the words for it."""

    many: str
    """What a message calls them, such as "commands"."""
    matchers: str = "matchers"
    """What a list of matchers is a list of."""

    def __init__(self, items: Sequence[T]) -> None:
        self.all = items

    @abstractmethod
    def check(self, matcher: Any) -> None:
        """Refuse a matcher that cannot look for anything."""

    @abstractmethod
    def matches(self, matcher: M, item: T) -> bool:
        """Return whether the matcher looks for this item."""

    @abstractmethod
    def line(self, item: T) -> str:
        """Return the item as a message shows it."""

    @abstractmethod
    def nearest(self, matcher: M) -> Pointed | None:
        """Return the line that comes nearest to what was not found."""

    @abstractmethod
    def wanted(self, matcher: M) -> str:
        """Say what should be there, such as "a command matching ..."."""

    @abstractmethod
    def unwanted(self, matcher: M, found: Sequence[int]) -> str:
        """Say what should not be there, and what is."""

    @abstractmethod
    def only(self, matchers: Sequence[M], other: Sequence[int]) -> str:
        """Say what may be there, and what else is."""

    def find(self, matcher: M) -> list[int]:
        """Return the positions of the items that match, from 0."""
        return [index for index, item in enumerate(self.all) if self.matches(matcher, item)]

    def amount(self, found: Sequence[int]) -> int:
        """Return how often something happened that was found at these positions."""
        return len(found)

    def lines(self) -> Sequence[str]:
        """Return what a message lists as observed."""
        return _Lines(self)

    def point_at(self, matcher: M, index: int, word: str) -> Pointed | None:
        """Return the line at *index* if a message should point at it, under *word*."""
        del matcher, index, word
        return None


class _Lines(Sequence[str]):
    """The lines of items, written only when they are shown: a session may have very many long ones."""

    def __init__(self, items: Items[Any, T]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items.all)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self._items.line(item) for item in self._items.all[index]]
        return self._items.line(self._items.all[index])


class ItemsGroup(Group):
    """What every group of expectations over items can say; each public method gives it the items to look at."""

    def _has(self, items: Items[M, T], matcher: M, words: Words) -> None:
        items.check(matcher)
        if not items.find(matcher):
            self._miss(items, items.wanted(matcher), words, items.nearest(matcher))

    def _has_not(self, items: Items[M, T], matcher: M, words: Words) -> None:
        items.check(matcher)
        if found := items.find(matcher):
            self._miss(items, items.unwanted(matcher, found), words, items.point_at(matcher, found[0], "found"))

    def _amount(self, items: Items[M, T], matcher: M, wanted: str, allowed: range, words: Words) -> None:
        """Fail unless matching items happened as often as *allowed*, which is *wanted* in words."""
        items.check(matcher)
        found = items.find(matcher)
        amount = items.amount(found)
        if amount not in allowed:
            pointed = items.point_at(matcher, found[0], "found") if found else items.nearest(matcher)
            self._miss(items, f"{items.wanted(matcher)} {wanted}, but found it {times(amount)}", words, pointed)

    def _only(self, items: Items[M, T], matchers: Sequence[M], words: Words) -> None:
        check_list(items, matchers)
        other = [
            index
            for index, item in enumerate(items.all)
            if not any(items.matches(matcher, item) for matcher in matchers)
        ]
        if other:
            self._miss(items, items.only(matchers, other), words)

    def _miss(self, items: Items[M, T], expected: str, words: Words, pointed: Pointed | None = None) -> None:
        self._say(describe(expected, items.many, items.lines(), pointed), words)


class OrderedItems(Items[M, T]):
    """Items that happened one after the other, each of which a message can name by its number."""

    one: str
    """What to look for, such as "command matching", before the matcher."""
    several: str
    """The same of more than one, such as "commands matching"."""

    def named(self, matcher: M) -> str:
        """Return the matcher as a message names it."""
        return str(matcher)

    def wanted(self, matcher: M) -> str:
        """Say what should have happened."""
        return f"a {self.one} {self.named(matcher)}"

    def unwanted(self, matcher: M, found: Sequence[int]) -> str:
        """Say what should not have happened, and the numbers of what did."""
        return f"no {self.one} {self.named(matcher)}, but found {numbers(found)}"

    def only(self, matchers: Sequence[M], other: Sequence[int]) -> str:
        """Say what may have happened, and the numbers of what else did."""
        allowed = " or ".join(map(self.named, matchers))
        wanted = f"only {self.several} {allowed}" if allowed else f"no {self.many} at all"
        return f"{wanted}, but found {numbers(other)}"

    def order(self, first: M, one: Sequence[int], second: M, other: Sequence[int]) -> str:
        """Say why *first*, found at the positions *one*, does not come before *second*, found at *other*."""
        match bool(one), bool(other):
            case False, False:
                return "neither was found"
            case False, True:
                return f"{self.named(first)} was not found"
            case True, False:
                return f"{self.named(second)} was not found"
            case _ if one[0] == other[0]:
                return f"{one[0] + 1} is the first of both"
            case _:
                return f"{one[0] + 1} comes after {other[0] + 1}"


class OrderedGroup(ItemsGroup, ABC, Generic[M]):
    """Expectations over what happened in a session, one thing after the other."""

    @abstractmethod
    def _items(self, report: Report) -> OrderedItems[M, Any]:
        """Return what happened."""

    def count(
        self, report: Report, matcher: M, expected: int, *, message: str | None = None, explain: str | None = None
    ) -> None:
        """Exactly so many match."""
        check_count(expected)
        allowed = range(expected, expected + 1)
        self._amount(self._items(report), matcher, exactly(expected), allowed, Words(message, explain))

    def at_least(
        self, report: Report, matcher: M, least: int, *, message: str | None = None, explain: str | None = None
    ) -> None:
        """So many match, or more."""
        check_count(least)
        allowed = range(least, sys.maxsize)
        self._amount(self._items(report), matcher, f"at least {times(least)}", allowed, Words(message, explain))

    def at_most(
        self, report: Report, matcher: M, most: int, *, message: str | None = None, explain: str | None = None
    ) -> None:
        """So many match, or fewer."""
        check_count(most)
        wanted = f"at most {times(most)}" if most else "never"
        self._amount(self._items(report), matcher, wanted, range(most + 1), Words(message, explain))

    def before(
        self, report: Report, first: M, second: M, *, message: str | None = None, explain: str | None = None
    ) -> None:
        """Both are found, and the first time of the one is before the first time of the other."""
        items = self._items(report)
        items.check(first)
        items.check(second)
        one, other = items.find(first), items.find(second)
        if one and other and one[0] < other[0]:
            return
        why = items.order(first, one, second, other)
        missing = first if not one else second
        pointed = None if one and other else items.nearest(missing)
        expected = f"{items.named(first)} before {items.named(second)}, but {why}"
        self._miss(items, expected, Words(message, explain), pointed)

    def only(
        self, report: Report, matchers: Sequence[M], *, message: str | None = None, explain: str | None = None
    ) -> None:
        """Everything matches one of these; an empty list allows nothing at all."""
        self._only(self._items(report), matchers, Words(message, explain))


def check_list(items: Items[M, T], matchers: Sequence[M]) -> None:
    """Refuse what is not a list of matchers; a single string is not taken for a list of letters."""
    if isinstance(matchers, str) or not isinstance(matchers, Sequence):
        raise TypeError(f"give a list of {items.matchers}, not a {type(matchers).__name__}")
    for matcher in matchers:
        items.check(matcher)


def check_count(count: object) -> None:
    """Refuse what is not a count."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"a count is a whole number, not {cut(repr(count), 80)}")
    if count < 0:
        raise ValueError(f"a count is 0 or more, not {count}")


def exactly(count: int) -> str:
    """Return "never", "exactly once" or such as "exactly 3 times"."""
    return f"exactly {times(count)}" if count else "never"


def times(count: int) -> str:
    """Return "never", "once" or such as "3 times"."""
    return {0: "never", 1: "once"}.get(count, f"{count} times")


def numbers(indexes: Sequence[int]) -> str:
    """Return such as "number 5" or "numbers 1, 3 and 12 more", as a message numbers its lines."""
    shown_most = 5
    listed = ", ".join(str(index + 1) for index in indexes[:shown_most])
    more = f" and {len(indexes) - shown_most} more" if len(indexes) > shown_most else ""
    return f"number{'' if len(indexes) == 1 else 's'} {listed}{more}"
