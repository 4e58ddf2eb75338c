"""A template as overlays lie over it: its folder, and layers that hide what is no part of it or bring in what is."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

from whet.workspace.mounts import mount_overlay, unmount
from whet.workspace.repositories import make_whole
from whet.workspace.tree import Tree


class Template:
    """What overlays lie over, any number of them; `layers` are folders, the first on top, `view` shows them as one."""

    def __init__(self, folder: Path) -> None:
        self.layers: tuple[Path, ...] = (folder,)
        self.view = Tree(folder, follow=True)
        self.mode = stat.S_IMODE(folder.stat().st_mode) | stat.S_IRWXU

    def close(self) -> None:
        """Let go of what it holds."""


class LayeredTemplate(Template):
    """A template with layers over it, made in *side*, once for all that lie over it.

    It is without the folders *leave_out*, however large they are, and *repositories* that lie elsewhere are in it.
    An OSError means that it cannot be done here.
    """

    def __init__(self, folder: Path, side: Path, *, leave_out: tuple[Path, ...], repositories: dict[str, Path]) -> None:
        super().__init__(folder)
        self._shown = side / "s"
        self._shown.mkdir(parents=True)
        if repositories:
            self.layers = (_brought_in(folder, side / "g", repositories), *self.layers)
        if leave_out:
            self.layers = self._without(leave_out, side)
        mount_overlay(self._shown, lower=self.layers, upper=None, work=None)
        self.view = Tree(self._shown)

    def _without(self, leave_out: tuple[Path, ...], side: Path) -> tuple[Path, ...]:
        files, hidden, work = side / "f", side / "h", side / "k"
        for made in (files, hidden, work):
            made.mkdir()
        # A file in the place of a folder hides what is in it, and removing the file through the mount hides both.
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
        """Take its mount away."""
        unmount(self._shown)


def _brought_in(folder: Path, layer: Path, repositories: dict[str, Path]) -> Path:
    """A layer that has the *repositories* where *folder* has a link to them."""
    for below, git_dir in repositories.items():
        make_whole(git_dir, layer / below / ".git")
        # What lies over a folder of the template gives it its mode and times.
        for part in (Path(below), *Path(below).parents):
            shutil.copystat(folder / part, layer / part)
    return layer
