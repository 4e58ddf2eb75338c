"""Folders read as an agent may have left them: no link is followed, nothing is opened that could block, any depth."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Self, TypeAlias

from whet.dataclass import dataclass

GIT = frozenset({".git"})
# Folders told by what they are and not by name, so that no link and no other spelling leads into them.
Folders: TypeAlias = frozenset[tuple[int, int]]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_THROUGH = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LOOK = stat.S_IRUSR | stat.S_IXUSR
_CLOSED = -1


def grant(name: str, bits: int, *, dir_fd: int | None = None) -> None:
    """Add permission *bits* to a file or folder, never to what a link points at."""
    # chmod(2) follows links; through a descriptor of the thing itself it cannot.
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISLNK(mode):
            os.chmod(f"/proc/self/fd/{fd}", stat.S_IMODE(mode) | bits)  # noqa: PTH101 - no Path has a descriptor
    finally:
        os.close(fd)


def is_empty(folder: Path) -> bool:
    """Whether there is nothing in *folder*; an OSError where nobody can tell."""
    with os.scandir(folder) as entries:
        return next(entries, None) is None


def open_file(name: str, *, dir_fd: int | None = None) -> int:
    """A descriptor of a regular file; anything else is an OSError."""
    fd = os.open(name, _FILE, dir_fd=dir_fd)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", name)
    return fd


@dataclass(slots=True)
class _Level:
    fd: int
    restore: int | None = None
    identity: tuple[int, int] = (0, 0)


class Descent:
    """A place in a tree, moved one folder at a time; holds few descriptors however deep it is.

    With `force`, permissions that the agent took from its own folders are lent back while we are inside;
    with `open_up` its owner keeps all of them, so that a person can look in and delete it.
    """

    _open_levels = 32

    def __init__(self, root: Path, *, follow: bool = False, force: bool = False, open_up: bool = False) -> None:
        self._force = force or open_up
        self._wanted = stat.S_IRWXU if open_up else _LOOK
        self._lend = not open_up
        flags = _FOLDER & ~os.O_NOFOLLOW if follow else _FOLDER
        self._levels = [self._opened(str(root), None, flags)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for level in self._levels:
            if level.fd != _CLOSED:
                self._close(level)

    @property
    def fd(self) -> int:
        """The folder where we are."""
        return self._levels[-1].fd

    def enter(self, name: str) -> None:
        """Go into a folder below."""
        self._levels.append(self._opened(name, self.fd, _FOLDER))
        if len(self._levels) > self._open_levels:
            self._rest(self._levels[-self._open_levels - 1])

    def leave(self) -> None:
        """Go back up."""
        level = self._levels.pop()
        try:
            self._wake(self._levels[-1], level.fd)
        finally:
            self._close(level)

    def _opened(self, name: str, dir_fd: int | None, flags: int) -> _Level:
        if not self._force:
            return _Level(os.open(name, flags, dir_fd=dir_fd))
        before = stat.S_IMODE(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode)
        if before & self._wanted == self._wanted:
            return _Level(os.open(name, flags, dir_fd=dir_fd))
        grant(name, stat.S_IRWXU, dir_fd=dir_fd)
        return _Level(os.open(name, flags, dir_fd=dir_fd), restore=before if self._lend else None)

    @staticmethod
    def _rest(level: _Level) -> None:
        if level.fd == _CLOSED:
            return
        found = os.fstat(level.fd)
        level.identity = (found.st_dev, found.st_ino)
        os.close(level.fd)
        level.fd = _CLOSED

    @staticmethod
    def _wake(level: _Level, below: int) -> None:
        if level.fd != _CLOSED:
            return
        fd = os.open("..", _FOLDER, dir_fd=below)
        found = os.fstat(fd)
        if (found.st_dev, found.st_ino) != level.identity:
            os.close(fd)
            raise OSError(errno.ESTALE, "a folder was moved while it was looked at")
        level.fd = fd

    @staticmethod
    def _close(level: _Level) -> None:
        if level.restore is not None:
            with suppress(OSError):
                os.fchmod(level.fd, level.restore)
        os.close(level.fd)


class Step(NamedTuple):
    """One step of a walk: an item that is no folder, a folder entered or left, or one that may not be read."""

    kind: Literal["item", "enter", "leave", "unread"]
    name: str
    stat: os.stat_result


def identities(folders: Iterable[Path]) -> Folders:
    """What tells those of *folders* that are there from all others."""
    found: set[tuple[int, int]] = set()
    for folder in folders:
        with suppress(OSError):
            seen = folder.stat()
            found.add((seen.st_dev, seen.st_ino))
    return frozenset(found)


def walk(place: Descent, *, skip: frozenset[str] = frozenset(), own: Folders = frozenset()) -> Iterator[Step]:
    """Every step through the tree below *place*, which moves along; folders of our *own* are passed by.

    So are those named in *skip*, but only at the top: what an agent does in a repository of its own making is seen.
    """
    waiting: list[list[Step]] = [[]]
    entered: list[Step] = []
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
                yield entered.pop()._replace(kind="leave")
                place.leave()


def _enter(place: Descent, name: str) -> Literal["enter", "unread", "gone"]:
    try:
        place.enter(name)
    except PermissionError:
        return "unread"
    except OSError as error:
        # Gone or replaced since it was listed: a process still works here.
        if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
            return "gone"
        raise
    return "enter"


def _items(place: Descent, folders: list[Step], skip: frozenset[str], own: Folders) -> Iterator[Step]:
    with os.scandir(place.fd) as entries:
        for entry in entries:
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            except PermissionError:
                yield Step("unread", entry.name, os.fstat(place.fd))
                continue
            if not stat.S_ISDIR(found.st_mode):
                yield Step("item", entry.name, found)
            elif entry.name not in skip and (found.st_dev, found.st_ino) not in own:
                folders.append(Step("enter", entry.name, found))


class Tree:
    """A folder whose files are reached by relative path, component by component, so that no link leads out of it."""

    def __init__(self, root: Path, *, follow: bool = False) -> None:
        self.root = root
        self._flags = _THROUGH & ~os.O_NOFOLLOW if follow else _THROUGH

    def stat(self, path: str) -> os.stat_result | None:
        """What is at *path*, or None."""
        try:
            with self._parent(path) as (fd, name):
                return os.stat(name, dir_fd=fd, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open(self, path: str) -> int:
        """A descriptor of the regular file at *path*."""
        with self._parent(path) as (fd, name):
            return open_file(name, dir_fd=fd)

    def read(self, path: str, limit: int) -> bytes:
        """The first *limit* bytes of the regular file at *path*."""
        fd = self.open(path)
        with open(fd, "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor, not a path
            parts = []
            while limit > 0 and (part := file.read(limit)):
                parts.append(part)
                limit -= len(part)
        return b"".join(parts)

    def link(self, path: str) -> str:
        """Where the symbolic link at *path* points."""
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
