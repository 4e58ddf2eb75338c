"""Where an attempt keeps what is its own: its home and temporary folder, and its place in the record."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from whet.errors import WorkspaceError
from whet.model.run import TrialKey, folder_name

_numbers = count(1)


def make_home(scratch: Path) -> tuple[Path, Path]:
    """Make a home and a temporary folder for an agent."""
    number = next(_numbers)
    home, temporary = scratch / f"h{number}", scratch / f"t{number}"
    try:
        home.mkdir()
        temporary.mkdir()
    except OSError as error:
        raise WorkspaceError(f"cannot make a home for the agent: {error}") from error
    return home, temporary


def trial_folder(key: TrialKey) -> str:
    """Return the folder of a trial below `trials/` or `workspaces/` of the run folder."""
    return f"{folder_name(key.case)}/{folder_name(key.runner)}/{folder_name(key.arm)}/{key.number}"
