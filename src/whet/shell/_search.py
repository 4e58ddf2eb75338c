"""Match commands against requirements, and explain why a line does not match."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cached_property
from shlex import quote

from msgspec import Struct
from msgspec.structs import replace

from whet.errors import UsageError
from whet.reading.text import middle, printable
from whet.shell._arguments import Role, SimpleCommand, is_positional, roles, traces

Matcher = str | re.Pattern[str] | Callable[[str], bool]


class Requirements(Struct, frozen=True, kw_only=True, dict=True):
    """The parts that must be there; with `is_strict`, nothing else."""

    executable: Matcher | None = None
    positionals: tuple[Matcher, ...] = ()
    options: tuple[tuple[Matcher, Matcher], ...] = ()
    flags: tuple[Matcher, ...] = ()
    end_of_options: bool | None = None
    is_strict: bool = False

    @cached_property
    def literals(self) -> frozenset[str]:
        """The texts that every command that matches has among its traces."""
        parts = (*self.positionals, *self.flags, *(part for option in self.options for part in option))
        return frozenset(part for part in parts if isinstance(part, str))


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
        call = f"command({written(words[0])}){''.join(f'.arg({written(word)})' for word in words[1:])}"
        raise UsageError(f"an executable is one word, not {matcher!r}: write {call}, with .option() and .flag()")
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
    literal = repr(text)
    return f'"{literal[1:-1]}"' if literal[0] == "'" and '"' not in literal else literal


# About half a second. Ordinary commands need a few dozen steps.
STEP_LIMIT = 500_000

State = tuple[int, int]


class _Walk(Struct):
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
        position, mask = state
        if position < len(self.wanted.positionals) and holds(self.wanted.positionals[position], word):
            onward.add((position + 1, mask))
        if not self.wanted.is_strict:
            onward.add(state)

    def _pass_role(self, state: State, role: Role, values: tuple[str, ...], onward: set[State]) -> None:
        self.steps += 1 + len(role.flags)
        position = state[0]
        masks = {state[1]}
        for flag in role.flags:
            masks = {mask | bit for mask in masks for bit in self._bits_of_flag(flag, mask)}
        for mask in masks:
            if role.option is None or (not self.wanted.is_strict and not role.takes_next):
                onward.add((position, mask))
            for place, (name, matcher) in enumerate(self.wanted.options):
                is_free = role.option is not None and not mask & (1 << place) and holds(name, role.option)
                if is_free and any(holds(matcher, value) for value in values):
                    onward.add((position, mask | (1 << place)))

    def _bits_of_flag(self, name: str, mask: int) -> Iterable[int]:
        """What may become of a flag: it is one of those that are still wanted or, unless strict, just there."""
        if not self.wanted.flags:
            return () if self.wanted.is_strict else (0,)
        bits = {
            # The same flag asked for twice is met in one order only.
            flag: 1 << place
            for place, flag in reversed([*enumerate(self.wanted.flags, start=len(self.wanted.options))])
            if not mask & (1 << place) and holds(flag, name)
        }
        return bits.values() or (() if self.wanted.is_strict else (0,))


def is_executable(requirements: Requirements, command: SimpleCommand) -> bool:
    """Return whether the executable is the wanted one, as written or without its folder."""
    matcher = requirements.executable
    return matcher is None or holds(matcher, command.executable) or holds(matcher, command.name)


def _has_in_order(matchers: tuple[Matcher, ...], words: tuple[str, ...]) -> bool:
    """Whether the positionals are there; without options to compete for words the first that fits is as good as any."""
    position, options_over = 0, False
    for word in words:
        if position == len(matchers):
            break
        if word == "--" and not options_over:
            options_over = True
        elif (options_over or is_positional(word)) and holds(matchers[position], word):
            position += 1
    return position == len(matchers)


def meets(requirements: Requirements, command: SimpleCommand) -> bool | None:
    """Return whether *command* matches; None if its words have too many readings."""
    if not is_executable(requirements, command):
        return False
    if not requirements.literals <= traces(command.words):
        return False
    if requirements.end_of_options is not None and requirements.end_of_options != ("--" in command.words):
        return False
    if not (requirements.is_strict or requirements.options or requirements.flags):
        return _has_in_order(requirements.positionals, command.words)
    return _Walk(requirements, command.words).found()


_LONGEST_PART = 160
_MOST_COMMANDS = 8
_MOST_CONSIDERED = 200


def reading(requirements: Requirements, commands: tuple[SimpleCommand, ...]) -> list[str]:
    """Return how a line with these commands was read, and which of them matches, or nearly does."""
    if not commands:
        return ["read as:  no command at all"]
    nearest = _nearest(requirements, commands)
    indexes = sorted({nearest, *range(min(_MOST_COMMANDS, len(commands)))})
    body = [part for index in indexes for part in _describe(index + 1, commands[index])]
    left_out = len(commands) - len(indexes)
    more = [f"  ... and {left_out} more"] if left_out else []
    return ["read as:", *body, *more, _conclusion(requirements, commands, nearest)]


def _nearest(requirements: Requirements, commands: tuple[SimpleCommand, ...]) -> int:
    """Return the number of the command that lacks least, of those with the right executable if there are any."""
    right = [index for index, command in enumerate(commands) if is_executable(requirements, command)]
    any_executable = replace(requirements, executable=None)
    indexes = (right or range(len(commands)))[:_MOST_CONSIDERED]
    return min(
        indexes,
        key=lambda index: (not meets(requirements, commands[index]), len(lacks(any_executable, commands[index]))),
    )


def _conclusion(requirements: Requirements, commands: tuple[SimpleCommand, ...], nearest: int) -> str:
    for index, command in enumerate(commands):
        if meets(requirements, command):
            return f"matches:  {index + 1}. {_part(quote(command.executable))}"
    reasons = "; ".join(lacks(requirements, commands[nearest]))
    return f"nearest:  {nearest + 1}. {_part(quote(commands[nearest].executable))}: {reasons}"


def _describe(number: int, command: SimpleCommand) -> list[str]:
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


def lacks(requirements: Requirements, command: SimpleCommand) -> list[str]:
    """Return what *command* lacks, each part checked by itself."""
    if requirements.executable is not None and not is_executable(requirements, command):
        return [f"its executable is not {written(requirements.executable)}"]
    alone = Requirements()
    missing: list[str] = []
    if requirements.positionals and not meets(replace(alone, positionals=requirements.positionals), command):
        missing.append(_lacking_positionals(requirements, command))
    missing += [
        _lacking_option(name, matcher, command)
        for name, matcher in dict.fromkeys(requirements.options)
        if not meets(replace(alone, options=((name, matcher),)), command)
    ]
    missing += [
        f"no flag {named(flag)}"
        for flag in dict.fromkeys(requirements.flags)
        if not meets(replace(alone, flags=(flag,)), command)
    ]
    if requirements.end_of_options is not None and requirements.end_of_options != ("--" in command.words):
        missing.append("no `--`" if requirements.end_of_options else "`--` was there")
    return missing or [_lacking_together(requirements, command)]


def _lacking_together(requirements: Requirements, command: SimpleCommand) -> str:
    if meets(requirements, command) is None:
        return f"undecided: its words have too many readings (stopped after {STEP_LIMIT:,} steps)"
    if meets(replace(requirements, is_strict=False), command):
        return "strict: something else is there as well"
    return "every part is there, but no single reading has them all: one word would have to be two things"


def _lacking_positionals(requirements: Requirements, command: SimpleCommand) -> str:
    if len(requirements.positionals) == 1:
        return f"no positional {written(requirements.positionals[0])}"
    position = 0
    while meets(Requirements(positionals=requirements.positionals[: position + 1]), command):
        position += 1
    before = f" after {', '.join(map(written, requirements.positionals[:position]))}" if position else ""
    return f"no positional {written(requirements.positionals[position])}{before}"


def _lacking_option(name: Matcher, matcher: Matcher, command: SimpleCommand) -> str:
    options = {option: values for option, values in command.arguments.options.items() if holds(name, option)}
    if not options:
        return f"no option {named(name)} with {written(matcher)}"
    values = ", ".join(quote(value) for option_values in options.values() for value in option_values)
    return f"option {', '.join(options)} is {_part(values)}, not {written(matcher)}"


def _part(text: str) -> str:
    return middle(text, _LONGEST_PART, "...")


def named(name: Matcher) -> str:
    """Return the name of an option for a message."""
    return name if isinstance(name, str) else written(name)
