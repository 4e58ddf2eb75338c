"""The home of an attempt: what an agent shall find there, and what is taken from it afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from whet.agents.base import AgentCommand
from whet.errors import WorkspaceError
from whet.mask import secrets_in

_LARGEST = 16 * 1024 * 1024
_LARGEST_LOGIN = 1024 * 1024


def furnish(home: Path, asked: AgentCommand) -> None:
    """Put settings, credentials and skills into *home*; it is deleted after the attempt, with whatever is in it."""
    try:
        for name, data in asked.home_files.items():
            _below(home, name).write_bytes(data)
        for name, source in asked.home_copies.items():
            target = _below(home, name)
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
            else:
                shutil.copyfile(source, target)
                # Nobody else's to read. The agent may write it: some renew their login, and fail where they cannot.
                target.chmod(0o600)
    except OSError as error:
        raise WorkspaceError(f"the home of the agent cannot be made ready: {error}") from error


def login_secrets(asked: AgentCommand) -> tuple[str, ...]:
    """What is secret in the files that log an agent in: it could print them."""
    files = [path for path in (*asked.home_copies.values(), *asked.readable) if path.is_file()]
    return tuple(value for path in files for value in secrets_in(_content(path)))


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST_LOGIN)
    except OSError:
        return b""


def _below(home: Path, name: str) -> Path:
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def collected(home: Path, names: Iterable[str]) -> dict[str, bytes]:
    """The files that an agent left in its home and its adapter asked for; one that is not there is left out."""
    found: dict[str, bytes] = {}
    for name in names:
        path = home / name
        # Whatever the agent made of it, it must not end the attempt.
        with suppress(OSError):
            if path.is_file() and not path.is_symlink() and path.stat().st_size <= _LARGEST:
                found[name] = path.read_bytes()
    return found
