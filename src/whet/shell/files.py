"""Which files a shell command of an agent reads, runs and writes, such as those of `cat`, `sed -n`, `head` and `rg`."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct

from whet.shell._arguments import SimpleCommand, split_options
from whet.shell.parse import followed, joined, read_command

_MOST_REMEMBERED = 1000


class CommandUse(Struct, frozen=True):
    """One command of a line: the words that may be paths, the file that it runs, and the files that it writes.

    All are relative to the folder in which the line started, also after a `cd`.
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
# With these an interpreter runs code of the command line or a module, not a file; `bash -c` is read as shell.
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
# Only quoted words have these: a text, a pattern or a program rather than a path.
_TEXT = re.compile(r"[\s|;&()<>'\"`]")
_WRITES = re.compile(r"(?:\d+|&)?>>?\|?([^&>(].*)", re.DOTALL)


@lru_cache(_MOST_REMEMBERED)
def command_uses(line: str, folder: str = "") -> tuple[CommandUse, ...]:
    """Return what each command of *line* does with files; *folder* is where the line starts."""
    return tuple(_use(command, place) for command, place in followed(read_command(line), folder))


def _use(command: SimpleCommand, folder: str) -> CommandUse:
    paths = [match[1] for turn in command.redirections if (match := _WRITES.fullmatch(turn))]
    if command.name in _NO_USE:
        if command.name == "tee":
            paths += [word for word in command.words if not word.startswith("-")]
        return CommandUse(written=tuple(joined(folder, path) for path in paths))
    script = _script((command.executable, *command.words))
    return CommandUse(
        named=tuple(joined(folder, path) for path in _paths(command)),
        ran=joined(folder, script) if script else None,
        written=tuple(joined(folder, path) for path in paths),
    )


def _paths(command: SimpleCommand) -> Iterator[str]:
    """Yield the words that may be paths, also those behind the `=` of an option."""
    if "/" in command.executable:
        yield command.executable
    for word in command.words:
        path = word.partition("=")[2] if word.startswith("-") else word
        if path and not _TEXT.search(path):
            yield path


def _script(words: tuple[str, ...]) -> str | None:
    """Return the file that *words* run, if any: the program itself by its path, or the script of an interpreter."""
    if not words:
        return None
    name = posixpath.basename(words[0])
    if name in _STARTERS or (name in _ALSO_STARTING and words[1:2] == ("run",)):
        started = _operands_of(words[1:])
        while started and started[0] in _STARTING:
            started = _operands_of(started[1:])
        # A script by its name alone, as `deno run a.ts` has it.
        return _script(started) or (started[0] if started else None)
    if not _INTERPRETER.match(name):
        return words[0] if "/" in words[0] else None
    operands = _operands_of(words[1:])
    options = (f"{name} {option}" for option in words[1 : len(words) - len(operands)])
    return None if any(map(_INLINE.fullmatch, options)) else next(iter(operands), None)


def _operands_of(words: tuple[str, ...]) -> tuple[str, ...]:
    """*words* from the first one on that is neither an option nor its value."""
    index = 0
    while index < len(words) and words[index].startswith("-"):
        if words[index] == "--":
            return words[index + 1 :]
        index += 2 if words[index] in _VALUED else 1
    return words[index:]


class _ReadingProgram(Struct, frozen=True):
    """A program that shows files, and its options with a value: short ones by letters, long ones by names."""

    valued: str = ""
    valued_long: tuple[str, ...] = ()
    # The options that give the pattern or script that is otherwise the first operand.
    scripts: frozenset[str] = frozenset()
    # Takes folders as well as files.
    searches: bool = False


_LONG_SEARCH = ("--after-context", "--before-context", "--context", "--max-count", "--glob", "--type", "--type-not")
_SEARCH = ("--regexp", "--file", "--include", "--exclude", "--exclude-dir", *_LONG_SEARCH)
_PATTERN = frozenset(("-e", "-f", "--regexp", "--expression", "--file"))
_GREP = _ReadingProgram("efABCmdD", _SEARCH, _PATTERN)
_RECURSIVE = frozenset(("-r", "-R", "--recursive"))
_AWK = ("--field-separator", "--assign", "--file")
_READERS: dict[str, _ReadingProgram] = {
    **dict.fromkeys(("cat", "tac", "more", "batcat"), _ReadingProgram()),
    "bat": _ReadingProgram("rlHm", ("--line-range", "--language", "--style", "--theme", "--highlight-line", "--color")),
    "less": _ReadingProgram("pPtTxjDkoO"),
    "nl": _ReadingProgram("bdfhilnsvw"),
    "head": _ReadingProgram("nc", ("--lines", "--bytes")),
    "tail": _ReadingProgram("ncs", ("--lines", "--bytes", "--sleep-interval", "--pid")),
    "sed": _ReadingProgram("efl", ("--expression", "--file", "--line-length"), _PATTERN),
    **dict.fromkeys(("awk", "gawk", "mawk"), _ReadingProgram("Fvf", _AWK, _PATTERN - {"-e"})),
    **dict.fromkeys(("grep", "egrep", "fgrep", "zgrep"), _GREP),
    "rg": _ReadingProgram("efABCmgtTMjEr", (*_SEARCH, "--replace", "--max-columns"), _PATTERN, searches=True),
}
# Most lines name none of these programs, and most of the others are one of them with plain words.
_MAY_READ = re.compile(rf"\b(?:{'|'.join(_READERS)})\b")
_PLAIN = re.compile(rf"(?:{'|'.join(_READERS)})(?: [\w./:@%+,=-]+)+", re.ASCII)
_NOT_A_PATH = re.compile(r"[*?`(){}\[\]<>|\n]|^-$")
_LONGEST_REMEMBERED = 400
# A search that finds nothing looked all the same.
_FOUND_NOTHING = 1


