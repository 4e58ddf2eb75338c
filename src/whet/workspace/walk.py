"""Read folders as an agent may have left them: follow no link, open nothing that could block, go to any depth.

`walk` with a `DirectoryWalk` goes through a whole tree; `Tree` reaches one file by its path. Both open each folder by
its name in the folder above, so no link leads out and no path is too long.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Self, TypeAlias

from msgspec import Struct

from whet.errors import WorkspaceError
from whet.reading.text import escape_surrogates

GIT = frozenset({".git"})
# Device and inode of folders: unlike a name, no link and no other spelling gets around them.
Folders: TypeAlias = frozenset[tuple[int, int]]

# Errors that mean the machine has run out of something; any other error comes from what is in the workspace.
SHORTAGES = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE)

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_THROUGH = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LOOK = stat.S_IRUSR | stat.S_IXUSR
_CLOSED = -1

_HINTS = {
    errno.ENOSPC: "the disk is full: free some space, or set TMPDIR to a folder on a larger disk",
    errno.EDQUOT: "the disk quota is used up: free some space, or set TMPDIR to a folder on another disk",
    errno.EACCES: "check the owner and the permissions of the folder",
    errno.EPERM: "check the owner and the permissions of the folder",
    errno.EROFS: "the file system is read-only: choose another folder",
    errno.EMFILE: "too many files are open: raise `ulimit -n` or run fewer trials at a time",
    errno.ENOENT: "something removed it: check whether the agent or a process it left behind did",
    errno.ENOTDIR: "something replaced a folder with a file or a link: check whether the agent did",
    errno.ELOOP: "something replaced a folder with a link: check whether the agent did",
    errno.ENOTEMPTY: "choose a destination that does not exist yet",
    errno.EEXIST: "choose a destination that does not exist yet",
}


class WalkStep(NamedTuple):
    """One step of a walk: an item that is not a folder, a folder just entered or left, or one that cannot be read."""

    kind: Literal["item", "enter", "leave", "unread"]
    name: str
    stat: os.stat_result


def walk(place: DirectoryWalk, *, skip: frozenset[str] = frozenset(), own: Folders = frozenset()) -> Iterator[WalkStep]:
    """Walk the tree below *place*, which moves along; leave out whet's *own* folders and files.

    Folders named in *skip* are left out at the top only: a repository that an agent made further down is its work.
    """
    waiting: list[list[WalkStep]] = [[]]
    entered: list[WalkStep] = []
    yield from _items(place, waiting[-1], skip, own)
    while waiting:
        if waiting[-1]:
            step = waiting[-1].pop()
            entering = _enter(place, step.name)
            if entering != "enter":
                if entering == "unread":
                    yield step._replace(kind="unread")
                continue
            waiting.append([])
            entered.append(step)
            yield step
            yield from _items(place, waiting[-1], frozenset(), own)
        else:
            waiting.pop()
            if waiting:
                place.leave()
                yield entered.pop()._replace(kind="leave")


def _enter(place: DirectoryWalk, name: str) -> Literal["enter", "unread", "gone"]:
    try:
        place.enter(name)
    except PermissionError:
        return "unread"
    except OSError as error:
        # A process that still runs here has removed or replaced it since we listed it.
        if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
            return "gone"
        raise
    return "enter"


def _items(place: DirectoryWalk, folders: list[WalkStep], skip: frozenset[str], own: Folders) -> Iterator[WalkStep]:
    with os.scandir(place.fd) as entries:
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            except PermissionError:
                yield WalkStep("unread", entry.name, os.fstat(place.fd))
                continue
            if (status.st_dev, status.st_ino) in own:
                continue
            if not stat.S_ISDIR(status.st_mode):
                yield WalkStep("item", entry.name, status)
            elif entry.name not in skip:
                folders.append(WalkStep("enter", entry.name, status))


class _Level(Struct):
    fd: int
    restore: int | None = None
    identity: tuple[int, int] = (0, 0)


class DirectoryWalk:
    """A place in a tree that moves one folder at a time; holds few descriptors at any depth.

    `force` lends us permissions that the agent took from its own folders, while we are inside.
    `open_up` gives the owner all permissions for good, so that a person can open and delete the folders.
    """

    _open_levels = 32

    def __init__(self, root: Path, *, follow: bool = False, force: bool = False, open_up: bool = False) -> None:
        self._force = force or open_up
        self._wanted = stat.S_IRWXU if open_up else _LOOK
        self._lend = not open_up
        flags = _FOLDER & ~os.O_NOFOLLOW if follow else _FOLDER
        self._levels = [self._opened(str(root), None, flags)]
        # The names of the folders from the root to here, and their path once something needs it.
        self._names: list[str] = []
        self._prefix: str | None = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for level in self._levels:
            if level.fd != _CLOSED:
                self._close(level)

    @property
    def fd(self) -> int:
        """The descriptor of the current folder."""
        return self._levels[-1].fd

    @property
    def top(self) -> str:
        """The outermost folder that we entered; empty at the root."""
        return self._names[0] if self._names else ""

    def path(self, step: WalkStep) -> str:
        """Return the path of a step that `walk` has just given, relative to the root."""
        if self._prefix is None:
            # Only when asked: the paths of deeply nested folders are long.
            self._prefix = "".join(f"{name}/" for name in self._names)
        return self._prefix[:-1] if step.kind == "enter" else self._prefix + step.name

    def enter(self, name: str) -> None:
        """Go into a folder below."""
        self._levels.append(self._opened(name, self.fd, _FOLDER))
        self._names.append(name)
        self._prefix = None
        if len(self._levels) > self._open_levels:
            self._rest(self._levels[-self._open_levels - 1])

    def leave(self) -> None:
        """Go back up."""
        level = self._levels.pop()
        self._names.pop()
        self._prefix = None
        try:
            self._wake(self._levels[-1], level.fd)
        finally:
            self._close(level)

    def _opened(self, name: str, dir_fd: int | None, flags: int) -> _Level:
        restore = None
        if self._force:
            before = stat.S_IMODE(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode)
            if before & self._wanted != self._wanted:
                grant(name, stat.S_IRWXU, dir_fd=dir_fd)
                restore = before if self._lend else None
        return _Level(os.open(name, flags, dir_fd=dir_fd), restore)

    @staticmethod
    def _rest(level: _Level) -> None:
        """Close a folder far above; `_wake` opens it again."""
        if level.fd == _CLOSED:
            return
        status = os.fstat(level.fd)
        level.identity = (status.st_dev, status.st_ino)
        os.close(level.fd)
        level.fd = _CLOSED

    @staticmethod
    def _wake(level: _Level, below: int) -> None:
        if level.fd != _CLOSED:
            return
        fd = os.open("..", _FOLDER, dir_fd=below)
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) != level.identity:
            os.close(fd)
            raise OSError(errno.ESTALE, "a folder was moved while it was read")
        level.fd = fd

    @staticmethod
    def _close(level: _Level) -> None:
        if level.restore is not None:
            with suppress(OSError):
                os.fchmod(level.fd, level.restore)
        os.close(level.fd)


class Tree:
    """A folder whose files are opened by relative path, one component at a time, so that no link leads out of it."""

    def __init__(self, root: Path, *, follow: bool = False) -> None:
        self.root = root
        self._flags = _THROUGH & ~os.O_NOFOLLOW if follow else _THROUGH

    def stat(self, path: str) -> os.stat_result | None:
        """Return what is at *path*, or None."""
        try:
            with self._parent(path) as (fd, name):
                return os.stat(name, dir_fd=fd, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open(self, path: str) -> io.FileIO:
        """Open the regular file at *path*."""
        with self._parent(path) as (fd, name):
            return open_file(name, dir_fd=fd)

    def read(self, path: str, limit: int) -> bytes:
        """Read the first *limit* bytes of the regular file at *path*."""
        with self.open(path) as file:
            parts = []
            while limit > 0 and (part := file.read(limit)):
                parts.append(part)
                limit -= len(part)
        return b"".join(parts)

    def link(self, path: str) -> str:
        """Return the target of the symbolic link at *path*."""
        with self._parent(path) as (fd, name):
            return os.readlink(name, dir_fd=fd)

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        *folders, name = path.split("/")
        fd = os.open(self.root, self._flags)
        try:
            for folder in folders:
                below = os.open(folder, _THROUGH, dir_fd=fd)
                os.close(fd)
                fd = below
            yield fd, name
        finally:
            os.close(fd)


def open_file(name: str, *, dir_fd: int | None = None, force: bool = False) -> io.FileIO:
    """Open a regular file to read it; raise OSError for anything else.

    With *force*, a file that its owner may not read is made readable first.
    """
    try:
        fd = os.open(name, _FILE, dir_fd=dir_fd)
    except PermissionError:
        if not force:
            raise
        grant(name, stat.S_IRUSR, dir_fd=dir_fd)
        fd = os.open(name, _FILE, dir_fd=dir_fd)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", name)
    return io.FileIO(fd)


def hash_file(name: str, *, dir_fd: int | None = None, force: bool = False) -> bytes:
    """Return the SHA-256 of a regular file; see `open_file`."""
    with open_file(name, dir_fd=dir_fd, force=force) as file:
        return hashlib.file_digest(file, "sha256").digest()


def grant(name: str, bits: int, *, dir_fd: int | None = None) -> None:
    """Add permission *bits* to a file or folder, never to the target of a link."""
    # chmod(2) follows links; through a descriptor of the thing itself it cannot.
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISLNK(mode):
            os.chmod(f"/proc/self/fd/{fd}", stat.S_IMODE(mode) | bits)
    finally:
        os.close(fd)


def is_empty(folder: Path) -> bool:
    """Return whether *folder* has no entries; raise OSError if it cannot be read."""
    with os.scandir(folder) as entries:
        return next(entries, None) is None


def is_inside(path: Path, root: Path) -> bool:
    """Return whether *path* is *root* or below it once links are followed."""
    return is_below(os.path.realpath(path), os.path.realpath(root))


def is_below(path: str, folder: str) -> bool:
    """Return whether *path* is *folder* or below it, by their text alone."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def identities(folders: Iterable[Path]) -> Folders:
    """Return the device and inode of each of *folders* that exists."""
    pairs: set[tuple[int, int]] = set()
    for folder in folders:
        with suppress(OSError):
            seen = folder.stat()
            pairs.add((seen.st_dev, seen.st_ino))
    return frozenset(pairs)


@contextmanager
def explained(what: str, where: Path) -> Iterator[None]:
    """Turn an OSError into an error that says *what* failed, *where*, and what to do."""
    try:
        yield
    except OSError as error:
        raise trouble(what, where, error) from error


def trouble(what: str, where: Path | str, error: OSError) -> WorkspaceError:
    """Return the error that says *what* failed *where*."""
    reason = error.strerror or str(error)
    return WorkspaceError(f"{what}: {escape_surrogates(str(where))}: {reason}", hint=_HINTS.get(error.errno or 0))
