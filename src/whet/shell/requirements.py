"""What a command matcher asks for, as data."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from whet.errors import UsageError

Matcher = str | re.Pattern[str] | Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """The parts that must be there; with `is_strict`, nothing else."""

    executable: Matcher | None = None
    positionals: tuple[Matcher, ...] = ()
    options: tuple[tuple[Matcher, Matcher], ...] = ()
    flags: tuple[Matcher, ...] = ()
    end_of_options: bool | None = None
    is_strict: bool = False
    # The texts that every command that matches has among its traces.
    literals: frozenset[str] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        parts = (*self.positionals, *self.flags, *(part for option in self.options for part in option))
        object.__setattr__(self, "literals", frozenset(part for part in parts if isinstance(part, str)))


def holds(matcher: Matcher, text: str) -> bool:
    """Whether *matcher* accepts *text*: strings exactly, patterns anywhere, predicates as they decide."""
    if isinstance(matcher, str):
        return matcher == text
    if isinstance(matcher, re.Pattern):
        return matcher.search(text) is not None
    return bool(matcher(text))


def checked(matcher: Matcher, part: str) -> Matcher:
    """*matcher*, if it is one."""
    foreign: object = matcher
    is_bytes = isinstance(foreign, re.Pattern) and isinstance(foreign.pattern, bytes)
    if not is_bytes and (isinstance(foreign, str | re.Pattern) or callable(foreign)):
        return matcher
    raise UsageError(f"{part} is a string, a compiled pattern or a function, not {matcher!r}")


def checked_executable(matcher: Matcher) -> Matcher:
    """*matcher*, if an executable can be that."""
    if isinstance(matcher, str) and not matcher.strip():
        raise UsageError("an executable has a name", hint="command() matches any")
    if isinstance(matcher, str) and "/" not in matcher and len(words := matcher.split()) > 1:
        asked = f"command({written(words[0])}){''.join(f'.arg({written(word)})' for word in words[1:])}"
        raise UsageError(f"an executable is one word, not {matcher!r}: write {asked}, with .option() and .flag()")
    return checked(matcher, "an executable")


def checked_name(name: Matcher, part: str) -> Matcher:
    """*name*, if options are named like that."""
    if not isinstance(name, str):
        return checked(name, part)
    if "=" in name:
        raise UsageError(f"{part} has no value in it, as {name!r} has: write .option(name, value)")
    if len(name) > 1 and name[0] in "-+" and name != "--":
        return name
    raise UsageError(f'{part} is written with its dashes, as "--filter" or "-f", not {name!r}')


def written(matcher: Matcher) -> str:
    """*matcher* as an author writes it."""
    if isinstance(matcher, re.Pattern):
        flags = matcher.flags & ~re.UNICODE
        return f"re.compile({matcher.pattern!r}{f', {re.RegexFlag(flags)!r}' if flags else ''})"
    if isinstance(matcher, str):
        return _double_quoted(matcher)
    return str(getattr(matcher, "__name__", repr(matcher)))


def _double_quoted(text: str) -> str:
    shown = repr(text)
    return f'"{shown[1:-1]}"' if shown[0] == "'" and '"' not in shown else shown
