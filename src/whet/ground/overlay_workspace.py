"""A workspace that lies over its template: what the agent writes goes to an upper folder, which is the change list."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from whet.ground.copying import copy_tree, remove_tree
from whet.ground.diff import told
from whet.ground.mounts import mount_overlay, unmount
from whet.ground.templates import Template
from whet.ground.tree import GIT, Descent, Step, Tree, is_empty, walk
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

# What the kernel makes in the work folder of a mount that need not survive a crash, the innermost first.
_DIRTY = "work/incompat/volatile/dirty"
_WORK = ("work/incompat/volatile", "work/incompat", "work", "")
# What the kernel writes, and only it: the names that begin with `user.` are anybody's to set, and it reads them only
# in mounts that ask for it.
_OPAQUE = "trusted.overlay.opaque"


class OverlayWorkspace(Workspace):
    """A folder that shows a template and takes changes; costs the same however large the template is."""

    method: Method = "overlay"

    def __init__(self, path: Path, template: Template) -> None:
        """Mount it; an OSError means that it cannot be done here."""
        self.path = path
        self._side = path.with_name(path.name + ".d")
        self._lower = list(template.layers)
        self._base = template.view
        self._mounted: list[Path] = []
        self._mode = template.mode
        try:
            path.mkdir()
            self._side.mkdir()
            self._upper = self._lay()
        except OSError:
            self.remove()
            raise

    def mark(self) -> None:
        """Put what a bootstrap command wrote under the agent's own layer."""
        with explained("cannot mark workspace", self.path):
            if self.untouched:
                return
            self.unmount()
            self._lower.insert(0, self._upper)
            self._upper = self._lay()
            base = self._side / f"b{len(self._lower)}"
            base.mkdir()
            mount_overlay(base, lower=self._lower, upper=None, work=None)
            self._mounted.append(base)
            self._base = Tree(base)

    @property
    def untouched(self) -> bool:
        """Whether the upper folder is empty."""
        with suppress(OSError):
            return is_empty(self._upper)
        return False

    def changes(self) -> Changes:
        """What the upper folder tells."""
        with explained("cannot compare workspace", self.path):
            above = Tree(self._upper)
            old, new = _Layers(self._base).read(self._upper)

            def same(path: str, before: Entry, after: Entry) -> bool:
                return alike(path, Version(before, self._base), Version(after, above))

            for path in [each for each in old.files if each not in new.files and self._is_seen(each)]:
                del old.files[path]
            found = compare(old, new, same)
            return told(found, old, new, before=lambda _: self._base, after=above)

    def _is_seen(self, path: str) -> bool:
        """Whether a file can be seen in the workspace: then it is not deleted, whatever the layers say."""
        found = Tree(self.path).stat(path)
        return found is not None and not stat.S_ISDIR(found.st_mode)

    def keep(self, destination: Path) -> None:
        """Copy what the agent saw: nobody else can see the mount."""
        with explained("cannot keep workspace", destination):
            destination.mkdir(parents=True)
            copy_tree(self.path, destination, force=True)
        self.remove()

    def remove(self) -> list[str]:
        """Unmount it and delete its layers."""
        problems = self.unmount()
        if problems:
            # What is still mounted must not be deleted through: the template lies below.
            return problems
        if self._vanishes():
            return []
        return remove_tree(self.path) + remove_tree(self._side)

    def _vanishes(self) -> bool:
        """Whether all there is to delete are the folders that an overlay needs for itself: then they are gone now."""
        side, number = str(self._side), len(self._lower)
        try:
            os.unlink(f"{side}/k{number}/{_DIRTY}")  # noqa: PTH108 - a hot path, as the next ones
            for below in _WORK:
                os.rmdir(f"{side}/k{number}/{below}")  # noqa: PTH106
            for folder in (f"{side}/u{number}", side, self.path):
                os.rmdir(folder)  # noqa: PTH106
        except OSError:
            return False
        return True

    @property
    def mounted(self) -> bool:
        """Whether it is still to be unmounted."""
        return bool(self._mounted)

    def unmount(self) -> list[str]:
        """Take its mounts away; gives a sentence for each that stays."""
        problems = []
        for target in list(self._mounted):
            try:
                unmount(target)
            except OSError as error:
                problems.append(f"cannot unmount {target}: {error.strerror}")
            else:
                self._mounted.remove(target)
        return problems

    def _lay(self) -> Path:
        number = len(self._lower)
        upper, work = self._side / f"u{number}", self._side / f"k{number}"
        upper.mkdir()
        upper.chmod(self._mode)
        work.mkdir()
        mount_overlay(self.path, lower=self._lower, upper=upper, work=work)
        self._mounted.append(self.path)
        return upper


class _Layers:
    """Reads an upper folder against its base: what is new in it, and what of the base it hides."""

    def __init__(self, base: Tree) -> None:
        self._base = base
        self._old = Inventory()
        self._new = Inventory()
        self._names: list[str] = []

    def read(self, upper: Path) -> tuple[Inventory, Inventory]:
        """The old and the new state of every path that the upper folder touches."""
        with Descent(upper, force=True) as place:
            for step in walk(place, skip=GIT):
                self._take(step, place.fd)
        return self._old, self._new

    def _take(self, step: Step, fd: int) -> None:
        if step.kind == "leave":
            self._names.pop()
            return
        path = "/".join((*self._names, step.name))
        if step.kind == "enter":
            self._names.append(step.name)
            self._folder(path, fd)
        elif step.kind == "unread":
            self._new.unread.append(path)
        else:
            if not _is_whiteout(step.stat):
                self._new.files[path] = Entry.of(step.stat)
            self._hide(path)

    def _folder(self, path: str, fd: int) -> None:
        below = self._base.stat(path)
        if below is not None and (_is_opaque(fd) or not stat.S_ISDIR(below.st_mode)):
            self._hide(path)

    def _hide(self, path: str) -> None:
        """Note what the base has at *path*: a file, or all that a folder holds."""
        found = self._base.stat(path)
        if found is None:
            return
        if not stat.S_ISDIR(found.st_mode):
            self._old.files[path] = Entry.of(found)
        elif path not in GIT:
            with Descent(self._base.root, follow=True) as place:
                for name in path.split("/"):
                    place.enter(name)
                self._old.files.update(take_inventory(place, f"{path}/").files)


def _is_whiteout(found: os.stat_result) -> bool:
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _is_opaque(fd: int) -> bool:
    with suppress(OSError):
        return os.getxattr(fd, _OPAQUE) == b"y"
    return False
