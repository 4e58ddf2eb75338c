"""Whether one command meets all requirements at once: a walk over its words that keeps every reading alive.

A state is how many positionals are found and which options and flags are met. All states of one word are carried to
the next, so no choice is made too early: a word is the value of one option, or a positional, or passed over, never two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from whet.shell.arguments import Role, is_positional, roles, traces
from whet.shell.requirements import Matcher, Requirements, holds
from whet.shell.simple import SimpleCommand

# About half a second. Ordinary commands need a few dozen steps.
STEP_LIMIT = 500_000

State = tuple[int, int]


@dataclass(slots=True)
class _Walk:
    """The walk over the words of one command; a bit of a state's mask stands for one option or flag."""

    wanted: Requirements
    words: tuple[str, ...]
    steps: int = 0

    @property
    def goal(self) -> State:
        """Everything found."""
        return len(self.wanted.positionals), (1 << (len(self.wanted.options) + len(self.wanted.flags))) - 1

    def found(self) -> bool | None:
        """Whether the goal can be reached; None when the walk was too long to tell."""
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
    """Whether the executable is the one that is wanted: as written, or without its folder."""
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
    """Whether *command* is what is wanted; None when its words have too many readings to tell."""
    if not is_executable(wanted, command):
        return False
    if not wanted.literals <= traces(command.words):
        return False
    if wanted.end_of_options is not None and wanted.end_of_options != ("--" in command.words):
        return False
    if not (wanted.is_strict or wanted.options or wanted.flags):
        return _has_in_order(wanted.positionals, command.words)
    return _Walk(wanted, command.words).found()
