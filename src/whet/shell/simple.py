"""A simple command: one executable with its words, as a shell would start it."""

from __future__ import annotations

from dataclasses import dataclass, field

from whet.shell.arguments import Arguments, read_arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleCommand:
    """One command of a line. Variables, globs and tildes stand as they were written."""

    raw: str
    executable: str
    words: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    redirections: tuple[str, ...] = ()
    wrappers: tuple[str, ...] = ()
    depth: int = 0
    # The subshells that it runs in, see `followed`.
    scope: tuple[int, ...] = field(default=(), repr=False, compare=False)
    # The commands that carried this one (`sudo pnpm test` is also a `sudo`), outermost first.
    carriers: tuple[SimpleCommand, ...] = field(default=(), repr=False, compare=False)

    @property
    def name(self) -> str:
        """The executable without its folder."""
        return self.executable.rsplit("/", 1)[-1] or self.executable

    @property
    def arguments(self) -> Arguments:
        """Its words as positionals, options and flags; a word with two readings appears in both."""
        return read_arguments(self.words)
