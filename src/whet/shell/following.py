"""Where commands run: `cd` followed from command to command, each subshell for itself."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from whet.shell.simple import SimpleCommand
from whet.shell.words import Scope


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
