"""The contract of a workspace, and the two that are plain folders: one for a single attempt, and a shared one."""

from __future__ import annotations

import errno
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from whet.errors import WorkspaceError
from whet.ground.copying import copy_some, copy_tree, make_presentable, remove_tree
from whet.ground.diff import Entry, Inventory, Version, alike, compare, describe_changes, take_inventory
from whet.ground.tree import Descent, Folders, Tree, explained, grant, is_empty
from whet.model.grade import Changes

Method = Literal["empty", "overlay", "copy", "given"]
# The longest clock tick of the kernel: two changes within one may have the same times.
_TICK_NS = 10_000_000


class Workspace(ABC):
    """A folder in which an agent works."""

    path: Path
    method: Method

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


class FolderWorkspace(Workspace):
    """A folder for one attempt, created at *path*: empty, or a copy of *template*."""

    def __init__(self, path: Path, template: Path | None, *, own: Folders = frozenset()) -> None:
        self.path = path
        self.method: Method = "empty" if template is None else "copy"
        self._side = path.with_name(path.name + ".d")
        self._template = None if template is None else Tree(template, follow=True)
        self._kept: Tree | None = None
        self._kept_paths: frozenset[str] = frozenset()
        self._marked_ns = 0
        self._made = Inventory()
        with explained("cannot make workspace", path):
            path.mkdir()
            if template is not None:
                self._made = copy_tree(template, path, own=own)
                path.chmod(stat.S_IMODE(template.stat().st_mode) | stat.S_IRWXU)
        self._old = self._made

    def mark(self) -> None:
        """Note the current state, and keep a copy of what a bootstrap command wrote to compare with."""
        with explained("cannot mark workspace", self.path):
            now = _inventory(self.path)
            found = compare(self._made, now, _unchanged)
            changed = frozenset((*found.created, *found.modified))
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

    def changes(self) -> Changes:
        """Compare stat results, and contents if those do not decide."""
        with explained("cannot compare workspace", self.path):
            new = _inventory_if_there(self.path)
            if not new.files and not self._old.files and not new.unread:
                return Changes()
            here = Tree(self.path)
            found = compare(self._old, new, self._same_in(here))
            return describe_changes(found, self._old, new, before=self._before, after=here)

    def keep(self, destination: Path) -> None:
        """Move the folder to *destination*, without sockets, fifos and devices."""
        with explained("cannot keep workspace", self.path):
            _check_is_folder(self.path)
        with explained("cannot keep workspace", destination):
            _move(self.path, destination)
        self.remove()

    def remove(self) -> list[str]:
        """Delete the folder."""
        problems = remove_tree(self.path)
        return problems + remove_tree(self._side) if self._kept else problems

    def _before(self, path: str) -> Tree | None:
        return self._kept if path in self._kept_paths else self._template

    def _same_in(self, here: Tree) -> Callable[[str, Entry, Entry], bool]:
        fresh = self._marked_ns - _TICK_NS

        def same(path: str, old: Entry, new: Entry) -> bool:
            if old == new and old.ctime_ns < fresh:
                return True
            return alike(path, Version(old, self._before(path)), Version(new, here))

        return same


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
            self._old = _inventory(self.path, follow=self._given, force=not self._given, own=self._own)

    def changes(self) -> Changes:
        """Compare stat results."""
        with explained("cannot compare workspace", self.path):
            new = _inventory_if_there(self.path, follow=self._given, force=not self._given, own=self._own)
            found = compare(self._old, new, _unchanged)
            here = Tree(self.path, follow=self._given)
            return describe_changes(found, self._old, new, before=lambda _: None, after=here)

    def keep(self, destination: Path) -> None:
        """Move the folder to *destination*, or copy it if the user named it."""
        with explained("cannot keep workspace", destination):
            if self._given:
                destination.mkdir(parents=True)
                copy_tree(self.path, destination, own=self._own)
            else:
                _check_is_folder(self.path)
                _move(self.path, destination)

    def remove(self) -> list[str]:
        """Delete the folder, unless the user named it."""
        return [] if self._given else remove_tree(self.path)


def _inventory(path: Path, *, follow: bool = False, force: bool = True, own: Folders = frozenset()) -> Inventory:
    with Descent(path, follow=follow, force=force) as place:
        return take_inventory(place, own=own)


def _inventory_if_there(
    path: Path, *, follow: bool = False, force: bool = True, own: Folders = frozenset()
) -> Inventory:
    try:
        return _inventory(path, follow=follow, force=force, own=own)
    except FileNotFoundError:
        # The agent deleted its own folder, and so everything in it.
        return Inventory()


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


def _unchanged(_: str, old: Entry, new: Entry) -> bool:
    return old == new
