"""The lines of a session, made ready to find things in quickly, and to say what came nearest."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from weakref import WeakKeyDictionary

from whet.expectations.failure import Pointed, nearest
from whet.expectations.matchers import LineMatcher, matches, sought
from whet.model.session import Session
from whet.shell import CommandIndex, CommandMatcher, reading_of


class Finder:
    """Some lines, asked many times."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._text = "\n".join(lines)
        self._ends = list(accumulate(len(line) + 1 for line in lines))
        self._commands: CommandIndex | None = None

    @property
    def _index(self) -> CommandIndex:
        self._commands = self._commands or CommandIndex(self._lines)
        return self._commands

    def matching(self, matcher: LineMatcher) -> list[int]:
        """The numbers of the lines that match, from 0."""
        if isinstance(matcher, CommandMatcher):
            return list(self._index.matching(matcher))
        match matcher:
            # The two usual kinds, without a call for each line: a session may have very many.
            case str():
                return list(self._with_text(matcher))
            case re.Pattern():
                search = matcher.search
                return [number for number, line in enumerate(self._lines) if search(line)]
            case _:
                return [number for number, line in enumerate(self._lines) if matches(matcher, line)]

    def _with_text(self, wanted: str) -> Iterator[int]:
        """The lines with this text in them, found in all of the text at once."""
        at = self._text.find(wanted)
        while at >= 0:
            number = bisect_right(self._ends, at)
            # What begins in one line and ends in the next is in neither.
            is_inside = at + len(wanted) < self._ends[number]
            if is_inside:
                yield number
            at = self._text.find(wanted, self._ends[number] if is_inside else at + 1)

    def nearest(self, matcher: LineMatcher) -> Pointed | None:
        """The line that comes nearest; how it was read is half of why it does not match."""
        if not isinstance(matcher, CommandMatcher):
            return nearest(sought(matcher), self._lines)
        index = self._index.nearest(matcher)
        return None if index is None else self.read(matcher, index, "nearest")

    def read(self, matcher: LineMatcher, index: int, word: str) -> Pointed | None:
        """A line with how it was read, where that is what decides."""
        if not isinstance(matcher, CommandMatcher):
            return None
        return Pointed(index, word, reading_of(matcher, self._lines[index]))


# A finder goes when its session goes.
_finders: WeakKeyDictionary[Session, dict[str, Finder]] = WeakKeyDictionary()


def finder_of(session: Session, what: str, lines: Sequence[str]) -> Finder:
    """The finder of these lines of the session, made on first use."""
    finders = _finders.setdefault(session, {})
    if what not in finders:
        finders[what] = Finder(lines)
    return finders[what]
