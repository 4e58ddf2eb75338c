"""Expectations over items of any kind: that some are there, how many, in what order, and that there are no others.

`Items` says how items of one kind are found, matched and shown. What is wrong with them is found here, once.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar, Unpack

from whet.grade.expect.group import Group, Pointed, Report, Words, describe
from whet.reading.text import listed, shorten

M = TypeVar("M")
T = TypeVar("T")


class Times(NamedTuple):
    """How often something should happen, and the words for it."""

    allowed: range
    text: str


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
    def allowed(self, matchers: Sequence[M], other: Sequence[int]) -> str:
        """Say what may be there, and what else is."""

    def find(self, matcher: M) -> list[int]:
        """Return the positions of the items that match, from 0."""
        return [index for index, item in enumerate(self.all) if self.matches(matcher, item)]

    def amount(self, found: Sequence[int]) -> int:
        """Return how often something happened that was found at these positions."""
        return len(found)

    @property
    def observed(self) -> Sequence[T]:
        """What a message lists as observed; only what it shows is written as lines."""
        return self.all

    def point_at(self, matcher: M, index: int, word: str) -> Pointed | None:
        """Return the line at *index* if a message should point at it, under *word*."""
        del matcher, index, word
        return None

    def checked(self, matcher: M) -> list[int]:
        """Return the positions of the items that match; refuse a matcher that cannot look for anything."""
        self.check(matcher)
        found = self.find(matcher)
        self.look_at(found)
        return found

    def look_at(self, found: Sequence[int]) -> None:
        """Note that the expectation looks at the items at these positions, if they are events."""

    def describe(self, expected: str, pointed: Pointed | None = None) -> str:
        """Return the message: what was expected, and all that was observed."""
        if pointed is not None and self.observed is self.all:
            self.look_at([pointed.index])
        return describe(expected, self.many, self.observed, pointed, self.line)

    def missing(self, matcher: M) -> str | None:
        """Return what is wrong unless an item matches."""
        return None if self.checked(matcher) else self.describe(self.wanted(matcher), self.nearest(matcher))

    def present(self, matcher: M) -> str | None:
        """Return what is wrong if an item matches."""
        found = self.checked(matcher)
        if not found:
            return None
        return self.describe(self.unwanted(matcher, found), self.point_at(matcher, found[0], "found"))

    def miscounted(self, matcher: M, wanted: Times) -> str | None:
        """Return what is wrong unless matching items happened as often as *wanted*."""
        found = self.checked(matcher)
        amount = self.amount(found)
        if amount in wanted.allowed:
            return None
        pointed = self.point_at(matcher, found[0], "found") if found else self.nearest(matcher)
        return self.describe(f"{self.wanted(matcher)} {wanted.text}, but found it {times(amount)}", pointed)

    def others(self, matchers: Sequence[M]) -> str | None:
        """Return what is wrong if an item matches none of *matchers*."""
        self.check_list(matchers)
        other = [
            index for index, item in enumerate(self.all) if not any(self.matches(matcher, item) for matcher in matchers)
        ]
        return self.describe(self.allowed(matchers, other)) if other else None

    def check_list(self, matchers: Sequence[M]) -> None:
        """Refuse what is not a list of matchers; a single string is not taken for a list of letters."""
        if isinstance(matchers, str) or not isinstance(matchers, Sequence):
            raise TypeError(f"give a list of {self.matchers}, not a {type(matchers).__name__}")
        for matcher in matchers:
            self.check(matcher)


class OrderedItems(Items[M, T]):
    """Items that happened one after the other, each of which a message can name by its number."""

    one: str
    """What to look for, such as "command matching", before the matcher."""
    several: str
    """The same of more than one, such as "commands matching"."""

    @abstractmethod
    def named(self, matcher: M) -> str:
        """Return the matcher as a message names it."""

    def wanted(self, matcher: M) -> str:
        """Say what should have happened."""
        return f"a {self.one} {self.named(matcher)}"

    def unwanted(self, matcher: M, found: Sequence[int]) -> str:
        """Say what should not have happened, and the numbers of what did."""
        return f"no {self.one} {self.named(matcher)}, but found {numbers(found)}"

    def allowed(self, matchers: Sequence[M], other: Sequence[int]) -> str:
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

    def misordered(self, first: M, second: M) -> str | None:
        """Return what is wrong unless both are found, *first* before *second*."""
        one, other = self.checked(first), self.checked(second)
        if one and other and one[0] < other[0]:
            return None
        pointed = None if one and other else self.nearest(second if one else first)
        why = self.order(first, one, second, other)
        return self.describe(f"{self.named(first)} before {self.named(second)}, but {why}", pointed)


class OrderedGroup(Group, ABC, Generic[M]):
    """Expectations over what happened in a session, one thing after the other."""

    @abstractmethod
    def _items(self, report: Report) -> OrderedItems[M, Any]:
        """Return what happened."""

    def count(self, report: Report, matcher: M, expected: int, **words: Unpack[Words]) -> None:
        """Exactly so many match."""
        self._expect(self._items(report).miscounted(matcher, exactly(expected)), words)

    def at_least(self, report: Report, matcher: M, least: int, **words: Unpack[Words]) -> None:
        """So many match, or more."""
        wanted = Times(range(check_count(least), sys.maxsize), f"at least {times(least)}")
        self._expect(self._items(report).miscounted(matcher, wanted), words)

    def at_most(self, report: Report, matcher: M, most: int, **words: Unpack[Words]) -> None:
        """So many match, or fewer."""
        wanted = Times(range(check_count(most) + 1), f"at most {times(most)}" if most else "never")
        self._expect(self._items(report).miscounted(matcher, wanted), words)

    def before(self, report: Report, first: M, second: M, **words: Unpack[Words]) -> None:
        """Both are found, and the first time of the one is before the first time of the other."""
        self._expect(self._items(report).misordered(first, second), words)

    def only(self, report: Report, matchers: Sequence[M], **words: Unpack[Words]) -> None:
        """Everything matches one of these; an empty list allows nothing at all."""
        self._expect(self._items(report).others(matchers), words)


def check_count(count: int) -> int:
    """Return *count*; refuse what is not one."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"a count is a whole number, not {shorten(repr(count), 80)}")
    if count < 0:
        raise ValueError(f"a count is 0 or more, not {count}")
    return count


def exactly(count: int) -> Times:
    """Return so many times: "never", "exactly once" or such as "exactly 3 times"."""
    return Times(range(check_count(count), count + 1), f"exactly {times(count)}" if count else "never")


def times(count: int) -> str:
    """Return "never", "once" or such as "3 times"."""
    return {0: "never", 1: "once"}.get(count, f"{count} times")


def numbers(indexes: Sequence[int]) -> str:
    """Return such as "number 5" or "numbers 1, 3 and 12 more", as a message numbers its lines."""
    return f"number{'' if len(indexes) == 1 else 's'} {listed([str(index + 1) for index in indexes])}"
