"""Match commands against requirements, and explain why a line does not match."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import field, replace
from shlex import quote

from whet.dataclass import dataclass
from whet.errors import UsageError
from whet.reading.shell_simple import Role, SimpleCommand, is_positional, roles, traces
from whet.reading.text import middle, printable

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
    """Return whether *matcher* accepts *text*: strings exactly, patterns anywhere, predicates as they decide."""
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


# About half a second. Ordinary commands need a few dozen steps.
STEP_LIMIT = 500_000

State = tuple[int, int]


@dataclass(slots=True)
class _Walk:
    """The walk over the words of one command; each bit of a state's mask is one option or flag."""

    wanted: Requirements
    words: tuple[str, ...]
    steps: int = 0

    @property
    def goal(self) -> State:
        """Everything found."""
        return len(self.wanted.positionals), (1 << (len(self.wanted.options) + len(self.wanted.flags))) - 1

    def found(self) -> bool | None:
        """Return whether the goal can be reached; None if the walk is too long."""
        ending = self.words.index("--") if "--" in self.words else len(self.words)
        current: set[State] = {(0, 0)}
        following: set[State] = set()
        for index, word in enumerate(self.words):
            if not self.wanted.is_strict and self.goal in current:
                return True
            if self.steps > STEP_LIMIT:
                return None
            after_next: set[State] = set()
            for state in current:
                if index == ending:
                    following.add(state)
                elif index > ending:
                    self._pass_positional(state, word, following)
                else:
                    upcoming = self.words[index + 1] if index + 1 < ending else None
                    self._pass(state, word, upcoming, (following, after_next))
            current, following = following, after_next
        return self.goal in current

    def _pass(self, state: State, word: str, upcoming: str | None, onward: tuple[set[State], set[State]]) -> None:
        if is_positional(word):
            self._pass_positional(state, word, onward[0])
        elif not self.wanted.is_strict:
            onward[0].add(state)
        for role in roles(word):
            if role.takes_next and (upcoming is None or not is_positional(upcoming)):
                continue
            values = (upcoming,) if role.takes_next and upcoming is not None else role.values
            self._pass_role(state, role, values, onward[role.takes_next])

    def _pass_positional(self, state: State, word: str, onward: set[State]) -> None:
        self.steps += 1
        found, mask = state
        if found < len(self.wanted.positionals) and holds(self.wanted.positionals[found], word):
            onward.add((found + 1, mask))
        if not self.wanted.is_strict:
            onward.add(state)

    def _pass_role(self, state: State, role: Role, values: tuple[str, ...], onward: set[State]) -> None:
        self.steps += 1 + len(role.flags)
        found = state[0]
        masks = {state[1]}
        for flag in role.flags:
            masks = {mask | bit for mask in masks for bit in self._bits_of_flag(flag, mask)}
        for mask in masks:
            if role.option is None or (not self.wanted.is_strict and not role.takes_next):
                onward.add((found, mask))
            for place, (name, matcher) in enumerate(self.wanted.options):
                is_free = role.option is not None and not mask & (1 << place) and holds(name, role.option)
                if is_free and any(holds(matcher, value) for value in values):
                    onward.add((found, mask | (1 << place)))

    def _bits_of_flag(self, name: str, mask: int) -> Iterable[int]:
        """What may become of a flag: it is one of those that are still wanted or, unless strict, just there."""
        if not self.wanted.flags:
            return () if self.wanted.is_strict else (0,)
        wanted = {
            # The same flag asked for twice is met in one order only.
            flag: 1 << place
            for place, flag in reversed([*enumerate(self.wanted.flags, start=len(self.wanted.options))])
            if not mask & (1 << place) and holds(flag, name)
        }
        return wanted.values() or (() if self.wanted.is_strict else (0,))


def is_executable(wanted: Requirements, command: SimpleCommand) -> bool:
    """Return whether the executable is the wanted one, as written or without its folder."""
    matcher = wanted.executable
    return matcher is None or holds(matcher, command.executable) or holds(matcher, command.name)


def _has_in_order(matchers: tuple[Matcher, ...], words: tuple[str, ...]) -> bool:
    """Whether the positionals are there; without options to compete for words the first that fits is as good as any."""
    found, ended = 0, False
    for word in words:
        if found == len(matchers):
            break
        if word == "--" and not ended:
            ended = True
        elif (ended or is_positional(word)) and holds(matchers[found], word):
            found += 1
    return found == len(matchers)


def meets(wanted: Requirements, command: SimpleCommand) -> bool | None:
    """Return whether *command* matches; None if its words have too many readings."""
    if not is_executable(wanted, command):
        return False
    if not wanted.literals <= traces(command.words):
        return False
    if wanted.end_of_options is not None and wanted.end_of_options != ("--" in command.words):
        return False
    if not (wanted.is_strict or wanted.options or wanted.flags):
        return _has_in_order(wanted.positionals, command.words)
    return _Walk(wanted, command.words).found()


