"""Many lines, read once and asked many times: which of them does a matcher match?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from difflib import get_close_matches

from whet.shell.arguments import traces
from whet.shell.explaining import lacks
from whet.shell.matching import CommandMatcher, candidates, requirements_of
from whet.shell.requirements import Requirements
from whet.shell.search import is_executable, meets
from whet.shell.simple import SimpleCommand

_MOST_CONSIDERED = 200


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
                self._add(command, line)
        self._answers: dict[Requirements, tuple[int, ...]] = {}

    def matching(self, matcher: CommandMatcher) -> tuple[int, ...]:
        """The numbers of the lines that *matcher* matches, in order, from 0."""
        wanted = requirements_of(matcher)
        if wanted not in self._answers:
            self._answers[wanted] = self._search(wanted)
        return self._answers[wanted]

    def nearest(self, matcher: CommandMatcher) -> int | None:
        """The number of the first line with the command that lacks least, if any has the executable, or one like it."""
        wanted = requirements_of(matcher)
        entries = self._of_executable(wanted) or self._of_similar_executable(wanted)
        considered = entries[:_MOST_CONSIDERED]
        if not considered:
            return None
        _, line = min(considered, key=lambda entry: len(lacks(replace(wanted, executable=None), entry[0])))
        return self._places[line][0]

    def _of_executable(self, wanted: Requirements) -> list[tuple[SimpleCommand, str]]:
        groups = self._by_executable.values()
        return [entry for entries in groups if is_executable(wanted, entries[0][0]) for entry in entries]

    def _of_similar_executable(self, wanted: Requirements) -> list[tuple[SimpleCommand, str]]:
        if not isinstance(wanted.executable, str):
            return []
        names = {entries[0][0].name: entries for entries in self._by_executable.values()}
        close = get_close_matches(wanted.executable.rsplit("/", 1)[-1], names, n=1)
        return names[close[0]] if close else []

    def _add(self, command: SimpleCommand, line: str) -> None:
        entry = (command, line)
        self._by_executable[command.executable].append(entry)
        for trace in traces(command.words):
            self._by_trace[command.executable, trace].append(entry)

    def _search(self, wanted: Requirements) -> tuple[int, ...]:
        lines = {line for command, line in self._worth_a_look(wanted) if meets(wanted, command)}
        return tuple(sorted(number for line in lines for number in self._places[line]))

    def _worth_a_look(self, wanted: Requirements) -> Iterator[tuple[SimpleCommand, str]]:
        for executable, entries in self._by_executable.items():
            if is_executable(wanted, entries[0][0]):
                # The rarest text that is asked for decides where to look.
                choices = [self._by_trace.get((executable, literal), []) for literal in wanted.literals]
                yield from min(choices, key=len, default=entries)
