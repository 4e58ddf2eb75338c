"""Copy and remove whole folders, whatever an agent left in them.

A copy has the dotfiles, links, modes, times and holes of the original, and shares its blocks if the disk can.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from itertools import islice
from pathlib import Path

from whet.errors import WorkspaceError
from whet.reading.text import escape_surrogates
from whet.workspace._diff import FileState, Inventory
from whet.workspace.walk import GIT, DirectoryWalk, Folders, WalkStep, open_file, trouble, walk

_FICLONE = 0x40049409
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK = 512
_SPAN = 1 << 30
_AS_OWNER = stat.S_ISUID | stat.S_ISGID
_PROGRAM = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH
_CAPABILITIES = "security.capability"
_TRIES = 3
_MAX_PROBLEMS = 20


def copy_tree(source: Path, destination: Path, *, force: bool = False, own: Folders = frozenset()) -> Inventory:
    """Copy the contents of *source* into the folder *destination*, and return the inventory of the copy.

    Leave out sockets, fifos, devices and whet's *own* folders. With *force*, *source* is what an agent left: missing
    permissions do not stop us, and it must not be a link. Neither folder may be inside the other.
    The owner can write to every folder of the copy, and to the files of folders that are read-only in *source*.
    """
    copier = _Copier(force=force, own=own)
    with DirectoryWalk(source, follow=not force, force=force) as src, DirectoryWalk(destination, follow=True) as dst:
        copier.copy(src, dst)
    return copier.inventory


def copy_some(source: Path, destination: Path, wanted: Callable[[str], bool]) -> None:
    """Copy the *wanted* files and every folder, but not the `.git` folder at the top."""
    copier = _Copier(force=True, wanted=wanted, skip=GIT)
    with DirectoryWalk(source, force=True) as src, DirectoryWalk(destination) as dst:
        copier.copy(src, dst)


def merge_tree(
    source: Path, destination: Path, wanted: Callable[[str], bool], *, skip: frozenset[str] = frozenset()
) -> None:
    """Copy the *wanted* files over those in *destination*; leave out folders at the top that are named in *skip*."""
    copier = _Copier(force=False, wanted=wanted, skip=skip, merge=True)
    with DirectoryWalk(source, follow=True) as src, DirectoryWalk(destination) as dst:
        copier.copy(src, dst)


class _Copier:
    def __init__(
        self,
        *,
        force: bool,
        wanted: Callable[[str], bool] | None = None,
        skip: frozenset[str] = frozenset(),
        own: Folders = frozenset(),
        merge: bool = False,
    ) -> None:
        self.inventory = Inventory()
        self._merge = merge
        self._force = force
        self._wanted = wanted
        self._skip = skip
        self._own = own
        # Whether the owner may write to the current folder, and to each one above it.
        self._open: list[bool] = []

    def copy(self, src: DirectoryWalk, dst: DirectoryWalk) -> None:
        self._open = [_is_open(os.fstat(src.fd))]
        for step in walk(src, skip=self._skip, own=self._own):
            try:
                self._take(step, src, dst)
            except OSError as error:
                # A process that still runs here may remove a file; then there is nothing to copy.
                if isinstance(error, FileNotFoundError) and step.kind == "item":
                    continue
                raise trouble("cannot copy", src.path(step), error) from error

    def _take(self, step: WalkStep, src: DirectoryWalk, dst: DirectoryWalk) -> None:
        if step.kind == "enter":
            with suppress(FileExistsError) if self._merge else nullcontext():
                os.mkdir(step.name, stat.S_IRWXU, dir_fd=dst.fd)
            dst.enter(step.name)
            self._open.append(_is_open(step.stat))
        elif step.kind == "leave":
            _finish(dst.fd, step.stat, stat.S_IRWXU)
            dst.leave()
            self._open.pop()
        elif step.kind == "unread":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        elif self._wanted is None or self._wanted(src.path(step)):
            self._item(step, src, dst)

    def _item(self, step: WalkStep, src: DirectoryWalk, dst: DirectoryWalk) -> None:
        if self._merge:
            with suppress(FileNotFoundError):
                os.unlink(step.name, dir_fd=dst.fd)
        if stat.S_ISLNK(step.stat.st_mode):
            os.symlink(os.readlink(step.name, dir_fd=src.fd), step.name, dir_fd=dst.fd)
            times = (step.stat.st_atime_ns, step.stat.st_mtime_ns)
            os.utime(step.name, ns=times, dir_fd=dst.fd, follow_symlinks=False)
            made = os.stat(step.name, dir_fd=dst.fd, follow_symlinks=False)
        elif stat.S_ISREG(step.stat.st_mode):
            more = 0 if self._force or self._open[-1] else stat.S_IWUSR
            made = _copy_file(step, src.fd, dst.fd, force=self._force, more=more)
        else:
            return
        if src.top not in GIT:
            self.inventory.files[src.path(step)] = FileState.of(made)


def _is_open(status: os.stat_result) -> bool:
    return bool(status.st_mode & stat.S_IWUSR)


def _copy_file(step: WalkStep, src_fd: int, dst_fd: int, *, force: bool, more: int) -> os.stat_result:
    with open_file(step.name, dir_fd=src_fd, force=force) as source:
        copy = os.open(step.name, _CREATE, stat.S_IRUSR | stat.S_IWUSR, dir_fd=dst_fd)
        try:
            _copy_bytes(source.fileno(), copy)
            _finish(copy, step.stat, more)
            return os.fstat(copy)
        finally:
            os.close(copy)


def _finish(fd: int, like: os.stat_result, more: int) -> None:
    os.fchmod(fd, stat.S_IMODE(like.st_mode) | more)
    os.utime(fd, ns=(like.st_atime_ns, like.st_mtime_ns))


def _copy_bytes(source: int, copy: int) -> None:
    status = os.fstat(source)
    if not status.st_size:
        return
    with suppress(OSError):
        fcntl.ioctl(copy, _FICLONE, source)
        return
    for start, end in extents(source, status):
        _copy_range(source, copy, start, end)
    if os.fstat(copy).st_size < status.st_size:
        # The file ends with a hole.
        os.ftruncate(copy, status.st_size)


def extents(fd: int, status: os.stat_result) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each run of data in a file, without its holes."""
    if status.st_blocks * _BLOCK >= status.st_size:
        yield 0, status.st_size
        return
    at = 0
    while at < status.st_size:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
            at = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            start, at = at, status.st_size
        yield start, at


