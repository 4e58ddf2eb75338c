"""What a check needs from the workspace before the agent starts: copies of protected files, and what was there."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from whet.errors import WorkspaceError
from whet.workspace.copy import clear
from whet.workspace.walk import GIT, DirectoryWalk, grant, hash_file, is_below, open_file, walk

Kind = Literal["absent", "file", "folder", "other", "outside"]


class ProtectedItem(Struct, frozen=True, kw_only=True):
    """A file, a link, or a folder with either in it, as it was; `copy` is the path of a copy of a file."""

    path: str
    mode: int
    copy: str | None = None
    digest: str | None = None
    target: str | None = None

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder, of which only the mode is kept, because the mode decides who can read its files."""
        return self.copy is None and self.target is None


class ProtectedPaths(Struct, frozen=True):
    """Which paths are protected: `holds` for files and links, `guards` for links on the way, `leads_to` for folders."""

    holds: Callable[[str], bool]
    guards: Callable[[str], bool]
    leads_to: Callable[[str], bool]


def keep_protected(workspace: Path, wanted: ProtectedPaths, store: Path) -> tuple[ProtectedItem, ...]:
    """Copy the protected files into the folder *store*, which the agent must not reach."""
    store.mkdir(parents=True, exist_ok=True)
    kept = [
        _kept(workspace, path, status, store / str(number))
        for number, (path, status) in enumerate(_scan(workspace, wanted))
        if stat.S_ISLNK(status.st_mode) or stat.S_ISREG(status.st_mode)
    ]
    folders = sorted({folder for item in kept for folder in _parents(item.path)})
    modes = (stat.S_IMODE((workspace / folder).lstat().st_mode) for folder in folders)
    return (*kept, *(ProtectedItem(path=path, mode=mode) for path, mode in zip(folders, modes, strict=True)))


def put_back(workspace: Path, wanted: ProtectedPaths, protected: tuple[ProtectedItem, ...]) -> tuple[str, ...]:
    """Restore the protected files and remove what was added to them; return the paths that had to change."""
    if workspace.is_symlink():
        raise WorkspaceError(f"{workspace} was replaced with a link")
    folders = [item for item in protected if item.is_folder]
    protected = tuple(item for item in protected if not item.is_folder)
    kept = {item.path: item for item in protected}
    locked = [item.path for item in folders if _has_other_mode(workspace, item)]
    now = dict(_scan(workspace, wanted))
    added = sorted(path for path in now if path not in kept)
    for path in added:
        _clear(workspace / path)
    altered = [item for item in protected if not _is_same(workspace, item, now.get(item.path))]
    for item in altered:
        _restore(workspace, item)
    for item in folders:
        if _has_other_mode(workspace, item):
            (workspace / item.path).chmod(item.mode)
    return tuple(sorted((*added, *locked, *(item.path for item in altered))))


def _parents(path: str) -> Iterator[str]:
    """Yield the folders above *path*, up to the workspace itself."""
    while path:
        path = path.rpartition("/")[0]
        yield path or "."


def _has_other_mode(workspace: Path, folder: ProtectedItem) -> bool:
    """Return whether a folder still exists, but with another mode."""
    try:
        mode = (workspace / folder.path).lstat().st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) and stat.S_IMODE(mode) != folder.mode


def _scan(workspace: Path, wanted: ProtectedPaths) -> Iterator[tuple[str, os.stat_result]]:
    """Yield every protected file and link, without following links."""
    folders = [""]
    while folders:
        folder = folders.pop()
        for entry in _entries(workspace / folder):
            path = f"{folder}{entry.name}"
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                if wanted.leads_to(path):
                    folders.append(f"{path}/")
            elif wanted.holds(path) or (stat.S_ISLNK(status.st_mode) and wanted.guards(path)):
                yield path, status


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except PermissionError:
        grant(str(folder), stat.S_IRWXU)
        return list(os.scandir(folder))


def _kept(workspace: Path, path: str, status: os.stat_result, copy: Path) -> ProtectedItem:
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return ProtectedItem(path=path, mode=mode, target=str((workspace / path).readlink()))
    with open_file(str(workspace / path)) as source, copy.open("wb") as target:
        shutil.copyfileobj(source, target)
    return ProtectedItem(path=path, mode=mode, copy=str(copy), digest=_digest(copy))


def _is_same(workspace: Path, item: ProtectedItem, status: os.stat_result | None) -> bool:
    if status is None or stat.S_ISLNK(status.st_mode) != (item.target is not None):
        return False
    if item.target is not None:
        return str((workspace / item.path).readlink()) == item.target
    if not stat.S_ISREG(status.st_mode) or stat.S_IMODE(status.st_mode) != item.mode:
        return False
    return _digest(workspace / item.path) == item.digest


