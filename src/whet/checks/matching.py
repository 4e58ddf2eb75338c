"""What an expectation may be given to look for: a string, a compiled pattern, a predicate, or a command."""

from __future__ import annotations

import inspect
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from whet.checks.message import Pointer, nearest, shorten
from whet.model.session import Session
from whet.shell.match import CommandIndex, CommandMatcher, reading_of

TextMatcher: TypeAlias = str | re.Pattern[str] | Callable[[str], bool]
LineMatcher: TypeAlias = TextMatcher | CommandMatcher

MatcherKinds: TypeAlias = tuple[type, ...]
TEXT_MATCHERS: MatcherKinds = (str, re.Pattern)
LINE_MATCHERS: MatcherKinds = (*TEXT_MATCHERS, CommandMatcher)


def matches(matcher: LineMatcher, text: str) -> bool:
    """Return whether *text* contains a string, has a match of a pattern, or satisfies a predicate."""
    match matcher:
        case str():
            return matcher in text
        case re.Pattern():
            return matcher.search(text) is not None
        case CommandMatcher():
            return matcher.matches(text)
        case _:
            return says(matcher, text)


def equals(matcher: TextMatcher, text: str) -> bool:
    """Return whether *text* matches; a string means the whole text."""
    return text == matcher if isinstance(matcher, str) else matches(matcher, text)


def describe_matcher(matcher: Any) -> str:
    """Return a matcher as a message names it."""
    match matcher:
        case str():
            return f'"{shorten(matcher)}"'
        case re.Pattern():
            return f"/{shorten(matcher.pattern)}/"
        case CommandMatcher():
            return str(matcher)
        case _:
            return getattr(matcher, "__name__", None) or repr(matcher)


def comparison_text(matcher: Any) -> str | None:
    """Return a text to compare with when looking for the nearest miss."""
    match matcher:
        case str():
            return matcher
        case re.Pattern():
            return re.sub(r"[\\^$.*+?()\[\]{}|]", "", matcher.pattern)
        case _:
            return None


def check_matcher(matcher: Any, kinds: MatcherKinds = TEXT_MATCHERS, *, may_be_empty: bool = False) -> None:
    """Refuse what is not a matcher, before it silently matches nothing, or everything."""
    if isinstance(matcher, CommandMatcher) and CommandMatcher not in kinds:
        raise TypeError(f"{shorten(str(matcher))} looks for commands: only expect.commands takes it")
    if not isinstance(matcher, kinds):
        check_predicate(matcher, "a matcher is a string, a compiled pattern, a predicate or a command")
    if isinstance(matcher, re.Pattern) and not isinstance(matcher.pattern, str):
        raise TypeError(f"a pattern is one of text, not of bytes: {shorten(repr(matcher))}")
    if matcher == "" and not may_be_empty:
        raise ValueError("an empty string is found in everything")


def check_predicate(predicate: Any, rule: str) -> None:
    """Refuse what is not a predicate; *rule* says what is allowed."""
    if inspect.iscoroutinefunction(predicate):
        raise TypeError("a predicate must not be async: its result would always be true")
    if isinstance(predicate, type) or not callable(predicate):
        kind = f"the class {predicate.__name__}" if isinstance(predicate, type) else type(predicate).__name__
        raise TypeError(f"{rule}, not {kind}")


def says(predicate: Callable[[Any], Any], value: Any) -> bool:
    """Return what a predicate says; refuse an answer that is always true, or is not an answer."""
    try:
        answer = predicate(value)
    except Exception as error:
        error.add_note(f"the predicate {describe_matcher(predicate)} was asked about {shorten(repr(value))}")
        raise
    if isinstance(answer, bool):
        return answer
    is_none = answer is NotImplemented or isinstance(answer, CommandMatcher) or callable(answer)
    if is_none or inspect.isgenerator(answer) or inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError(
            f"the predicate {describe_matcher(predicate)} returned a {type(answer).__name__}, which is not an answer"
        )
    return bool(answer)


class Finder:
    """Lines that are searched many times."""

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
        """Return the numbers of the lines that match, from 0."""
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

    def _with_text(self, needle: str) -> Iterator[int]:
        """Yield the lines with this text in them, found in all of the text at once."""
        at = self._text.find(needle)
        while at >= 0:
            number = bisect_right(self._ends, at)
            # A match that continues on the next line does not count.
            is_inside = at + len(needle) < self._ends[number]
            if is_inside:
                yield number
            at = self._text.find(needle, self._ends[number] if is_inside else at + 1)

    def nearest(self, matcher: LineMatcher) -> Pointer | None:
        """Return the nearest line, with how it was read, which is half of why it does not match."""
        if not isinstance(matcher, CommandMatcher):
            return nearest(comparison_text(matcher), self._lines)
        index = self._index.nearest(matcher)
        return None if index is None else self.read(matcher, index, "nearest")

    def read(self, matcher: LineMatcher, index: int, word: str) -> Pointer | None:
        """Return a line with how it was read, if *matcher* is about that."""
        if not isinstance(matcher, CommandMatcher):
            return None
        return Pointer(index, word, reading_of(matcher, self._lines[index]))


# A finder goes when its session goes.
_finders: WeakKeyDictionary[Session, dict[str, Finder]] = WeakKeyDictionary()


def finder_of(session: Session, name: str, lines: Sequence[str]) -> Finder:
    """Return the finder of these lines of the session, made on first use."""
    finders = _finders.setdefault(session, {})
    if name not in finders:
        finders[name] = Finder(lines)
    return finders[name]
