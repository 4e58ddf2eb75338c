"""Finding the program of a command, as the system would when it starts it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from whet.errors import AgentNotFound, AgentNotStarted
from whet.sandbox.base import Command


def find_program(command: Command) -> str:
    """The full path of the program, looked up as the command itself would be."""
    name = command.argv[0]
    if os.sep in name:
        found = str(command.cwd / name) if is_there(command.cwd / name) else None
    else:
        found = shutil.which(name, path=command.env.get("PATH", os.defpath))
    if found is None:
        raise AgentNotFound(f'there is no program "{name}"', hint="install it, or correct `command` of this runner")
    if not os.access(found, os.X_OK):
        raise AgentNotStarted(f'"{name}" cannot be executed: Permission denied')
    return found


def is_there(path: Path) -> bool:
    """Whether there is something at *path* that we can get to; what cannot be a path is not there either."""
    try:
        path.stat()
    except (OSError, ValueError):
        return False
    return True