def _restore(workspace: Path, item: ProtectedItem) -> None:
    full = workspace / item.path
    _make_folders(workspace, item.path)
    _clear(full)
    if item.target is not None:
        full.symlink_to(item.target)
        return
    assert item.copy is not None
    if not Path(item.copy).is_file() or _digest(Path(item.copy)) != item.digest:
        raise WorkspaceError(f"the copy of the protected file {item.path} has changed")
    shutil.copyfile(item.copy, full, follow_symlinks=False)
    full.chmod(item.mode)


def _make_folders(workspace: Path, path: str) -> None:
    """Make every folder above *path* a real and writable folder."""
    here = workspace
    grant(str(here), stat.S_IRWXU)
    for name in path.split("/")[:-1]:
        here /= name
        if here.is_symlink() or not here.is_dir():
            _clear(here)
            here.mkdir()
        grant(str(here), stat.S_IRWXU)


def _clear(path: Path) -> None:
    """Remove what is at *path*, also if its folder does not allow it."""
    with suppress(FileNotFoundError):
        grant(str(path.parent), stat.S_IRWXU)
    clear(path)


def _digest(path: Path) -> str:
    return hash_file(str(path), force=True).hex()


class Before(Struct, frozen=True, kw_only=True):
    """What was at a path: its kind and a digest; or only `changed`, if only a list of changes is known."""

    kind: Kind
    digest: str | None = None
    changed: bool | None = None


class WorkspaceSurvey(Struct, frozen=True, kw_only=True):
    """What the claims of a case need to know of the workspace before the agent starts.

    `held` says for each claim whether it already held; None if only a command could tell, or a search that is not
    needed or does not end.
    """

    before: Mapping[str, Before] = field(default_factory=dict)
    protected: tuple[ProtectedItem, ...] = ()
    held: tuple[bool | None, ...] = ()

    @property
    def folders(self) -> tuple[str, ...]:
        """The paths that were folders: a list of changes has only files."""
        return tuple(path.rstrip("/") for path, before in self.before.items() if before.kind == "folder")

    @property
    def vacuous(self) -> bool:
        """Whether the agent had nothing to do."""
        return bool(self.held) and all(self.held)


class PathState(Struct, frozen=True):
    """What is at a path now; `real` is its path after following links, if that is inside the workspace.

    `linked` says that there is a link to something absent, `whole` that a folder is the workspace itself.
    """

    kind: Kind
    real: str | None = None
    linked: bool = False
    whole: bool = False


def find(workspace: Path, path: str) -> PathState:
    """Return what is at *path*; follow links that stay in the workspace."""
    full = os.path.join(workspace, path)
    try:
        real, mode = _resolved(full)
    except (FileNotFoundError, NotADirectoryError):
        return PathState("absent", linked=os.path.islink(full))
    except OSError as error:
        if error.errno == errno.ELOOP:
            return PathState("absent", linked=True)
        raise
    root = str(workspace)
    if not is_below(real, root):
        root = _resolved(workspace)[0]
        if not is_below(real, root):
            return PathState("outside")
    kind: Kind
    if stat.S_ISDIR(mode):
        kind = "folder"
    elif stat.S_ISREG(mode):
        kind = "file"
    else:
        kind = "other"
    return PathState(kind, real, whole=real == root)


def _resolved(path: Path | str) -> tuple[str, int]:
    """Return *path* after following links, and the mode of what is there; the kernel is quicker than realpath."""
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        return os.readlink(f"/proc/self/fd/{fd}"), os.fstat(fd).st_mode
    finally:
        os.close(fd)


def take_before(workspace: Path, paths: Iterable[str], *, digests: Iterable[str]) -> dict[str, Before]:
    """Return what is at *paths*, with digests of those in *digests*."""
    wanted = set(digests)
    states = {}
    for path in paths:
        here = find(workspace, path)
        states[path] = Before(kind=here.kind, digest=digest_of(here) if path in wanted else None)
    return states


def digest_of(state: PathState) -> str | None:
    """Return a digest of a file, or of everything in a folder: names, links and contents.

    Leaves out the `.git` folder of the workspace itself, as the list of changes does.
    """
    if state.real is None:
        return None
    if state.kind == "file":
        return hash_file(state.real).hex()
    skip = GIT if state.whole else frozenset[str]()
    return _folder(Path(state.real), skip) if state.kind == "folder" else None


def _folder(folder: Path, skip: frozenset[str]) -> str:
    lines = []
    with DirectoryWalk(folder, force=True) as place:
        for step in walk(place, skip=skip):
            if step.kind not in {"enter", "leave"}:
                path = place.path(step).encode("utf-8", "surrogateescape")
                lines.append(path + b"\0" + _item(step.name, step.stat.st_mode, place.fd))
    return hashlib.sha256(b"\n".join(sorted(lines))).hexdigest()


def _item(name: str, mode: int, dir_fd: int) -> bytes:
    if stat.S_ISLNK(mode):
        return b"link" + os.readlink(name, dir_fd=dir_fd).encode("utf-8", "surrogateescape")
    return hash_file(name, dir_fd=dir_fd) if stat.S_ISREG(mode) else b"other"
