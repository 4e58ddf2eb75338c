"""A template as overlays lie over it: its folder, and over that a layer that hides what is no part of it."""

from __future__ import annotations

import stat
from pathlib import Path

from whet.workspace.mounts import mount_overlay, unmount
from whet.workspace.tree import Tree


class Template:
    """What overlays lie over, any number of them; `layers` are folders, the first on top, `view` shows them as one."""

    def __init__(self, folder: Path) -> None:
        self.layers: tuple[Path, ...] = (folder,)
        self.view = Tree(folder, follow=True)
        self.mode = stat.S_IMODE(folder.stat().st_mode) | stat.S_IRWXU

    def close(self) -> None:
        """Let go of what it holds."""


class MaskedTemplate(Template):
    """A template without some of its folders, however large they are; made in *side*, once for all that lie over it.

    An OSError means that it cannot be done here.
    """

    def __init__(self, folder: Path, leave_out: tuple[Path, ...], side: Path) -> None:
        super().__init__(folder)
        files, hidden, work = side / "f", side / "h", side / "k"
        self._shown = side / "s"
        for made in (side, files, hidden, work, self._shown):
            made.mkdir()
        # A file in the place of a folder hides what is in it, and removing the file through the mount hides both.
        for path in leave_out:
            (files / path.parent).mkdir(parents=True, exist_ok=True)
            (files / path).touch()
        mount_overlay(self._shown, lower=(files, folder), upper=hidden, work=work)
        try:
            for path in leave_out:
                (self._shown / path).unlink()
        finally:
            unmount(self._shown)
        self.layers = (hidden, files, folder)
        mount_overlay(self._shown, lower=self.layers, upper=None, work=None)
        self.view = Tree(self._shown)

    def close(self) -> None:
        """Take its mount away."""
        unmount(self._shown)
