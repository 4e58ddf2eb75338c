"""Copy the git repository of a template that is stored elsewhere, as that of a worktree, submodule or shared clone is.

Without the copy, what an agent commits in its workspace would reach the real branch; or, in a sandbox that does not
show the other place, there would be no repository. Files are copied one by one: no program of the repository runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from whet.errors import WorkspaceError
from whet.workspace.copy import merge_tree
from whet.workspace.walk import explained

_LINK = "gitdir:"
_LARGEST_LINK = 64 * 1024
_LARGEST_LIST = 1024 * 1024
_MODULE = re.compile(r"^\s*path\s*=\s*(.+?)\s*$", re.MULTILINE)
# Files that a worktree does not share with its main repository, or that belong to other worktrees.
_OWN_TO_ONE = (
    r"(HEAD|index|sharedindex\..*|[A-Z_]+_HEAD|MERGE_.*|BISECT_.*|SQUASH_MSG|COMMIT_EDITMSG|AUTO_MERGE|config\.worktree"
    r"|(rebase-merge|rebase-apply|sequencer)/.*|logs/HEAD|refs/(bisect|worktree|rewritten)/.*"
    r"|info/sparse-checkout|gitdir|commondir|locked)"
)
_LINKS_BACK = frozenset({"gitdir", "commondir", "locked"})
_OTHER_WORKTREES = frozenset({"worktrees"})


def stored_elsewhere(template: Path) -> dict[str, Path]:
    """Return the folders of *template* whose repository is stored elsewhere, wholly or in part, with its git folder."""
    return dict(_find_elsewhere(template, PurePosixPath()))


def make_whole(git_dir: Path, into: Path) -> None:
    """Make the folder *into* an independent repository with the history and state of the one at *git_dir*."""
    with explained("cannot copy the repository of the template", git_dir):
        common = _common_of(git_dir)
        into.mkdir(parents=True, exist_ok=True)
        if common == git_dir:
            merge_tree(git_dir, into, _is_not_lock, skip=_OTHER_WORKTREES)
        else:
            _refuse_reftables(common)
            merge_tree(common, into, _is_shared, skip=_OTHER_WORKTREES | {"modules"})
            merge_tree(git_dir, into, lambda path: _is_not_lock(path) and path not in _LINKS_BACK)
        for objects in _alternates(common / "objects"):
            merge_tree(objects, into / "objects", _is_not_lock)
        # Always: in an overlay, the file of a lower layer would show through.
        alternates = into / "objects" / "info" / "alternates"
        alternates.parent.mkdir(parents=True, exist_ok=True)
        alternates.write_bytes(b"")
        if git_dir.name != ".git":
            _set_worktree(into)


def _set_worktree(repository: Path) -> None:
    """Set the folder around *repository* as its worktree, in place of the original one."""
    for name in ("config", "config.worktree"):
        if name == "config" or (repository / name).is_file():
            with (repository / name).open("ab") as config:
                config.write(b"\n[core]\n\tbare = false\n\tworktree = ..\n")


def _find_elsewhere(template: Path, folder: PurePosixPath) -> Iterator[tuple[str, Path]]:
    git = template / folder / ".git"
    stores = _elsewhere(template, git)
    if stores is not None:
        yield str(folder), stores
    modules = template / folder / ".gitmodules"
    if not modules.is_file() or modules.is_symlink():
        return
    for path in _MODULE.findall(_text(modules, _LARGEST_LIST)):
        below = PurePosixPath(path.strip('"'))
        if below.parts and not below.is_absolute() and ".." not in below.parts and below.parts != (".",):
            yield from _find_elsewhere(template, folder / below)


def _elsewhere(template: Path, git: Path) -> Path | None:
    """Return the git folder of a repository that is not complete within *template*, or None."""
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
        # The link is broken, with or without whet.
        return None
    is_inside = not Path(named).is_absolute() and place.is_relative_to(template.resolve())
    return None if is_inside and _common_of(place) == place else place


def _common_of(git_dir: Path) -> Path:
    note = git_dir / "commondir"
    return (git_dir / _text(note, _LARGEST_LINK).strip()).resolve() if note.is_file() else git_dir


def _alternates(objects: Path, seen: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Yield the other object folders that a repository reads, and those that they read."""
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
            f"the template is a worktree of {common}, which keeps its branches in reftables and cannot be copied",
            hint="name a clone of it as the template",
        )


def _is_not_lock(path: str) -> bool:
    return not path.endswith(".lock")


def _is_shared(path: str) -> bool:
    return _is_not_lock(path) and not re.fullmatch(_OWN_TO_ONE, path)


def _text(path: Path, most: int) -> str:
    with path.open("rb") as file:
        return file.read(most).decode("utf-8", "surrogateescape")
