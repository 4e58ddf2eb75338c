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
    options: tuple[tuple[str, Matcher], ...] = ()
    flags: tuple[str, ...] = ()
    end_of_options: bool | None = None
    is_strict: bool = False
    # The texts that every command that matches has among its traces.
    literals: frozenset[str] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        values = (*self.positionals, *(value for _, value in self.options))
        texts = frozenset(value for value in values if isinstance(value, str))
        object.__setattr__(self, "literals", texts.union(self.flags, (name for name, _ in self.options)))


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


def checked_name(name: str, part: str) -> str:
    """*name*, if options are named like that."""
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
