"""Expectations over items of any kind: that some are there, how many, in what order, and that there are no others.

`Items` says how items of one kind are found, matched and shown. What is wrong with them is found here, once.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar, Unpack

from whet.checks.message import ExpectationOptions, Expectations, Pointer, Report, describe
from whet.reading.text import listed, shorten

M = TypeVar("M")
T = TypeVar("T")


class Times(NamedTuple):
    """How often something should happen, and the words for it."""

    counts: range
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
    def nearest(self, matcher: M) -> Pointer | None:
        """Return the line that comes nearest to what was not found."""

    @abstractmethod
    def describe_wanted(self, matcher: M) -> str:
        """Say what should be there, such as "a command matching ..."."""

    @abstractmethod
    def describe_unwanted(self, matcher: M, indexes: Sequence[int]) -> str:
        """Say what should not be there, and what is."""

    @abstractmethod
    def describe_allowed(self, matchers: Sequence[M], indexes: Sequence[int]) -> str:
        """Say what may be there, and what else is."""

    def find(self, matcher: M) -> list[int]:
        """Return the positions of the items that match, from 0."""
        return [index for index, item in enumerate(self.all) if self.matches(matcher, item)]

    def amount(self, indexes: Sequence[int]) -> int:
        """Return how often something happened that was found at these positions."""
        return len(indexes)

    @property
    def observed(self) -> Sequence[T]:
        """What a message lists as observed; only what it shows is written as lines."""
        return self.all

    def point_at(self, matcher: M, index: int, word: str) -> Pointer | None:
        """Return the line at *index* if a message should point at it, under *word*."""
        del matcher, index, word
        return None

    def find_checked(self, matcher: M) -> list[int]:
        """Return the positions of the items that match; refuse a matcher that cannot look for anything."""
        self.check(matcher)
        indexes = self.find(matcher)
        self.look_at(indexes)
        return indexes

    def look_at(self, indexes: Sequence[int]) -> None:
        """Note that the expectation looks at the items at these positions, if they are events."""

    def describe(self, expectation: str, pointer: Pointer | None = None) -> str:
        """Return the message: what was expected, and all that was observed."""
        if pointer is not None and self.observed is self.all:
            self.look_at([pointer.index])
        return describe(expectation, self.many, self.observed, pointer, self.line)

    def missing(self, matcher: M) -> str | None:
        """Return what is wrong unless an item matches."""
        return (
            None if self.find_checked(matcher) else self.describe(self.describe_wanted(matcher), self.nearest(matcher))
        )

    def present(self, matcher: M) -> str | None:
        """Return what is wrong if an item matches."""
        indexes = self.find_checked(matcher)
        if not indexes:
            return None
        return self.describe(self.describe_unwanted(matcher, indexes), self.point_at(matcher, indexes[0], "found"))

    def count_problem(self, matcher: M, expectation: Times) -> str | None:
        """Return what is wrong unless matching items happened as often as *expectation* says."""
        indexes = self.find_checked(matcher)
        amount = self.amount(indexes)
        if amount in expectation.counts:
            return None
        pointer = self.point_at(matcher, indexes[0], "found") if indexes else self.nearest(matcher)
        return self.describe(
            f"{self.describe_wanted(matcher)} {expectation.text}, but found it {times(amount)}", pointer
        )

    def others(self, matchers: Sequence[M]) -> str | None:
        """Return what is wrong if an item matches none of *matchers*."""
        self.check_list(matchers)
        strangers = [
            index for index, item in enumerate(self.all) if not any(self.matches(matcher, item) for matcher in matchers)
        ]
        return self.describe(self.describe_allowed(matchers, strangers)) if strangers else None

    def check_list(self, matchers: Sequence[M]) -> None:
        """Refuse what is not a list of matchers; a single string is not taken for a list of letters."""
        if isinstance(matchers, str) or not isinstance(matchers, Sequence):
            raise TypeError(f"give a list of {self.matchers}, not a {type(matchers).__name__}")
        for matcher in matchers:
            self.check(matcher)


class OrderedItems(Items[M, T]):
    """Items that happened one after the other, each of which a message can name by its number."""

    singular: str
    """What to look for, such as "command matching", before the matcher."""
    plural: str
    """What to look for of more than one, such as "commands matching"."""

    @abstractmethod
    def name_matcher(self, matcher: M) -> str:
        """Return the matcher as a message names it."""

    def describe_wanted(self, matcher: M) -> str:
        """Say what should have happened."""
        return f"a {self.singular} {self.name_matcher(matcher)}"

    def describe_unwanted(self, matcher: M, indexes: Sequence[int]) -> str:
        """Say what should not have happened, and the numbers of what did."""
        return f"no {self.singular} {self.name_matcher(matcher)}, but found {numbers(indexes)}"

    def describe_allowed(self, matchers: Sequence[M], indexes: Sequence[int]) -> str:
        """Say what may have happened, and the numbers of what else did."""
        names = " or ".join(map(self.name_matcher, matchers))
        limit = f"only {self.plural} {names}" if names else f"no {self.many} at all"
        return f"{limit}, but found {numbers(indexes)}"

    def order(self, first: M, first_indexes: Sequence[int], second: M, second_indexes: Sequence[int]) -> str:
        """Say why *first*, at *first_indexes*, does not come before *second*, at *second_indexes*."""
        match bool(first_indexes), bool(second_indexes):
            case False, False:
                return "neither was found"
            case False, True:
                return f"{self.name_matcher(first)} was not found"
            case True, False:
                return f"{self.name_matcher(second)} was not found"
            case _ if first_indexes[0] == second_indexes[0]:
                return f"{first_indexes[0] + 1} is the first of both"
            case _:
                return f"{first_indexes[0] + 1} comes after {second_indexes[0] + 1}"

    def order_problem(self, first: M, second: M) -> str | None:
        """Return what is wrong unless both are found, *first* before *second*."""
        first_indexes, second_indexes = self.find_checked(first), self.find_checked(second)
        if first_indexes and second_indexes and first_indexes[0] < second_indexes[0]:
            return None
        missing = second if first_indexes else first
        pointer = None if first_indexes and second_indexes else self.nearest(missing)
        why = self.order(first, first_indexes, second, second_indexes)
        return self.describe(f"{self.name_matcher(first)} before {self.name_matcher(second)}, but {why}", pointer)


class OrderedGroup(Expectations, ABC, Generic[M]):
    """Expectations over what happened in a session, one thing after the other."""

    @abstractmethod
    def _items(self, report: Report) -> OrderedItems[M, Any]:
        """Return what happened."""

    def count(self, report: Report, matcher: M, expected: int, **words: Unpack[ExpectationOptions]) -> None:
        """Exactly so many match."""
        self._expect(self._items(report).count_problem(matcher, exactly(expected)), words)

    def at_least(self, report: Report, matcher: M, least: int, **words: Unpack[ExpectationOptions]) -> None:
        """So many match, or more."""
        expectation = Times(range(check_count(least), sys.maxsize), f"at least {times(least)}")
        self._expect(self._items(report).count_problem(matcher, expectation), words)

    def at_most(self, report: Report, matcher: M, most: int, **words: Unpack[ExpectationOptions]) -> None:
        """So many match, or fewer."""
        expectation = Times(range(check_count(most) + 1), f"at most {times(most)}" if most else "never")
        self._expect(self._items(report).count_problem(matcher, expectation), words)

    def before(self, report: Report, first: M, second: M, **words: Unpack[ExpectationOptions]) -> None:
        """Both items are found, and *first* for the first time before *second*."""
        self._expect(self._items(report).order_problem(first, second), words)

    def only(self, report: Report, matchers: Sequence[M], **words: Unpack[ExpectationOptions]) -> None:
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
