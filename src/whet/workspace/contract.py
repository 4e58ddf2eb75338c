"""The contract of a workspace, and the two that are plain folders: one for a single attempt, and a shared one."""

from __future__ import annotations

import errno
import math
import stat
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Literal

from whet.errors import WorkspaceError
from whet.model.grade import Changes
from whet.model.suite import MOST_FILES
from whet.workspace._diff import (
    FileState,
    FileVersion,
    Inventory,
    TooManyFiles,
    alike,
    compare,
    describe_changes,
    take_inventory,
)
from whet.workspace.copy import copy_some, copy_tree, make_presentable, remove_tree
from whet.workspace.walk import DirectoryWalk, Folders, Tree, explained, grant, is_empty

Method = Literal["empty", "overlay", "copy", "given"]
# The longest clock tick of the kernel: two changes within one may have the same times.
_TICK_NS = 10_000_000


class Workspace(ABC):
    """A folder in which an agent works."""

    path: Path
    method: Method
    # How many files an agent may add; whet looks at no more, and does not keep them.
    most_files: int = MOST_FILES
    _overfull = False

    def refuse_overfull(self) -> WorkspaceError:
        """Return the error for a folder with too many new files, and keep it no more."""
        self._overfull = True
        return WorkspaceError(
            f"there are more than {self.most_files:,} new files in the workspace",
            hint="defaults.max_files says how many there may be",
        )

    @abstractmethod
    def mark(self) -> None:
        """Note the current state: every later change is the agent's."""

    @property
    def untouched(self) -> bool:
        """Whether a quick look shows that there are no changes."""
        return False

    @abstractmethod
    def changes(self) -> Changes:
        """Return what was created, modified and deleted since the mark."""

    @abstractmethod
    def keep(self, destination: Path) -> None:
        """Move the folder to *destination*, for a person to look at."""

    @abstractmethod
    def remove(self) -> list[str]:
        """Delete the folder; return a sentence for each thing that could not be deleted."""


class SharedWorkspace(Workspace):
    """A folder that all attempts use in turn; keeps no old contents, and ignores whet's *own* folders."""

    def __init__(self, path: Path, *, method: Method, own: Folders = frozenset()) -> None:
        self.path = path
        self.method = method
        self._given = method == "given"
        self._own = own
        self._old = Inventory()

    def mark(self) -> None:
        """Note the current state."""
        with explained("cannot mark workspace", self.path):
            self._old = self._inventory()

    def changes(self) -> Changes:
        """Compare stat results."""
        with explained("cannot compare workspace", self.path):
            try:
                new = self._inventory(most=len(self._old.files) + self.most_files)
            except FileNotFoundError:
                # The agent deleted its own folder, and so everything in it.
                new = Inventory()
            except TooManyFiles:
                raise self.refuse_overfull() from None
            here = Tree(self.path, follow=self._given)
            differences = compare(self._old, new, lambda path, was, now: self._is_same(path, was, now, here))
            return describe_changes(differences, self._old, new, before=self._before, after=here)

    def keep(self, destination: Path) -> None:
        """Move the folder to *destination*, without sockets, fifos and devices; copy it if the user named it."""
        if self._overfull:
            raise self.refuse_overfull()
        if not self._given:
            with explained("cannot keep workspace", self.path):
                _check_is_folder(self.path)
        with explained("cannot keep workspace", destination):
            if self._given:
                destination.mkdir(parents=True)
                copy_tree(self.path, destination, own=self._own)
            else:
                _move(self.path, destination)

    def remove(self) -> list[str]:
        """Delete the folder, unless the user named it."""
        return [] if self._given else remove_tree(self.path)

    def _inventory(self, most: float = math.inf) -> Inventory:
        with DirectoryWalk(self.path, follow=self._given, force=not self._given) as place:
            return take_inventory(place, own=self._own, most=most)

    def _is_same(self, path: str, old: FileState, new: FileState, here: Tree) -> bool:
        """Return whether the file at *path*, which *here* contains, has not changed."""
        del path, here
        return old == new

    def _before(self, path: str) -> Tree | None:
        """Return the tree with the old content of the file at *path*."""
        del path
        return None


class FolderWorkspace(SharedWorkspace):
    """A folder for one attempt, created at *path*: empty, or a copy of *template*. It can compare contents."""

    def __init__(self, path: Path, template: Path | None, *, own: Folders = frozenset()) -> None:
        super().__init__(path, method="empty" if template is None else "copy")
        self._side = path.with_name(path.name + ".d")
        self._template = None if template is None else Tree(template, follow=True)
        self._kept: Tree | None = None
        self._kept_paths: frozenset[str] = frozenset()
        self._marked_ns = 0
        with explained("cannot make workspace", path):
            path.mkdir()
            try:
                if template is not None:
                    self._old = copy_tree(template, path, own=own)
                    path.chmod(stat.S_IMODE(template.stat().st_mode) | stat.S_IRWXU)
            except (OSError, WorkspaceError):
                # Free the disk again, which may be full because of the copy.
                remove_tree(path)
                raise
        self._made = self._old

    def mark(self) -> None:
        """Note the current state, and keep a copy of what a bootstrap command wrote to compare with."""
        if self.untouched:
            # As it was made.
            return
        with explained("cannot mark workspace", self.path):
            now = self._inventory()
            differences = compare(self._made, now, lambda _, old, new: old == new)
            changed = frozenset((*differences.created, *differences.modified))
            if changed:
                remove_tree(self._side)
                self._side.mkdir()
                self._kept = Tree(self._side)
                copy_some(self.path, self._side, changed.__contains__)
            self._kept_paths = changed
            self._old = now
            self._marked_ns = time.time_ns()

    @property
    def untouched(self) -> bool:
        """Whether it was empty at the mark and still is."""
        with suppress(OSError):
            return self.method == "empty" and not self._old.files and is_empty(self.path)
        return False

    def keep(self, destination: Path) -> None:
        """Move the folder to *destination*, without sockets, fifos and devices."""
        super().keep(destination)
        self.remove()

    def remove(self) -> list[str]:
        """Delete the folder."""
        with suppress(OSError):
            # Most often it is empty.
            self.path.rmdir()
            return remove_tree(self._side) if self._kept else []
        return super().remove() + (remove_tree(self._side) if self._kept else [])

    def _is_same(self, path: str, old: FileState, new: FileState, here: Tree) -> bool:
        if old == new and old.ctime_ns < self._marked_ns - _TICK_NS:
            return True
        return alike(path, FileVersion(old, self._before(path)), FileVersion(new, here))

    def _before(self, path: str) -> Tree | None:
        return self._kept if path in self._kept_paths else self._template


def _check_is_folder(path: Path) -> None:
    mode = path.lstat().st_mode
    if not stat.S_ISDIR(mode):
        raise WorkspaceError(
            f"cannot keep workspace: {path}: the agent replaced the folder with something else",
            hint="look at the session to see what it ran",
        )


def _move(path: Path, destination: Path) -> None:
    destination.parent.mkdir(parents=True, exist_ok=True)
    try:
        # Moving a folder writes its `..` entry, and a person should be able to open it.
        grant(str(path), stat.S_IRWXU)
        path.rename(destination)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        destination.mkdir()
        copy_tree(path, destination, force=True)
        remove_tree(path)
    else:
        make_presentable(destination)
