"""What an expectation may be given to look for: a string, a compiled pattern, a predicate, or a command."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from whet.expectations.failure import shorten
from whet.shell import CommandMatcher

TextMatcher: TypeAlias = str | re.Pattern[str] | Callable[[str], bool]
LineMatcher: TypeAlias = TextMatcher | CommandMatcher


def matches(matcher: LineMatcher, text: str) -> bool:
    """Whether *text* is looked for: a string is found in it, a pattern is searched in it, a predicate says so."""
    match matcher:
        case str():
            return matcher in text
        case re.Pattern():
            return matcher.search(text) is not None
        case CommandMatcher():
            return matcher.matches(text)
        case _:
            return bool(matcher(text))


def equals(matcher: TextMatcher, text: str) -> bool:
    """The same where a string means the whole text."""
    return text == matcher if isinstance(matcher, str) else matches(matcher, text)


def shown(matcher: Any) -> str:
    """A matcher as a message names it."""
    match matcher:
        case str():
            return f'"{shorten(matcher)}"'
        case re.Pattern():
            return f"/{shorten(matcher.pattern)}/"
        case CommandMatcher():
            return str(matcher)
        case _:
            return getattr(matcher, "__name__", None) or repr(matcher)


def sought(matcher: Any) -> str | None:
    """A text to compare with when looking for the nearest miss."""
    match matcher:
        case str():
            return matcher
        case re.Pattern():
            return re.sub(r"[\\^$.*+?()\[\]{}|]", "", matcher.pattern)
        case CommandMatcher():
            wanted = matcher.requirements
            parts = [wanted.executable, *wanted.positionals, *wanted.flags, *(name for name, _ in wanted.options)]
            return " ".join(part for part in parts if isinstance(part, str))
        case _:
            return None


def check_matcher(matcher: Any) -> None:
    """Refuse what cannot look for anything, before it silently matches nothing, or everything."""
    if inspect.iscoroutinefunction(matcher):
        raise TypeError("a predicate must not be async: what it gives would always be true")
    if not isinstance(matcher, str | re.Pattern | CommandMatcher) and not callable(matcher):
        kind = type(matcher).__name__
        raise TypeError(f"a matcher is a string, a compiled pattern, a predicate or a command, not {kind}")


def check_matchers(matchers: Sequence[Any]) -> None:
    """The same for a list of them; a single string is not taken for a list of letters."""
    if isinstance(matchers, str) or not isinstance(matchers, Sequence):
        raise TypeError("give a list of matchers")
    for matcher in matchers:
        check_matcher(matcher)
