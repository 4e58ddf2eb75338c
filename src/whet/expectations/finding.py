"""The lines of a session, made ready to find things in quickly, and to say what came nearest."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
                if matcher not in self._text:
                    return []
                return [number for number, line in enumerate(self._lines) if matcher in line]
            case re.Pattern():
                search = matcher.search
                return [number for number, line in enumerate(self._lines) if search(line)]
            case _:
                return [number for number, line in enumerate(self._lines) if matches(matcher, line)]

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
