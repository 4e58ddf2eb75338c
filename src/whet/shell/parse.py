"""Read a shell line: every simple command in it, also those that `sudo`, `env`, `xargs` or `bash -lc` carry."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from whet.shell._arguments import SimpleCommand, split_options
from whet.shell._lines import Draft, scan
from whet.shell._words import MAX_DEPTH, Scope

# More than the commands of a long session; one entry is about as large as its line.
_REMEMBERED = 16_384
# A line that is longer is read anew each time rather than kept.
_LONGEST_REMEMBERED = 32_768
_MOST_WRAPPERS = 32
_NESTED_FREE = 20_000
_NESTED_SHARE = 3


class _CommandBudget:
    """How much nested text may still be read: nested substitutions and scripts double at every level."""

    def __init__(self, line: str) -> None:
        self.left = _NESTED_FREE + _NESTED_SHARE * len(line)

    def allows(self, text: str) -> bool:
        """Return whether *text* may be read, and charge for it."""
        # Even an empty text costs something.
        cost = len(text) + 1
        if cost > self.left:
            return False
        self.left -= cost
        return True


class _Payload(Struct, frozen=True, kw_only=True):
    """What a wrapper runs: further words, or a script to be read."""

    label: str
    words: tuple[str, ...] = ()
    script: str | None = None
    env: tuple[tuple[str, str], ...] = ()


class _Surroundings(Struct, frozen=True):
    """What the commands of a script get from their shell."""

    budget: _CommandBudget
    env: tuple[tuple[str, str], ...] = ()
    wrappers: tuple[str, ...] = ()
    carriers: tuple[SimpleCommand, ...] = ()


def read_command(line: str) -> tuple[SimpleCommand, ...]:
    """Return every simple command of *line* in the order in which they begin, out of nested shells and wrappers."""
    foreign: object = line
    if not isinstance(foreign, str):
        raise TypeError(f"a command is read from a string, not from a {type(line).__name__}")
    return _remembered(line) if len(line) <= _LONGEST_REMEMBERED else _read_line(line)


@lru_cache(maxsize=_REMEMBERED)
def _remembered(line: str) -> tuple[SimpleCommand, ...]:
    return _read_line(line)


def _read_line(line: str) -> tuple[SimpleCommand, ...]:
    return tuple(_read(line, 0, _Surroundings(_CommandBudget(line))))


def _read(
    text: str, depth: int, around: _Surroundings, *, is_document: bool = False, scope: Scope = ()
) -> Iterator[SimpleCommand]:
    for item in scan(text, depth, is_document=is_document, scope=scope):
        if isinstance(item, Draft):
            yield from _unwrap_all(item, around)
        elif item.depth <= MAX_DEPTH and around.budget.allows(item.text):
            yield from _read(item.text, item.depth, around, is_document=item.is_document, scope=item.scope)


def _unwrap_all(draft: Draft, around: _Surroundings) -> Iterator[SimpleCommand]:
    """Yield the command of *draft* without its wrappers, or those of the script that it carries."""
    command = SimpleCommand(
        raw=draft.raw,
        executable=draft.words[0],
        words=tuple(draft.words[1:]),
        env=(*around.env, *draft.env),
        redirections=tuple(draft.redirections),
        wrappers=around.wrappers,
        depth=draft.depth,
        scope=draft.scope,
        carriers=around.carriers,
    )
    for _ in range(_MOST_WRAPPERS):
        payload = _unwrap(command.name, (command.executable, *command.words))
        if payload is None:
            break
        if payload.script is not None:
            yield from _script(command, payload, around.budget, draft.start) or (command,)
            return
        command = replace(
            command,
            executable=payload.words[0],
            words=payload.words[1:],
            env=command.env + payload.env,
            wrappers=(*command.wrappers, payload.label),
            carriers=(*command.carriers, command),
        )
    if draft.documents and _reads_input(command.name, (command.executable, *command.words)):
        payload = _Payload(label=command.executable, script=draft.documents[-1])
        yield from _script(command, payload, around.budget, draft.start) or (command,)
        return
    yield command


def _script(command: SimpleCommand, payload: _Payload, budget: _CommandBudget, start: int) -> tuple[SimpleCommand, ...]:
    """Return the commands of a script; none if it is empty, too deep or too long."""
    if command.depth >= MAX_DEPTH or payload.script is None or not budget.allows(payload.script):
        return ()
    # The shell itself is not a carrier: many agents wrap every line in one.
    around = _Surroundings(budget, command.env, (*command.wrappers, payload.label), command.carriers)
    # Only `eval` runs its script in the current shell.
    scope = command.scope if command.name == "eval" else (*command.scope, start)
    return tuple(_read(payload.script, command.depth + 1, around, scope=scope))


class _ShellFolder(NamedTuple):
    """The folder of a shell, and the one before, to which `cd -` goes back."""

    folder: str
    before: str


def followed(commands: Iterable[SimpleCommand], folder: str = "") -> Iterator[tuple[SimpleCommand, str]]:
    """Yield each command with the folder that it runs in; a `cd` in a subshell counts there only."""
    places: dict[Scope, _ShellFolder] = {(): _ShellFolder(folder, folder)}
    for command in commands:
        scope = command.scope
        while scope not in places:
            scope = scope[:-1]
        place = places[scope]
        yield command, place.folder
        places[command.scope] = _moved(command, place)


def folder_after(commands: Iterable[SimpleCommand], folder: str = "") -> str:
    """Return the folder of the shell after all of *commands*."""
    last = SimpleCommand(raw="pwd", executable="pwd")
    *_, (_, last_folder) = followed((*commands, last), folder)
    return last_folder


def joined(folder: str, path: str) -> str:
    """Return *path* as seen from *folder*; one that begins with a home or a variable stays as it is."""
    if not folder or path.startswith(("/", "~", "$")):
        return path
    full_path = posixpath.join(folder, path)
    front, _, remainder = full_path.partition("/") if full_path.startswith(("~", "$")) else ("", "", full_path)
    normal_path = posixpath.normpath(remainder) if remainder else ""
    if front and (not remainder or normal_path.startswith("..")):
        return full_path
    inside = f"{front}/{normal_path}" if normal_path != "." else front
    return inside if front else normal_path


def _moved(command: SimpleCommand, here: _ShellFolder) -> _ShellFolder:
    """Return the folder of the shell after *command*."""
    if command.name == "popd":
        return _ShellFolder(here.before, here.folder)
    if command.name not in ("cd", "pushd"):
        return here
    target = next((word for word in command.words if word == "-" or not word.startswith("-")), "~")
    return _ShellFolder(here.before if target == "-" else joined(here.folder, target), here.folder)


class _Wrapper(Struct, frozen=True):
    """How to separate the words of a wrapper from those that it runs."""

    # The options with a value: short ones by their letters, long ones by their names.
    valued: str = ""
    valued_long: tuple[str, ...] = ()
    # The options with which it runs nothing.
    stops: frozenset[str] = frozenset()
    operands: int = 0
    assigns: bool = False


_STOPS_LONG = frozenset(("--edit", "--help", "--list", "--remove-timestamp", "--validate", "--version"))
_SUDO_VALUED = (
    *("--chdir", "--chroot", "--close-from", "--command-timeout", "--group", "--host"),
    *("--other-user", "--prompt", "--role", "--type", "--user"),
)
_XARGS_VALUED = ("--arg-file", "--delimiter", "--max-args", "--max-chars", "--max-procs", "--process-slot-var")
_PREFIXES = {
    **dict.fromkeys(("builtin", "nohup", "setsid"), _Wrapper()),
    "command": _Wrapper(stops=frozenset(("-v", "-V"))),
    "doas": _Wrapper("Cu", stops=frozenset(("-L",))),
    "env": _Wrapper("uC", ("--unset", "--chdir"), assigns=True),
    "exec": _Wrapper("a"),
    "ionice": _Wrapper("cn", ("--class", "--classdata"), stops=frozenset(("-p", "-P", "-u"))),
    "nice": _Wrapper("n", ("--adjustment",)),
    "stdbuf": _Wrapper("ioe", ("--input", "--output", "--error")),
    "sudo": _Wrapper("CDghpRrTtUu", _SUDO_VALUED, stops=frozenset(("-e", "-l", "-v", "-V", "-K")), assigns=True),
    "time": _Wrapper("fo", ("--format", "--output")),
    "timeout": _Wrapper("ks", ("--kill-after", "--signal"), operands=1),
    "xargs": _Wrapper("adEILnPs", _XARGS_VALUED),
}
SHELLS = frozenset(("ash", "bash", "dash", "fish", "ksh", "mksh", "sh", "zsh"))
_SHELL_VALUED = frozenset(("--rcfile", "--init-file"))
_FISH_VALUED = "CDdfop"
_SPLIT = re.compile(r"(?:-[0iv]*S|--split-string(?:=|$))(.*)", re.DOTALL)


def _unwrap(name: str, words: tuple[str, ...]) -> _Payload | None:
    """Return what the command *name* with these *words* (its executable first) carries; None if it carries nothing."""
    if name in SHELLS:
        return _unwrap_fish(words) if name == "fish" else _unwrap_shell(words)
    if name == "eval":
        return _Payload(label=words[0], script=" ".join(words[1:])) if len(words) > 1 else None
    wrapper = _PREFIXES.get(name)
    if wrapper is None:
        return None
    return _unwrap_prefix(_split_env(words) if name == "env" else words, wrapper)


def _reads_input(name: str, words: tuple[str, ...]) -> bool:
    """Return whether this is a shell that reads its commands from its input."""
    if name not in SHELLS:
        return False
    index, _ = _shell_options(words)
    return index >= len(words) or any(word == "-s" for word in words[1:index])


def _unwrap_prefix(words: tuple[str, ...], wrapper: _Wrapper) -> _Payload | None:
    options, operands = split_options(words[1:], wrapper.valued, wrapper.valued_long, mixed=False)
    if options & (wrapper.stops | _STOPS_LONG):
        return None
    label = words[: len(words) - len(operands)]
    env: list[tuple[str, str]] = []
    while wrapper.assigns and operands and "=" in operands[0][1:]:
        name, _, value = operands[0].partition("=")
        env.append((name, value))
        operands = operands[1:]
    inner_words = operands[wrapper.operands :]
    if not inner_words:
        return None
    return _Payload(label=" ".join((*label, *operands[: wrapper.operands])), words=inner_words, env=tuple(env))


def _split_env(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of `env`, with the string of -S split."""
    for index, word in enumerate(words[1:], start=1):
        if not word.startswith("-"):
            break
        if match := _SPLIT.fullmatch(word):
            is_attached = bool(match[1]) or word.endswith("=")
            string, after = (match[1], index + 1) if is_attached else ("".join(words[index + 1 : index + 2]), index + 2)
            return (*words[:index], *_split(string), *words[after:])
    return words


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _unwrap_shell(words: tuple[str, ...]) -> _Payload | None:
    index, has_script = _shell_options(words)
    if not has_script or index >= len(words):
        return None
    label = tuple(word for word in words[:index] if word != "--")
    return _Payload(label=" ".join(label), script=words[index])


def _shell_options(words: tuple[str, ...]) -> tuple[int, bool]:
    """Return where a shell's operands begin, and whether -c is among its options."""
    index, has_script = 1, False
    while index < len(words) and words[index][:1] in ("-", "+"):
        word = words[index]
        index += 1
        if word in ("-", "--"):
            break
        if word.startswith("--"):
            index += word in _SHELL_VALUED
            continue
        has_script = has_script or (word[0] == "-" and "c" in word)
        index += sum(letter in "oO" for letter in word[1:])
    return index, has_script


def _unwrap_fish(words: tuple[str, ...]) -> _Payload | None:
    index = 1
    while index < len(words) and words[index].startswith("-") and words[index] != "--":
        word = words[index]
        index += 1
        if word.startswith("--command="):
            return _Payload(label=f"{words[0]} --command", script=word.partition("=")[2])
        if word == "--command":
            place = len(word)
        elif not word.startswith("--"):
            place = word.find("c")
        else:
            place = -1
        if place < 0:
            index += word[1:] in tuple(_FISH_VALUED)
            continue
        script = word[place + 1 :] or "".join(words[index : index + 1])
        return _Payload(label=" ".join((*words[: index - 1], word[: place + 1])), script=script) if script else None
    return None
