"""The home of an attempt: what an agent shall find there, and what is taken from it afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from whet.agents.base import AgentCommand
from whet.errors import WorkspaceError

_LARGEST = 16 * 1024 * 1024


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
                target.chmod(0o400)
    except OSError as error:
        raise WorkspaceError(f"the home of the agent cannot be made ready: {error}") from error


def _below(home: Path, name: str) -> Path:
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def collected(home: Path, names: Iterable[str]) -> dict[str, bytes]:
    """The files that an agent left in its home and its adapter asked for; one that is not there is left out."""
    found: dict[str, bytes] = {}
    for name in names:
        path = home / name
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= _LARGEST:
            found[name] = path.read_bytes()
    return found
