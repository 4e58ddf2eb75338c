"""A repository of a template's own: a worktree, a submodule or a shared clone keeps a part of itself somewhere else.

What an agent commits in its workspace would reach the real branch through that, or there would be no repository where
the sandbox does not show the place. So all of it is copied once, file by file: no program of the repository is run.
"""

from __future__ import annotations

import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from whet.errors import WorkspaceError
from whet.ground.copying import merge_tree
from whet.ground.mounts import mount_overlay, unmount
from whet.ground.tree import Tree
from whet.ground.workspace import explained

_LINK = "gitdir:"
_LARGEST_LINK = 64 * 1024
_LARGEST_LIST = 1024 * 1024
_MODULE = re.compile(r"^\s*path\s*=\s*(.+?)\s*$", re.MULTILINE)
# What a worktree does not share with the repository that it belongs to, or what belongs to other worktrees.
_OWN_TO_ONE = re.compile(
    r"(HEAD|index|sharedindex\..*|[A-Z_]+_HEAD|MERGE_.*|BISECT_.*|SQUASH_MSG|COMMIT_EDITMSG|AUTO_MERGE|config\.worktree"
    r"|(rebase-merge|rebase-apply|sequencer)/.*|logs/HEAD|refs/(bisect|worktree|rewritten)/.*"
    r"|info/sparse-checkout|gitdir|commondir|locked)"
)
_LINKS_BACK = frozenset({"gitdir", "commondir", "locked"})
_OTHER_WORKTREES = frozenset({"worktrees"})


def lacking(template: Path) -> dict[str, Path]:
    """The folders of *template* whose repository lies elsewhere, wholly or in part, each with its git folder."""
    return dict(_lacking(template, PurePosixPath()))


def make_whole(git_dir: Path, into: Path) -> None:
    """Make the folder *into* a repository with the history and the state of the one at *git_dir*, on its own."""
    with explained("cannot copy the repository of the template", git_dir):
        common = _common_of(git_dir)
        into.mkdir(parents=True, exist_ok=True)
        if common == git_dir:
            merge_tree(git_dir, into, _is_no_lock, skip=_OTHER_WORKTREES)
        else:
            _refuse_reftables(common)
            merge_tree(common, into, _is_shared, skip=_OTHER_WORKTREES | {"modules"})
            merge_tree(git_dir, into, lambda path: _is_no_lock(path) and path not in _LINKS_BACK)
        for objects in _alternates(common / "objects"):
            merge_tree(objects, into / "objects", _is_no_lock)
        # Also where there was none: below this one another may lie that would show through.
        alternates = into / "objects" / "info" / "alternates"
        alternates.parent.mkdir(parents=True, exist_ok=True)
        alternates.write_bytes(b"")
        if git_dir.name != ".git":
            _settle(into)


def _settle(repository: Path) -> None:
    """The folder around it is what it is about, and no longer the one that it came from."""
    for name in ("config", "config.worktree"):
        if name == "config" or (repository / name).is_file():
            with (repository / name).open("ab") as config:
                config.write(b"\n[core]\n\tbare = false\n\tworktree = ..\n")


def _lacking(template: Path, folder: PurePosixPath) -> Iterator[tuple[str, Path]]:
    git = template / folder / ".git"
    found = _elsewhere(template, git)
    if found is not None:
        yield str(folder), found
    modules = template / folder / ".gitmodules"
    if not modules.is_file() or modules.is_symlink():
        return
    for path in _MODULE.findall(_text(modules, _LARGEST_LIST)):
        below = PurePosixPath(path.strip('"'))
        if below.parts and not below.is_absolute() and ".." not in below.parts and below.parts != (".",):
            yield from _lacking(template, folder / below)


def _elsewhere(template: Path, git: Path) -> Path | None:
    """The git folder of a repository that is not whole within *template*, if this is one."""
    if git.is_symlink():
        return None
    if git.is_dir():
        return git if next(_alternates(git / "objects"), None) else None
    if not git.is_file():
        return None
    link = _text(git, _LARGEST_LINK).strip()
    if not link.startswith(_LINK):
        return None
    named = link.removeprefix(_LINK).strip()
    place = (git.parent / named).resolve()
    if not place.is_dir():
        # As broken as it is for everybody.
        return None
    is_inside = not Path(named).is_absolute() and place.is_relative_to(template.resolve())
    return None if is_inside and _common_of(place) == place else place


def _common_of(git_dir: Path) -> Path:
    note = git_dir / "commondir"
    return (git_dir / _text(note, _LARGEST_LINK).strip()).resolve() if note.is_file() else git_dir


def _alternates(objects: Path, seen: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """The other folders of objects that a repository reads, and those that they read."""
    note = objects / "info" / "alternates"
    if not note.is_file():
        return
    for line in _text(note, _LARGEST_LIST).splitlines():
        place = (objects / line.strip()).resolve()
        if line.strip() and not line.startswith("#") and place.is_dir() and place not in seen:
            yield place
            yield from _alternates(place, seen | {place})


def _refuse_reftables(common: Path) -> None:
    if (common / "reftable").is_dir():
        raise WorkspaceError(
            f"the template is a worktree of {common}, which keeps its branches in reftables: none can be copied alone",
            hint="name a clone of it as the template",
        )


def _is_no_lock(path: str) -> bool:
    return not path.endswith(".lock")


def _is_shared(path: str) -> bool:
    return _is_no_lock(path) and not _OWN_TO_ONE.fullmatch(path)


def _text(path: Path, most: int) -> str:
    with path.open("rb") as file:
        return file.read(most).decode("utf-8", "surrogateescape")


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
