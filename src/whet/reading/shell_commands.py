"""Reading a line: every simple command in it, with what it was carried by."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from whet.dataclass import dataclass
from whet.reading.shell_lines import Draft, scan
from whet.reading.shell_simple import SimpleCommand
from whet.reading.shell_words import MAX_DEPTH, Scope
from whet.reading.shell_wrappers import Carried, reads_input, unwrap

# More than the commands of a long session; one entry is about as large as its line.
_REMEMBERED = 16_384
# A line that is longer is read anew each time rather than kept.
_LONGEST_REMEMBERED = 32_768
_MOST_WRAPPERS = 32
_NESTED_FREE = 20_000
_NESTED_SHARE = 3


class _Budget:
    """How much nested text may still be read: substitutions and scripts inside one another double at every level."""

    def __init__(self, line: str) -> None:
        self.left = _NESTED_FREE + _NESTED_SHARE * len(line)

    def allows(self, text: str) -> bool:
        """Whether *text* may be read; if so, it is paid for."""
        # Even an empty text costs something.
        cost = len(text) + 1
        if cost > self.left:
            return False
        self.left -= cost
        return True


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """What a shell hands down to the commands of its script."""

    budget: _Budget
    env: tuple[tuple[str, str], ...] = ()
    wrappers: tuple[str, ...] = ()
    carriers: tuple[SimpleCommand, ...] = ()


def read_command(line: str) -> tuple[SimpleCommand, ...]:
    """Every simple command of *line* in the order in which they begin; nested shells and wrappers are unwrapped."""
    foreign: object = line
    if not isinstance(foreign, str):
        raise TypeError(f"a command is read from a string, not from a {type(line).__name__}")
    return _remembered(line) if len(line) <= _LONGEST_REMEMBERED else _read_line(line)


@lru_cache(maxsize=_REMEMBERED)
def _remembered(line: str) -> tuple[SimpleCommand, ...]:
    return _read_line(line)


def _read_line(line: str) -> tuple[SimpleCommand, ...]:
    return tuple(_read(line, 0, _Surroundings(_Budget(line))))


def _read(
    text: str, depth: int, around: _Surroundings, *, is_document: bool = False, scope: Scope = ()
) -> Iterator[SimpleCommand]:
    for item in scan(text, depth, is_document=is_document, scope=scope):
        if isinstance(item, Draft):
            yield from _unwrapped(item, around)
        elif item.depth <= MAX_DEPTH and around.budget.allows(item.text):
            yield from _read(item.text, item.depth, around, is_document=item.is_document, scope=item.scope)


def _unwrapped(draft: Draft, around: _Surroundings) -> Iterator[SimpleCommand]:
    """The command that *draft* comes down to, or those of the script that it carries."""
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
        carried = unwrap(command.name, (command.executable, *command.words))
        if carried is None:
            break
        if carried.script is not None:
            yield from _script(command, carried, around.budget, draft.start) or (command,)
            return
        command = replace(
            command,
            executable=carried.words[0],
            words=carried.words[1:],
            env=command.env + carried.env,
            wrappers=(*command.wrappers, carried.label),
            carriers=(*command.carriers, command),
        )
    if draft.documents and reads_input(command.name, (command.executable, *command.words)):
        carried = Carried(label=command.executable, script=draft.documents[-1])
        yield from _script(command, carried, around.budget, draft.start) or (command,)
        return
    yield command


def _script(command: SimpleCommand, carried: Carried, budget: _Budget, start: int) -> tuple[SimpleCommand, ...]:
    """The commands of a script; none when it is empty, too deep or too much."""
    if command.depth >= MAX_DEPTH or carried.script is None or not budget.allows(carried.script):
        return ()
    # The shell itself is no carrier: it is how the commands were handed over, and many agents wrap every line in one.
    around = _Surroundings(budget, command.env, (*command.wrappers, carried.label), command.carriers)
    # Only `eval` runs its script in the shell that it stands in.
    scope = command.scope if command.name == "eval" else (*command.scope, start)
    return tuple(_read(carried.script, command.depth + 1, around, scope=scope))


class _Place(NamedTuple):
    """The folder of a shell, and the one before, to which `cd -` goes back."""

    folder: str
    before: str


def followed(commands: Iterable[SimpleCommand], folder: str = "") -> Iterator[tuple[SimpleCommand, str]]:
    """Each command with the folder that it runs in; a `cd` in a subshell counts in that subshell alone."""
    places: dict[Scope, _Place] = {(): _Place(folder, folder)}
    for command in commands:
        scope = command.scope
        while scope not in places:
            scope = scope[:-1]
        here = places[scope]
        yield command, here.folder
        places[command.scope] = _moved(command, here)


def folder_after(commands: Iterable[SimpleCommand], folder: str = "") -> str:
    """Where the shell is when all of *commands* are done."""
    last = SimpleCommand(raw="pwd", executable="pwd")
    *_, (_, here) = followed((*commands, last), folder)
    return here


def joined(folder: str, path: str) -> str:
    """*path* as seen from *folder*; a home or a variable in front is a place of its own."""
    if not folder or path.startswith(("/", "~", "$")):
        return path
    whole = posixpath.join(folder, path)
    front, _, rest = whole.partition("/") if whole.startswith(("~", "$")) else ("", "", whole)
    settled = posixpath.normpath(rest) if rest else ""
    if front and (not rest or settled.startswith("..")):
        return whole
    inside = f"{front}/{settled}" if settled != "." else front
    return inside if front else settled


def _moved(command: SimpleCommand, here: _Place) -> _Place:
    """Where the shell is after *command*."""
    if command.name == "popd":
        return _Place(here.before, here.folder)
    if command.name not in ("cd", "pushd"):
        return here
    target = next((word for word in command.words if word == "-" or not word.startswith("-")), "~")
    return _Place(here.before if target == "-" else joined(here.folder, target), here.folder)
