"""Putting folders into a fresh workspace, and taking others out of it, without ever leaving it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from whet.errors import WorkspaceError
from whet.model.suite import Placed
from whet.workspace.base import explained
from whet.workspace.copying import copy_tree
from whet.workspace.skill_text import MANIFEST


def place(workspace: Path, placed: Iterable[Placed]) -> None:
    """Make each path of *placed* a copy of its source, or nothing."""
    for item in placed:
        target = workspace / item.path
        with explained("cannot ready", target):
            _check_inside(workspace, target)
            _clear(target)
            if item.source is not None:
                target.mkdir(parents=True)
                copy_tree(item.source, target)


def take_out_skills(workspace: Path, names: Iterable[str]) -> None:
    """Remove each folder of a skill that has one of *names*, wherever the workspace brings it along."""
    unwanted = frozenset(names)
    for place, folders, files in os.walk(workspace):
        if MANIFEST in files and Path(place).name in unwanted and Path(place) != workspace:
            folders.clear()
            with explained("cannot ready", Path(place)):
                shutil.rmtree(place)


def _check_inside(workspace: Path, target: Path) -> None:
    """A link on the way would have us write somewhere else."""
    root, parent = os.path.realpath(workspace), os.path.realpath(target.parent)
    if os.path.commonpath((root, parent)) != root or os.path.realpath(target) == root:
        raise WorkspaceError(f"{target} does not lie inside of the workspace {workspace}")


def _clear(target: Path) -> None:
    if target.is_symlink() or target.is_file():
        target.unlink()
    elif os.path.lexists(target):
        # Not moved aside first, as what an agent leaves is: an overlay moves no folder of its template.
        shutil.rmtree(target)
