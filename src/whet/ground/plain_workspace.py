"""A workspace that is a plain folder: empty, a copy of a template, or one that was given."""

from __future__ import annotations

import errno
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from whet.errors import WorkspaceError
from whet.ground.copying import copy_some, copy_tree, make_presentable, remove_tree
from whet.ground.diff import told
from whet.ground.tree import Descent, Folders, Tree, grant, is_empty
from whet.ground.workspace import (
    Entry,
    Inventory,
    Method,
    Version,
    Workspace,
    alike,
    compare,
    explained,
    take_inventory,
)
from whet.model.grade import Changes

# A clock tick of the kernel, at its longest: what changed twice within one may bear the same times.
_TICK_NS = 10_000_000


def _unchanged(_: str, old: Entry, new: Entry) -> bool:
    return old == new


class FolderWorkspace(Workspace):
    """A folder of one attempt, made at *path* from nothing or from a copy of *template*."""

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
        """Keep a copy of what a bootstrap command wrote: it is the old side of what the agent does."""
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
        """Whether it began empty and is."""
        with suppress(OSError):
            return self.method == "empty" and not self._old.files and is_empty(self.path)
        return False

    def changes(self) -> Changes:
        """What stat tells, and content where stat cannot."""
        with explained("cannot compare workspace", self.path):
            new = _inventory_if_there(self.path)
            if not new.files and not self._old.files and not new.unread:
                return Changes()
            here = Tree(self.path)
            found = compare(self._old, new, self._same_in(here))
            return told(found, self._old, new, before=self._before, after=here)

    def keep(self, destination: Path) -> None:
        """Move it to *destination*, without sockets, fifos and devices."""
        with explained("cannot keep workspace", self.path):
            _check_is_folder(self.path)
        with explained("cannot keep workspace", destination):
            _move(self.path, destination)
        self.remove()

    def remove(self) -> list[str]:
        """Delete it."""
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
    """A folder that all attempts use in turn; its old contents are not kept, and what is our *own* is not looked at."""

    def __init__(self, path: Path, *, method: Method, own: Folders = frozenset()) -> None:
        self.path = path
        self.method = method
        self._given = method == "given"
        self._own = own
        self._old = Inventory()

    def mark(self) -> None:
        """Note what is there."""
        with explained("cannot mark workspace", self.path):
            self._old = _inventory(self.path, follow=self._given, force=not self._given, own=self._own)

    def changes(self) -> Changes:
        """What stat tells."""
        with explained("cannot compare workspace", self.path):
            new = _inventory_if_there(self.path, follow=self._given, force=not self._given, own=self._own)
            found = compare(self._old, new, _unchanged)
            here = Tree(self.path, follow=self._given)
            return told(found, self._old, new, before=lambda _: None, after=here)

    def keep(self, destination: Path) -> None:
        """Move it to *destination*; a folder that was given is copied, and stays."""
        with explained("cannot keep workspace", destination):
            if self._given:
                destination.mkdir(parents=True)
                copy_tree(self.path, destination, own=self._own)
            else:
                _check_is_folder(self.path)
                _move(self.path, destination)

    def remove(self) -> list[str]:
        """Delete it; a folder that was given stays."""
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
        # The agent deleted its own folder: then all of it is deleted.
        return Inventory()


def _check_is_folder(path: Path) -> None:
    mode = path.lstat().st_mode
    if not stat.S_ISDIR(mode):
        raise WorkspaceError(
            f"cannot keep workspace: {path}: the agent put something else in the place of the folder",
            hint="look at the session to see what it ran",
        )


def _move(path: Path, destination: Path) -> None:
    destination.parent.mkdir(parents=True, exist_ok=True)
    try:
        # To move a folder is to write its `..`, and somebody is to look into it.
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
