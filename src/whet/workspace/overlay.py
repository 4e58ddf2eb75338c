"""Workspaces that are overlay mounts: a template below, and an upper folder that takes the changes of the agent."""

from __future__ import annotations

import os
import shutil
import stat
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from whet.model.grade import Changes
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
from whet.workspace.contract import Method, Workspace
from whet.workspace.copy import clear, copy_tree, remove_tree
from whet.workspace.mounts import mount_overlay, unmount
from whet.workspace.repositories import make_whole
from whet.workspace.walk import GIT, DirectoryWalk, Tree, explained, is_empty, walk

# What the kernel makes in the work folder of a volatile mount, the innermost first.
_DIRTY = "work/incompat/volatile/dirty"
_WORK = ("work/incompat/volatile", "work/incompat", "work", "")
# Only the kernel writes this attribute. Anybody can set one that begins with `user.`, and the kernel reads those only
# in mounts that ask for it.
_OPAQUE = "trusted.overlay.opaque"


class Template:
    """The folders below any number of overlays: `layers`, the first on top, and `view`, which shows them as one.

    A layer in the folder *side*, made once, hides the folders *leave_out*, at any size, and adds *repositories* that
    are stored elsewhere. Raises OSError if this machine cannot mount it.
    """

    def __init__(self, folder: Path, side: Path, leave_out: Sequence[Path], repositories: Mapping[str, Path]) -> None:
        self.layers: tuple[Path, ...] = (folder,)
        self.view = Tree(folder, follow=True)
        self.mode = stat.S_IMODE(folder.stat().st_mode) | stat.S_IRWXU
        self._shown: Path | None = None
        if leave_out or repositories:
            layer, shown = side / "l", side / "s"
            shown.mkdir(parents=True)
            layer.mkdir()
            _fill_layer(layer, folder, leave_out, repositories)
            self.layers = (layer, folder)
            mount_overlay(shown, lower=self.layers, upper=None, work=None)
            self.view = Tree(shown)
            self._shown = shown

    def close(self) -> None:
        """Unmount the view."""
        if self._shown is not None:
            unmount(self._shown)


def _fill_layer(layer: Path, folder: Path, leave_out: Sequence[Path], repositories: Mapping[str, Path]) -> None:
    """Fill the *layer* above *folder* with *repositories*, and with marks that hide the folders *leave_out*."""
    for below, git_dir in repositories.items():
        make_whole(git_dir, layer / below / ".git")
    for path in leave_out:
        (layer / path).parent.mkdir(parents=True, exist_ok=True)
        clear(layer / path)
        # The kernel marks by such a device what was deleted in an overlay; see `_is_whiteout`.
        os.mknod(layer / path, stat.S_IFCHR, 0)
    # A folder of the layer hides the mode and times of the same folder in the template.
    inside = (*leave_out, *(Path(below, ".git") for below in repositories))
    for part in {parent for path in inside for parent in path.parents}:
        shutil.copystat(folder / part, layer / part)


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
            try:
                old, new = _read_upper(self._upper, self._base, self.most_files)
            except TooManyFiles:
                raise self.refuse_overfull() from None

            def same(path: str, before: FileState, after: FileState) -> bool:
                return alike(path, FileVersion(before, self._base), FileVersion(after, above))

            for path in [old_path for old_path in old.files if old_path not in new.files and self._is_seen(old_path)]:
                del old.files[path]
            differences = compare(old, new, same)
            return describe_changes(differences, old, new, before=lambda _: self._base, after=above)

    def _is_seen(self, path: str) -> bool:
        """Return whether a file is visible in the workspace: then it is not deleted, whatever the layers say."""
        status = Tree(self.path).stat(path)
        return status is not None and not stat.S_ISDIR(status.st_mode)

    def keep(self, destination: Path) -> None:
        """Copy what the agent saw, because other processes cannot see the mount."""
        if self._overfull:
            raise self.refuse_overfull()
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
            os.unlink(f"{side}/k{number}/{_DIRTY}")
            for below in _WORK:
                os.rmdir(f"{side}/k{number}/{below}")
            for folder in (f"{side}/u{number}", side, self.path):
                os.rmdir(folder)
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


def _read_upper(upper: Path, base: Tree, most: int) -> tuple[Inventory, Inventory]:
    """Return the old and the new state of every path that the folder *upper* changes above *base*.

    Raises `TooManyFiles` if *upper* has more than *most* files, or as many folders.
    """
    old, new = Inventory(), Inventory()
    counted = Counter[str]()
    with DirectoryWalk(upper, force=True) as place:
        for step in walk(place, skip=GIT):
            if step.kind == "leave":
                continue
            counted[step.kind] += 1
            if counted[step.kind] > most:
                raise TooManyFiles
            path = place.path(step)
            if step.kind == "enter":
                if _hides(place.fd, base.stat(path)):
                    old.files.update(_files_at(base, path))
                continue
            if step.kind == "unread" or not _is_whiteout(step.stat):
                new.add(step, path)
            if step.kind == "item":
                old.files.update(_files_at(base, path))
    return old, new


def _hides(fd: int, below: os.stat_result | None) -> bool:
    """Return whether an upper folder hides what is *below* it: a file, or a folder that was deleted before."""
    return below is not None and (_is_opaque(fd) or not stat.S_ISDIR(below.st_mode))


def _files_at(base: Tree, path: str) -> dict[str, FileState]:
    """Return what *base* has at *path*: a file, or everything in a folder."""
    status = base.stat(path)
    if status is None:
        return {}
    if not stat.S_ISDIR(status.st_mode):
        return {path: FileState.of(status)}
    if path in GIT:
        return {}
    with DirectoryWalk(base.root, follow=True) as place:
        for name in path.split("/"):
            place.enter(name)
        return take_inventory(place).files


def _is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def _is_opaque(fd: int) -> bool:
    with suppress(OSError):
        return os.getxattr(fd, _OPAQUE) == b"y"
    return False
