"""The matcher that authors write: `command("pnpm").arg("test").flag("--watch")`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from whet.shell.explaining import explain, reading
from whet.shell.reading import read_command
from whet.shell.requirements import Matcher, Requirements, checked, checked_executable, checked_name, written
from whet.shell.search import meets
from whet.shell.simple import SimpleCommand


@dataclass(frozen=True, slots=True, repr=False)
class CommandMatcher:
    """Says what a command must look like. Every method gives a new matcher; the old one stays as it is."""

    _wanted: Requirements

    def arg(self, matcher: Matcher) -> CommandMatcher:
        """Also wants this positional, somewhere after those that were asked for before."""
        return self.args(matcher)

    def args(self, *matchers: Matcher) -> CommandMatcher:
        """Also wants these positionals, in this order."""
        added = tuple(checked(matcher, "a positional") for matcher in matchers)
        return self._with(positionals=self._wanted.positionals + added)

    def option(self, name: Matcher, value: Matcher) -> CommandMatcher:
        """Also wants an option with this value; asked for twice, it must be there twice."""
        added = (checked_name(name, "the name of an option"), checked(value, "the value of an option"))
        return self._with(options=(*self._wanted.options, added))

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
        """Whether any simple command of *line* is the one that is wanted."""
        return any(meets(self._wanted, candidate) for candidate in candidates(line))

    def explain(self, line: str) -> str:
        """What was expected, how *line* was read, and what its nearest command lacks."""
        return explain(self._wanted, str(self), line, tuple(candidates(line)))

    def __repr__(self) -> str:
        wanted = self._wanted
        text = f"command({'' if wanted.executable is None else written(wanted.executable)})"
        text += "".join(f".arg({written(matcher)})" for matcher in wanted.positionals)
        text += "".join(f".option({written(name)}, {written(matcher)})" for name, matcher in wanted.options)
        text += "".join(f".flag({written(name)})" for name in wanted.flags)
        if wanted.end_of_options is not None:
            text += f".end_of_options({'' if wanted.end_of_options else 'False'})"
        return text + (".strict()" if wanted.is_strict else "")

    def _with(self, **changes: Any) -> CommandMatcher:
        return CommandMatcher(replace(self._wanted, **changes))


def command(executable: Matcher | None = None) -> CommandMatcher:
    """A matcher for commands with this executable; a name without a folder also finds it under any folder."""
    wanted = None if executable is None else checked_executable(executable)
    return CommandMatcher(Requirements(executable=wanted))


def requirements_of(matcher: CommandMatcher) -> Requirements:
    """What *matcher* asks for, for those who look for it in their own way."""
    return matcher._wanted  # noqa: SLF001 - an author's editor should not offer it


def reading_of(matcher: CommandMatcher, line: str) -> list[str]:
    """How *line* was read, in lines, and which of its commands is wanted, or nearly."""
    return reading(requirements_of(matcher), tuple(candidates(line)))


def candidates(line: str) -> Iterator[SimpleCommand]:
    """Every command that *line* ran: those that were read, and the wrappers that carried them."""
    carried: set[int] = set()
    for found in read_command(line):
        for carrier in found.carriers:
            if id(carrier) not in carried:
                carried.add(id(carrier))
                yield carrier
        yield found
