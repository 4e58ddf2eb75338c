"""What a command line does with files, as far as it says something about skills: names them, runs them, writes them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from whet.shell import SimpleCommand, followed, joined, read_command

_MOST_REMEMBERED = 1000


@dataclass(frozen=True, slots=True)
class CommandUse:
    """One command of a line: the words that may be paths, the file that it runs, and the files that it writes.

    All are seen from where the line began, whatever `cd` came before.
    """

    named: tuple[str, ...] = ()
    ran: str | None = None
    written: tuple[str, ...] = ()


# What makes, moves or removes files, or only talks.
_NO_USE = frozenset(("mkdir", "touch", "tee", "rm", "rmdir", "chmod", "mv", "cp", "ln", "git", "echo", "printf", "tar"))
_INTERPRETER = re.compile(r"(?:(?:ba|z|da|k)?sh|python[\d.]*|node|ruby|perl|php|deno|bun|tsx|ts-node|source|\.)\Z")
# Programs that start another one, with the words that say so.
_STARTERS = frozenset(("uv", "uvx", "npx", "bunx", "pnpm", "yarn", "npm", "poetry", "pdm", "hatch", "rye", "pipx"))
_STARTING = frozenset(("run", "exec", "dlx", "x"))
_ALSO_STARTING = frozenset(("deno", "bun"))
# With these an interpreter runs what stands on the command line, or a module, and no file; `bash -c` is read as shell.
_INLINE = re.compile(
    r"python\S* -[a-zA-Z]*[cm]|(?:perl|ruby) -[a-zA-Z]*[eE]|php -r|(?:node|bun|tsx|ts-node) -[ep]|\S+ --(?:eval|print)"
)
# Options with a value of their own.
_VALUED = frozenset(
    (
        *("-W", "-X", "-I", "-o", "-O", "--require", "--import", "--loader", "--with", "--python", "--project"),
        *("--directory", "--extra", "--group", "--package", "--env-file", "--rcfile", "--init-file"),
    )
)
# Only what is quoted holds these: a text, a pattern or a program rather than a path.
_TEXT = re.compile(r"[\s|;&()<>'\"`]")
_WRITES = re.compile(r"(?:\d+|&)?>>?\|?([^&>(].*)", re.DOTALL)


@lru_cache(_MOST_REMEMBERED)
def command_uses(line: str, folder: str = "") -> tuple[CommandUse, ...]:
    """What each command of *line* does with files; *folder* is where the line began."""
    return tuple(_use(command, here) for command, here in followed(read_command(line), folder))


def _use(command: SimpleCommand, folder: str) -> CommandUse:
    written = [found[1] for turn in command.redirections if (found := _WRITES.fullmatch(turn))]
    if command.name in _NO_USE:
        if command.name == "tee":
            written += [word for word in command.words if not word.startswith("-")]
        return CommandUse(written=tuple(joined(folder, path) for path in written))
    script = _script((command.executable, *command.words))
    return CommandUse(
        named=tuple(joined(folder, path) for path in _paths(command)),
        ran=joined(folder, script) if script else None,
        written=tuple(joined(folder, path) for path in written),
    )


def _paths(command: SimpleCommand) -> Iterator[str]:
    """The words that may be paths, also those that an option is given with `=`."""
    if "/" in command.executable:
        yield command.executable
    for word in command.words:
        path = word.partition("=")[2] if word.startswith("-") else word
        if path and not _TEXT.search(path):
            yield path


def _script(words: tuple[str, ...]) -> str | None:
    """The file that *words* run, if any: the program itself by its path, or what an interpreter is given."""
    if not words:
        return None
    name = posixpath.basename(words[0])
    if name in _STARTERS or (name in _ALSO_STARTING and words[1:2] == ("run",)):
        started = _operands(words[1:])
        while started and started[0] in _STARTING:
            started = _operands(started[1:])
        # A script by its name alone, as `deno run a.ts` has it.
        return _script(started) or (started[0] if started else None)
    if not _INTERPRETER.match(name):
        return words[0] if "/" in words[0] else None
    operands = _operands(words[1:])
    options = (f"{name} {option}" for option in words[1 : len(words) - len(operands)])
    return None if any(map(_INLINE.fullmatch, options)) else next(iter(operands), None)


def _operands(words: tuple[str, ...]) -> tuple[str, ...]:
    """*words* from the first one on that is neither an option nor its value."""
    index = 0
    while index < len(words) and words[index].startswith("-"):
        if words[index] == "--":
            return words[index + 1 :]
        index += 2 if words[index] in _VALUED else 1
    return words[index:]