_LONGEST_PART = 160
_MOST_COMMANDS = 8
_MOST_CONSIDERED = 200


def reading(wanted: Requirements, commands: tuple[SimpleCommand, ...]) -> list[str]:
    """Return how a line with these commands was read, and which of them matches, or nearly does."""
    if not commands:
        return ["read as:  no command at all"]
    nearest = _nearest(wanted, commands)
    shown = sorted({nearest, *range(min(_MOST_COMMANDS, len(commands)))})
    body = [part for index in shown for part in _described(index + 1, commands[index])]
    left_out = len(commands) - len(shown)
    more = [f"  ... and {left_out} more"] if left_out else []
    return ["read as:", *body, *more, _conclusion(wanted, commands, nearest)]


def _nearest(wanted: Requirements, commands: tuple[SimpleCommand, ...]) -> int:
    """Return the number of the command that lacks least, of those with the right executable if there are any."""
    right = [index for index, command in enumerate(commands) if is_executable(wanted, command)]
    others = replace(wanted, executable=None)
    considered = (right or range(len(commands)))[:_MOST_CONSIDERED]
    return min(considered, key=lambda index: (not meets(wanted, commands[index]), len(lacks(others, commands[index]))))


def _conclusion(wanted: Requirements, commands: tuple[SimpleCommand, ...], nearest: int) -> str:
    for index, command in enumerate(commands):
        if meets(wanted, command):
            return f"matches:  {index + 1}. {_part(quote(command.executable))}"
    reasons = "; ".join(lacks(wanted, commands[nearest]))
    return f"nearest:  {nearest + 1}. {_part(quote(commands[nearest].executable))}: {reasons}"


def _described(number: int, command: SimpleCommand) -> list[str]:
    arguments = command.arguments
    options = (f"{name} {quote(value)}" for name, values in arguments.options.items() for value in values)
    parts = {
        "wrappers": ", ".join(command.wrappers),
        "env": " ".join(f"{name}={quote(value)}" for name, value in command.env),
        "positionals": ", ".join(map(quote, arguments.positionals)),
        "options": ", ".join(options),
        "flags": ", ".join(arguments.flags),
        "end of options": "--" if arguments.end_of_options else "",
        "redirections": " ".join(command.redirections),
    }
    lines = [f"       {name}: {printable(_part(text))}" for name, text in parts.items() if text]
    return [f"  {number}. {printable(_part(quote(command.executable)))}", *lines]


def lacks(wanted: Requirements, command: SimpleCommand) -> list[str]:
    """Return what *command* lacks, each part checked by itself."""
    if wanted.executable is not None and not is_executable(wanted, command):
        return [f"its executable is not {written(wanted.executable)}"]
    alone = Requirements()
    missing: list[str] = []
    if wanted.positionals and not meets(replace(alone, positionals=wanted.positionals), command):
        missing.append(_lacking_positionals(wanted, command))
    missing += [
        _lacking_option(name, matcher, command)
        for name, matcher in dict.fromkeys(wanted.options)
        if not meets(replace(alone, options=((name, matcher),)), command)
    ]
    missing += [
        f"no flag {named(flag)}"
        for flag in dict.fromkeys(wanted.flags)
        if not meets(replace(alone, flags=(flag,)), command)
    ]
    if wanted.end_of_options is not None and wanted.end_of_options != ("--" in command.words):
        missing.append("no `--`" if wanted.end_of_options else "`--` was there")
    return missing or [_lacking_together(wanted, command)]


def _lacking_together(wanted: Requirements, command: SimpleCommand) -> str:
    if meets(wanted, command) is None:
        return f"undecided: its words have too many readings (stopped after {STEP_LIMIT:,} steps)"
    if meets(replace(wanted, is_strict=False), command):
        return "strict: something else is there as well"
    return "every part is there, but no single reading has them all: one word would have to be two things"


def _lacking_positionals(wanted: Requirements, command: SimpleCommand) -> str:
    if len(wanted.positionals) == 1:
        return f"no positional {written(wanted.positionals[0])}"
    found = 0
    while meets(Requirements(positionals=wanted.positionals[: found + 1]), command):
        found += 1
    before = f" after {', '.join(map(written, wanted.positionals[:found]))}" if found else ""
    return f"no positional {written(wanted.positionals[found])}{before}"


def _lacking_option(name: Matcher, matcher: Matcher, command: SimpleCommand) -> str:
    found = {option: values for option, values in command.arguments.options.items() if holds(name, option)}
    if not found:
        return f"no option {named(name)} with {written(matcher)}"
    values = ", ".join(quote(value) for each in found.values() for value in each)
    return f"option {', '.join(found)} is {_part(values)}, not {written(matcher)}"


def _part(text: str) -> str:
    return middle(text, _LONGEST_PART, "...")


def named(name: Matcher) -> str:
    """Return the name of an option for a message."""
    return name if isinstance(name, str) else written(name)