def shell_reads(line: str, exit_code: int | None = None, cwd: str = "") -> tuple[str, ...]:
    """Return the files that a command line shows in *cwd*, each once; a single command that failed shows none."""
    if not _MAY_READ.search(line):
        return ()
    is_short = len(line) <= _LONGEST_REMEMBERED
    paths = _remembered(line, exit_code) if is_short else tuple(_paths_read(line, exit_code))
    return tuple(joined(cwd, path) for path in paths) if cwd else paths


@lru_cache(maxsize=1024)
def _remembered(line: str, exit_code: int | None) -> tuple[str, ...]:
    return tuple(_paths_read(line, exit_code))


def _paths_read(line: str, exit_code: int | None) -> Iterator[str]:
    commands = _commands(line)
    if len(commands) == 1 and exit_code and not (_searches(commands[0]) and exit_code == _FOUND_NOTHING):
        return
    paths: set[str] = set()
    for command, folder in followed(commands):
        for operand in _operands(command):
            path = joined(folder, operand)
            if path not in paths and _is_path(path):
                paths.add(path)
                yield path


def _commands(line: str) -> tuple[SimpleCommand, ...]:
    """The commands of a line; to read it as a shell does takes longer than all else that a call needs."""
    if _PLAIN.fullmatch(line):
        name, *words = line.split(" ")
        return (SimpleCommand(raw=line, executable=name, words=tuple(words)),)
    return read_command(line)


def _searches(command: SimpleCommand) -> bool:
    return _READERS.get(command.name) is _GREP or command.name == "rg"


def _is_path(path: str) -> bool:
    """Return whether it is clear which file is meant: a variable or home may only come first."""
    front, _, remainder = path.partition("/")
    unclear = _NOT_A_PATH.search(path) or "$" in remainder or (not remainder and front.startswith(("$", "~")))
    return not unclear and not path.startswith("/dev/")


def _operands(command: SimpleCommand) -> Iterator[str]:
    """Yield the files among the words of a program that shows files."""
    reader = _READERS.get(command.name)
    if reader is None or _edits_or_lists(command):
        return
    options, operands = split_options(command.words, reader.valued, reader.valued_long, mixed=True)
    files = operands if options & reader.scripts or not reader.scripts else operands[1:]
    many = reader.searches or (reader is _GREP and bool(options & _RECURSIVE))
    # Where folders are searched too, only a name with an ending is taken for a file.
    yield from (file for file in files if not many or "." in posixpath.basename(file).lstrip("."))
    yield from (turn[1:] for turn in command.redirections if re.match(r"<[^<&(>]", turn))


def _edits_or_lists(command: SimpleCommand) -> bool:
    """`sed -i` writes, and `rg --files` only lists."""
    if command.name == "sed":
        return any(word.startswith(("-i", "--in-place")) for word in command.words)
    return command.name == "rg" and "--files" in command.words


_SHELLS = re.compile(r"(?:\S*/)?(?:ba|z|da|k|)sh$")
_WRAPPED = re.compile(r"\S*sh -[a-z]*c ")
# Nearly all of them; a word with quotes in its quotes takes longer to read.
_PLAINLY_WRAPPED = re.compile(r"(?:\S*/)?(?:ba|z|da|k|)sh -[a-z]*c (?:'([^']*)'|\"([^\"\\$`]*)\"|(\w+))")
_SCRIPT_OPTION = re.compile(r"-[a-z]*c$")


def command_line(words: list[str]) -> str:
    """Return the line that *words* run: the script itself if they are a shell with one."""
    if len(words) == len(("sh", "-c", "script")) and _SHELLS.match(words[0]) and _SCRIPT_OPTION.match(words[1]):
        return words[2]
    return shlex.join(words)


def unwrapped(command: str) -> str:
    """Return the script of a line that is only a shell with a script, as some programs wrap every command."""
    if not _WRAPPED.match(command):
        return command
    plain = _PLAINLY_WRAPPED.fullmatch(command)
    if plain:
        return plain[1] or plain[2] or plain[3] or ""
    try:
        return command_line(shlex.split(command))
    except ValueError:
        return command
