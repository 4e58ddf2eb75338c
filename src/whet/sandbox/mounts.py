"""Mounts that only this process and what it starts can see, and that end with it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
from itertools import count
from pathlib import Path
from typing import NoReturn

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 2, 4, 0x1000, 0x4000, 1 << 18
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH = 1, 4
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_IDMAP = 1, 0x00100000
# The only id that is given a meaning in a mount of somebody else's files; no file has it.
_NOBODY_AT_ALL = 2**32 - 2
# Where clones are put: hidden from nobody but us, no place for anybody's work, and nothing has to be made for it or
# cleared away. Not below /proc: a kernel that sees one of its own folders covered lets nobody inside mount another.
_STAGES = ("/boot", "/var/spool", "/var/mail", "/var/empty")

libc = ctypes.CDLL(None, use_errno=True)


class _State:
    private: bool | None = None
    stage: Path | None = None
    strangers: int | None = None
    numbers = count(1)


def private_mounts() -> bool:
    """Give this process its own view of mounts; False where that is not allowed.

    To be called early, while there is one thread: others would keep the old view.
    """
    if _State.private is None:
        _State.private = _one_thread() and _unshared()
    return _State.private


def are_private() -> bool:
    """Whether `private_mounts` was called and succeeded."""
    return bool(_State.private)


def clone(folder: str, *, strange: bool = False) -> Path:
    """*folder* once more, read-only, with all that is mounted below it, at a path that only we know.

    With `strange`, every file in it is somebody else's: owner and group count for nobody, and only what others may do
    may be done. Raises `OSError` where the kernel, the file system or our rights do not allow it.
    """
    # Forked processes of ours share the stage.
    place = _stage() / f"{os.getpid()}-{next(_State.numbers)}"
    tree = check(
        libc.syscall(
            _OPEN_TREE,
            _AT_FDCWD,
            os.fsencode(folder),
            ctypes.c_uint(_OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC),
        ),
        folder,
    )
    try:
        attributes = _MOUNT_ATTR_RDONLY | (_MOUNT_ATTR_IDMAP if strange else 0)
        asked = struct.pack("QQQQ", attributes, 0, 0, _strangers() if strange else 0)
        flags = ctypes.c_uint(_AT_EMPTY_PATH | _AT_RECURSIVE)
        check(libc.syscall(_MOUNT_SETATTR, tree, b"", flags, asked, ctypes.c_size_t(len(asked))), folder)
        place.mkdir()
        to = (_AT_FDCWD, os.fsencode(place), ctypes.c_uint(_MOVE_MOUNT_F_EMPTY_PATH))
        check(libc.syscall(_MOVE_MOUNT, tree, b"", *to), str(place))
    finally:
        os.close(tree)
    return place


def cover(path: Path) -> None:
    """Show nothing at *path*, be it a folder or a file."""
    if path.is_dir():
        flags = ctypes.c_ulong(_MS_RDONLY | _MS_NOSUID | _MS_NODEV)
        check(libc.mount(b"nothing", os.fsencode(path), b"tmpfs", flags, b"mode=755,size=4k"), str(path))
        return
    source = os.fsencode(os.devnull)
    check(libc.mount(source, os.fsencode(path), None, ctypes.c_ulong(_MS_BIND), None), str(path))


def unmount(target: Path) -> None:
    """Take the mount at *target* away; what still uses it keeps it until it ends."""
    detach = 2
    check(libc.umount2(os.fsencode(target), detach), str(target))


def check(result: int, about: str) -> int:
    """What a call of the system gave, or what it refused as an `OSError`."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), about)
    return result


def _stage() -> Path:
    """Where clones are put: a file system in memory, which ends with us."""
    if not are_private():
        raise PermissionError(1, "mounts are not private")
    if _State.stage is None:
        place = next((place for place in map(Path, _STAGES) if place.is_dir() and not place.is_symlink()), None)
        if place is None:
            raise FileNotFoundError(2, "there is no place to mount on")
        flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV)
        check(libc.mount(b"whet", os.fsencode(place), b"tmpfs", flags, b"mode=700"), str(place))
        _State.stage = place
    return _State.stage


def _strangers() -> int:
    """A user namespace in which no id means anything: what owners and groups are translated by."""
    if _State.strangers is None:
        pid = os.fork()
        if pid == 0:
            _wait_in_own_namespace()
        try:
            os.waitpid(pid, os.WUNTRACED)
            for kind in ("uid", "gid"):
                Path(f"/proc/{pid}/{kind}_map").write_text(f"{_NOBODY_AT_ALL} {_NOBODY_AT_ALL} 1")
            _State.strangers = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
    return _State.strangers


def _wait_in_own_namespace() -> NoReturn:
    libc.unshare(_CLONE_NEWUSER)
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)


def _one_thread() -> bool:
    try:
        return len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208 - names are enough
    except OSError:
        return False


def _unshared() -> bool:
    try:
        check(libc.unshare(_CLONE_NEWNS), "/")
        check(libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None), "/")
    except OSError:
        return False
    return True