def _copy_range(source: int, copy: int, at: int, end: int) -> None:
    while at < end:
        try:
            done = os.copy_file_range(source, copy, min(end - at, _SPAN), at, at)
        except OSError as error:
            if error.errno not in {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM}:
                raise
            os.lseek(copy, at, os.SEEK_SET)
            done = os.sendfile(copy, source, at, min(end - at, _SPAN))
        if not done:
            # The file became shorter while we copied it.
            return
        at += done


def tree_size(path: Path) -> int:
    """Return how many bytes the files below *path* hold; what vanishes meanwhile counts nothing."""
    size = 0
    for place, _, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):
                size += Path(place, name).lstat().st_size
    return size


def remove_tree(path: Path) -> list[str]:
    """Delete *path* and everything below it; return a sentence for each thing that could not be deleted."""
    try:
        path.rmdir()
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        return _unlinked(path)
    except OSError:
        return _emptied(path)
    return []


def clear(path: Path) -> None:
    """Delete *path* and everything below it; raise if something is left."""
    if problems := remove_tree(path):
        raise WorkspaceError(problems[0])


def _unlinked(path: Path) -> list[str]:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        return [_problem(str(path), error)]
    return []


def _emptied(path: Path) -> list[str]:
    try:
        # Much quicker, and enough unless the tree is very deep or has folders without permissions.
        shutil.rmtree(path)
    except (OSError, RecursionError):
        return _removed_by_walk(path)
    return []


def _removed_by_walk(path: Path) -> list[str]:
    """Delete a folder of any depth, with permissions of any kind."""
    shown: list[str] = []
    # Several times, because a process that still runs here may add something while we delete.
    for _ in range(_TRIES):
        try:
            problems = _problems_below(path)
            shown = list(islice(problems, _MAX_PROBLEMS))
            if more := sum(1 for _ in problems):
                shown.append(f"and {more} more below {path}")
            path.rmdir()
        except FileNotFoundError:
            return []
        except OSError as error:
            shown = shown or [_problem(str(path), error)]
        else:
            return []
    return shown


def _problems_below(path: Path) -> Iterator[str]:
    """Delete what is in the folder *path*; yield a sentence for each thing that could not be deleted."""
    with DirectoryWalk(path, open_up=True) as place:
        for step in walk(place):
            try:
                if step.kind == "unread":
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
                if step.kind == "leave":
                    os.rmdir(step.name, dir_fd=place.fd)
                elif step.kind == "item":
                    os.unlink(step.name, dir_fd=place.fd)
            except FileNotFoundError:
                continue
            except OSError as error:
                # A folder that is not empty has something in it that is already reported, or is new.
                if error.errno != errno.ENOTEMPTY:
                    yield _problem(f"{path}/{place.path(step)}", error)


def _problem(path: str, error: OSError) -> str:
    return f"cannot remove {escape_surrogates(path)}: {error.strerror or error}"


def make_presentable(root: Path) -> None:
    """Let the owner open every folder that an agent left, and delete its sockets, fifos and devices."""
    with DirectoryWalk(root, open_up=True) as place:
        for step in walk(place):
            if step.kind == "item" and not (stat.S_ISREG(step.stat.st_mode) or stat.S_ISLNK(step.stat.st_mode)):
                with suppress(OSError):
                    os.unlink(step.name, dir_fd=place.fd)


def drop_privileges(folders: Iterable[Path]) -> None:
    """Take the setuid and setgid bits from all files below *folders*, and capabilities from their programs."""
    for folder in folders:
        with suppress(OSError), DirectoryWalk(folder, force=True) as place:
            for step in walk(place):
                if step.kind == "item" and stat.S_ISREG(step.stat.st_mode):
                    _drop_privileges(place.fd, step.name, step.stat.st_mode)


def _drop_privileges(folder: int, name: str, mode: int) -> None:
    if mode & _AS_OWNER:
        with suppress(OSError):
            os.chmod(name, stat.S_IMODE(mode) & ~_AS_OWNER, dir_fd=folder)
    if mode & _PROGRAM:
        # Few have any; then there is nothing to remove, which is an error too.
        with suppress(OSError):
            os.removexattr(f"/proc/self/fd/{folder}/{name}", _CAPABILITIES, follow_symlinks=False)
