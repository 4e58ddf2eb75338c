"""Workspaces that are overlay mounts: a template below, and an upper folder that takes the changes of the agent."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from whet.ground.copying import copy_tree, remove_tree
from whet.ground.diff import Entry, Inventory, Version, alike, compare, describe_changes, take_inventory
from whet.ground.mounts import mount_overlay, unmount
from whet.ground.repositories import make_whole
from whet.ground.tree import GIT, Descent, Step, Tree, explained, is_empty, walk
from whet.ground.workspace import Method, Workspace
from whet.model.grade import Changes

# What the kernel makes in the work folder of a volatile mount, the innermost first.
_DIRTY = "work/incompat/volatile/dirty"
_WORK = ("work/incompat/volatile", "work/incompat", "work", "")
# Only the kernel writes this attribute. Anybody can set one that begins with `user.`, and the kernel reads those only
# in mounts that ask for it.
_OPAQUE = "trusted.overlay.opaque"


class Template:
    """The folders below any number of overlays: `layers`, the first on top, and `view`, which shows them as one."""

    def __init__(self, folder: Path) -> None:
        self.layers: tuple[Path, ...] = (folder,)
        self.view = Tree(folder, follow=True)
        self.mode = stat.S_IMODE(folder.stat().st_mode) | stat.S_IRWXU

    def close(self) -> None:
        """Release what the template holds."""


class LayeredTemplate(Template):
    """A template with more layers on top, which are made once in the folder *side*.

    They hide the folders *leave_out*, at any size, and add *repositories* that are stored elsewhere.
    Raises OSError if this machine cannot mount it.
    """

    def __init__(self, folder: Path, side: Path, *, leave_out: tuple[Path, ...], repositories: dict[str, Path]) -> None:
        super().__init__(folder)
        self._shown = side / "s"
        self._shown.mkdir(parents=True)
        if repositories:
            self.layers = (_with_repositories(folder, side / "g", repositories), *self.layers)
        if leave_out:
            self.layers = self._without(leave_out, side)
        mount_overlay(self._shown, lower=self.layers, upper=None, work=None)
        self.view = Tree(self._shown)

    def _without(self, leave_out: tuple[Path, ...], side: Path) -> tuple[Path, ...]:
        files, hidden, work = side / "f", side / "h", side / "k"
        for made in (files, hidden, work):
            made.mkdir()
        # A file in place of a folder hides its contents; removing the file through the mount hides both.
        for path in leave_out:
            (files / path.parent).mkdir(parents=True, exist_ok=True)
            (files / path).touch()
        mount_overlay(self._shown, lower=(files, *self.layers), upper=hidden, work=work)
        try:
            for path in leave_out:
                (self._shown / path).unlink()
        finally:
            unmount(self._shown)
        return (hidden, files, *self.layers)

    def close(self) -> None:
        """Unmount the template."""
        unmount(self._shown)


def _with_repositories(folder: Path, layer: Path, repositories: dict[str, Path]) -> Path:
    """Fill *layer* with the *repositories* to which *folder* only links."""
    for below, git_dir in repositories.items():
        make_whole(git_dir, layer / below / ".git")
        # A folder of the layer hides the mode and times of the same folder in the template.
        for part in (Path(below), *Path(below).parents):
            shutil.copystat(folder / part, layer / part)
    return layer


class OverlayWorkspace(Workspace):
    """A folder that shows a template and takes changes; costs the same at any size of the template."""

    method: Method = "overlay"

    def __init__(self, path: Path, template: Template) -> None:
        """Mount the workspace; raises OSError if this machine cannot."""
        self.path = path
        self._side = path.with_name(path.name + ".d")
        self._lower = list(template.layers)
        self._base = template.view
        self._mounted: list[Path] = []
        self._mode = template.mode
        try:
            path.mkdir()
            self._side.mkdir()
            self._upper = self._mount_layer()
        except OSError:
            self.remove()
            raise

    def mark(self) -> None:
        """Put what a bootstrap command wrote below a new layer for the agent."""
        with explained("cannot mark workspace", self.path):
            if self.untouched:
                return
            self.unmount()
            self._lower.insert(0, self._upper)
            self._upper = self._mount_layer()
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
        """Read the changes from the upper folder."""
        with explained("cannot compare workspace", self.path):
            above = Tree(self._upper)
            old, new = _Layers(self._base).read(self._upper)

            def same(path: str, before: Entry, after: Entry) -> bool:
                return alike(path, Version(before, self._base), Version(after, above))

            for path in [each for each in old.files if each not in new.files and self._is_seen(each)]:
                del old.files[path]
            found = compare(old, new, same)
            return describe_changes(found, old, new, before=lambda _: self._base, after=above)

    def _is_seen(self, path: str) -> bool:
        """Return whether a file is visible in the workspace: then it is not deleted, whatever the layers say."""
        found = Tree(self.path).stat(path)
        return found is not None and not stat.S_ISDIR(found.st_mode)

    def keep(self, destination: Path) -> None:
        """Copy what the agent saw, because other processes cannot see the mount."""
        with explained("cannot keep workspace", destination):
            destination.mkdir(parents=True)
            copy_tree(self.path, destination, force=True)
        self.remove()

    def remove(self) -> list[str]:
        """Unmount the workspace and delete its layers."""
        problems = self.unmount()
        if problems:
            # Deleting through a mount would reach the template.
            return problems
        if self._removed_quickly():
            return []
        return remove_tree(self.path) + remove_tree(self._side)

    def _removed_quickly(self) -> bool:
        """Delete the folders of an overlay without changes by name, which is quick; return whether that was all."""
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
        """Whether something is still mounted."""
        return bool(self._mounted)

    def unmount(self) -> list[str]:
        """Unmount everything; return a sentence for each mount that stays."""
        problems = []
        for target in list(self._mounted):
            try:
                unmount(target)
            except OSError as error:
                problems.append(f"cannot unmount {target}: {error.strerror}")
            else:
                self._mounted.remove(target)
        return problems

    def _mount_layer(self) -> Path:
        number = len(self._lower)
        upper, work = self._side / f"u{number}", self._side / f"k{number}"
        upper.mkdir()
        upper.chmod(self._mode)
        work.mkdir()
        mount_overlay(self.path, lower=self._lower, upper=upper, work=work)
        self._mounted.append(self.path)
        return upper


class _Layers:
    """Compares an upper folder with its base: what is new, and what of the base it hides."""

    def __init__(self, base: Tree) -> None:
        self._base = base
        self._old = Inventory()
        self._new = Inventory()

    def read(self, upper: Path) -> tuple[Inventory, Inventory]:
        """Return the old and the new state of every path that the upper folder changes."""
        with Descent(upper, force=True) as place:
            for step in walk(place, skip=GIT):
                self._take(step, place)
        return self._old, self._new

    def _take(self, step: Step, place: Descent) -> None:
        if step.kind == "leave":
            return
        path = place.path(step)
        if step.kind == "enter":
            self._folder(path, place.fd)
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
        """Note what the base has at *path*: a file, or everything in a folder."""
        found = self._base.stat(path)
        if found is None:
            return
        if not stat.S_ISDIR(found.st_mode):
            self._old.files[path] = Entry.of(found)
        elif path not in GIT:
            with Descent(self._base.root, follow=True) as place:
                for name in path.split("/"):
                    place.enter(name)
                self._old.files.update(take_inventory(place).files)


def _is_whiteout(found: os.stat_result) -> bool:
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _is_opaque(fd: int) -> bool:
    with suppress(OSError):
        return os.getxattr(fd, _OPAQUE) == b"y"
    return False
