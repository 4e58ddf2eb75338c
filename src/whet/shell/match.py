"""The matcher that authors write: `command("pnpm").arg("test").flag("--watch")`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from whet.reading.text import middle, printable
from whet.shell._arguments import SimpleCommand, traces
from whet.shell._search import (
    Matcher,
    Requirements,
    checked,
    checked_executable,
    checked_name,
    is_executable,
    lacks,
    meets,
    reading,
    written,
)
from whet.shell.parse import read_command

_LONGEST_LINE = 400


class CommandMatcher(Struct, frozen=True):
    """Says what a command must look like. Every method gives a new matcher; the old one stays as it is."""

    _wanted: Requirements

    def arg(self, matcher: Matcher) -> CommandMatcher:
        """Also wants this positional, somewhere after those that were asked for before."""
        return self.args(matcher)

    def args(self, *matchers: Matcher) -> CommandMatcher:
        """Also wants these positionals, in this order."""
        positionals = tuple(checked(matcher, "a positional") for matcher in matchers)
        return self._with(positionals=self._wanted.positionals + positionals)

    def option(self, name: Matcher, value: Matcher) -> CommandMatcher:
        """Also wants an option with this value; asked for twice, it must be there twice."""
        option = (checked_name(name, "the name of an option"), checked(value, "the value of an option"))
        return self._with(options=(*self._wanted.options, option))

    def flag(self, name: Matcher) -> CommandMatcher:
        """Also wants an option without a value."""
        return self._with(flags=(*self._wanted.flags, checked_name(name, "a flag")))

    def end_of_options(self, present: bool = True) -> CommandMatcher:
        """Also wants `--` to be there, or not to be."""
        return self._with(end_of_options=present)

    def strict(self) -> CommandMatcher:
        """Wants nothing else: exactly these positionals, no other options or flags."""
        return self._with(is_strict=True)

    def matches(self, line: str) -> bool:
        """Return whether any simple command of *line* matches."""
        return any(meets(self._wanted, candidate) for candidate in candidates(line))

    def explain(self, line: str) -> str:
        """Explain what was expected, how *line* was read, and what its nearest command lacks."""
        head = (f"expected: {self}", f"command:  {printable(middle(line, _LONGEST_LINE, '...'))}")
        return "\n".join((*head, *reading_of(self, line)))

    def __repr__(self) -> str:
        requirements = self._wanted
        text = f"command({'' if requirements.executable is None else written(requirements.executable)})"
        text += "".join(f".arg({written(matcher)})" for matcher in requirements.positionals)
        text += "".join(f".option({written(name)}, {written(matcher)})" for name, matcher in requirements.options)
        text += "".join(f".flag({written(name)})" for name in requirements.flags)
        if requirements.end_of_options is not None:
            text += f".end_of_options({'' if requirements.end_of_options else 'False'})"
        return text + (".strict()" if requirements.is_strict else "")

    def _with(self, **changes: Any) -> CommandMatcher:
        return CommandMatcher(replace(self._wanted, **changes))


def command(executable: Matcher | None = None) -> CommandMatcher:
    """Return a matcher for commands with this executable; a name without a folder matches in any folder."""
    matcher = None if executable is None else checked_executable(executable)
    return CommandMatcher(Requirements(executable=matcher))


def requirements_of(matcher: CommandMatcher) -> Requirements:
    """Return what *matcher* requires."""
    return matcher._wanted  # noqa: SLF001 - an author's editor should not offer it


def reading_of(matcher: CommandMatcher, line: str) -> list[str]:
    """Return how *line* was read, in lines, and which of its commands matches, or nearly does."""
    return reading(requirements_of(matcher), tuple(candidates(line)))


def candidates(line: str) -> Iterator[SimpleCommand]:
    """Yield every command that *line* ran, with the wrappers that carried them."""
    carriers: set[int] = set()
    for command in read_command(line):
        for carrier in command.carriers:
            if id(carrier) not in carriers:
                carriers.add(id(carrier))
                yield carrier
        yield command


_MOST_LOOKED_AT = 200


class CommandIndex:
    """The commands of a session by executable and by word, so that an assertion looks at few of them."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._places: defaultdict[str, list[int]] = defaultdict(list)
        for number, line in enumerate(lines):
            self._places[line].append(number)
        self._by_executable: defaultdict[str, list[tuple[SimpleCommand, str]]] = defaultdict(list)
        self._by_trace: defaultdict[tuple[str, str], list[tuple[SimpleCommand, str]]] = defaultdict(list)
        for line in self._places:
            for command in candidates(line):
                self._by_executable[command.executable].append((command, line))
                for trace in traces(command.words):
                    self._by_trace[command.executable, trace].append((command, line))
        self._answers: dict[Requirements, tuple[int, ...]] = {}

    def matching(self, matcher: CommandMatcher) -> tuple[int, ...]:
        """Return the numbers of the lines that *matcher* matches, in order, from 0."""
        requirements = requirements_of(matcher)
        if requirements not in self._answers:
            lines = {line for command, line in self._worth_a_look(requirements) if meets(requirements, command)}
            self._answers[requirements] = tuple(sorted(number for line in lines for number in self._places[line]))
        return self._answers[requirements]

    def nearest(self, matcher: CommandMatcher) -> int | None:
        """Return the number of the first line with the nearest command, if any has the executable or one like it."""
        requirements = requirements_of(matcher)
        groups = self._by_executable.values()
        right = [entry for entries in groups if is_executable(requirements, entries[0][0]) for entry in entries]
        considered = (right or self._of_similar_executable(requirements))[:_MOST_LOOKED_AT]
        if not considered:
            return None
        _, line = min(considered, key=lambda entry: len(lacks(replace(requirements, executable=None), entry[0])))
        return self._places[line][0]

    def _of_similar_executable(self, requirements: Requirements) -> list[tuple[SimpleCommand, str]]:
        if not isinstance(requirements.executable, str):
            return []
        names = {entries[0][0].name: entries for entries in self._by_executable.values()}
        close = get_close_matches(requirements.executable.rsplit("/", 1)[-1], names, n=1)
        return names[close[0]] if close else []

    def _worth_a_look(self, requirements: Requirements) -> Iterator[tuple[SimpleCommand, str]]:
        for executable, entries in self._by_executable.items():
            if is_executable(requirements, entries[0][0]):
                # The rarest text that is asked for decides where to look.
                choices = [self._by_trace.get((executable, literal), []) for literal in requirements.literals]
                yield from min(choices, key=len, default=entries)
