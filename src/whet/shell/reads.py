"""What a shell command of an agent reads: the files that `cat`, `sed -n`, `head`, `rg` and their like are given."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from whet.shell.following import followed, joined
from whet.shell.reading import read_command
from whet.shell.simple import SimpleCommand


@dataclass(frozen=True, slots=True)
class _Reader:
    """A program that shows files: its options with a value, and whether its first operand is a pattern or a script."""

    valued: str = ""
    valued_long: tuple[str, ...] = ()
    # The options that give the pattern or script, so that every operand is a file.
    script: str = ""
    has_script: bool = False
    # Takes folders as well as files.
    searches: bool = False


_LONG_SEARCH = ("--after-context", "--before-context", "--context", "--max-count", "--glob", "--type", "--type-not")
_SEARCH = ("--regexp", "--file", "--include", "--exclude", "--exclude-dir", *_LONG_SEARCH)
_GREP = _Reader("efABCmdD", _SEARCH, "ef", has_script=True)
_READERS: dict[str, _Reader] = {
    **dict.fromkeys(("cat", "tac", "more", "batcat"), _Reader()),
    "bat": _Reader("rlHm", ("--line-range", "--language", "--style", "--theme", "--highlight-line", "--color")),
    "less": _Reader("pPtTxjDkoO"),
    "nl": _Reader("bdfhilnsvw"),
    "head": _Reader("nc", ("--lines", "--bytes")),
    "tail": _Reader("ncs", ("--lines", "--bytes", "--sleep-interval", "--pid")),
    "sed": _Reader("efl", ("--expression", "--file", "--line-length"), "ef", has_script=True),
    **dict.fromkeys(("awk", "gawk", "mawk"), _Reader("Fvf", ("--field-separator", "--assign", "--file"), "f", True)),
    **dict.fromkeys(("grep", "egrep", "fgrep", "zgrep"), _GREP),
    "rg": _Reader("efABCmgtTMjEr", (*_SEARCH, "--replace", "--max-columns"), "ef", has_script=True, searches=True),
}
# Most lines name none of these programs, and most of the others are one of them with plain words.
_MAY_READ = re.compile(rf"\b(?:{'|'.join(_READERS)})\b")
_PLAIN = re.compile(rf"(?:{'|'.join(_READERS)})(?: [\w./:@%+,=-]+)+", re.ASCII)
_NOT_A_PATH = re.compile(r"[*?`(){}\[\]<>|\n]|^-$")
_LONGEST_REMEMBERED = 400
# A search that finds nothing looked all the same.
_FOUND_NOTHING = 1


def shell_reads(line: str, exit_code: int | None = None) -> tuple[str, ...]:
    """The files that a command line shows, each once; a lone command that failed showed none."""
    if not _MAY_READ.search(line):
        return ()
    return _remembered(line, exit_code) if len(line) <= _LONGEST_REMEMBERED else tuple(_shown(line, exit_code))


@lru_cache(maxsize=1024)
def _remembered(line: str, exit_code: int | None) -> tuple[str, ...]:
    return tuple(_shown(line, exit_code))


def _shown(line: str, exit_code: int | None) -> Iterator[str]:
    commands = _commands(line)
    if len(commands) == 1 and exit_code and not (_searches(commands[0]) and exit_code == _FOUND_NOTHING):
        return
    seen: set[str] = set()
    for command, folder in followed(commands):
        for operand in _operands(command):
            path = joined(folder, operand)
            if path not in seen and _is_path(path):
                seen.add(path)
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
    """Whether it is clear what file is meant: a variable or home may stand in front only."""
    front, _, rest = path.partition("/")
    unclear = _NOT_A_PATH.search(path) or "$" in rest or (not rest and front.startswith(("$", "~")))
    return not unclear and not path.startswith("/dev/")


def _operands(command: SimpleCommand) -> Iterator[str]:
    """The files among the words of a program that shows files."""
    reader = _READERS.get(command.name)
    if reader is None or _edits_or_lists(command):
        return
    found, script_given = _split(reader, command.words)
    files = found if script_given or not reader.has_script else found[1:]
    many = reader.searches or (reader is _GREP and _has_letter(command.words, "rR"))
    # Where folders are searched too, only a name with an ending is taken for a file.
    yield from (file for file in files if not many or "." in posixpath.basename(file).lstrip("."))
    yield from (turn[1:] for turn in command.redirections if re.match(r"<[^<&(>]", turn))


def _edits_or_lists(command: SimpleCommand) -> bool:
    """`sed -i` writes, and `rg --files` only lists."""
    if command.name == "sed":
        return any(word.startswith(("-i", "--in-place")) for word in command.words)
    return command.name == "rg" and "--files" in command.words


def _has_letter(words: tuple[str, ...], letters: str) -> bool:
    short = (word for word in words if word.startswith("-") and not word.startswith("--"))
    return "--recursive" in words or any(letter in word for word in short for letter in letters)


def _split(reader: _Reader, words: tuple[str, ...]) -> tuple[list[str], bool]:
    """The operands, and whether an option gave the pattern or script."""
    operands: list[str] = []
    script_given = skip = False
    for index, word in enumerate(words):
        if skip:
            skip = False
        elif word == "--":
            return operands + list(words[index + 1 :]), script_given
        elif word.startswith("--"):
            name, has_value, _ = word.partition("=")
            skip = not has_value and name in reader.valued_long
            script_given = script_given or (reader.has_script and name in ("--regexp", "--expression", "--file"))
        elif word.startswith("-") and word != "-":
            at = next((at for at, letter in enumerate(word) if letter in reader.valued), None)
            skip = at is not None and at == len(word) - 1
            script_given = script_given or (at is not None and word[at] in reader.script)
        elif not word.startswith("+"):
            operands.append(word)
    return operands, script_given


_SHELLS = re.compile(r"(?:\S*/)?(?:ba|z|da|k|)sh$")
_WRAPPED = re.compile(r"\S*sh -[a-z]*c ")
# Nearly all of them; a word with quotes in its quotes takes longer to read.
_PLAINLY_WRAPPED = re.compile(r"(?:\S*/)?(?:ba|z|da|k|)sh -[a-z]*c (?:'([^']*)'|\"([^\"\\$`]*)\"|(\w+))")
_SCRIPT_OPTION = re.compile(r"-[a-z]*c$")


def command_line(words: list[str]) -> str:
    """The line that *words* run: the script itself where they are a shell with one."""
    if len(words) == len(("sh", "-c", "script")) and _SHELLS.match(words[0]) and _SCRIPT_OPTION.match(words[1]):
        return words[2]
    return shlex.join(words)


def unwrapped(command: str) -> str:
    """The script of a line that is nothing but a shell with a script, as some programs put around every command."""
    if not _WRAPPED.match(command):
        return command
    plain = _PLAINLY_WRAPPED.fullmatch(command)
    if plain:
        return plain[1] or plain[2] or plain[3] or ""
    try:
        return command_line(shlex.split(command))
    except ValueError:
        return command
