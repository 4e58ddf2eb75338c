"""Mounts that only this process and what it starts can see, and that end with it."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import signal
import struct
from collections.abc import Sequence
from contextlib import ExitStack
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
_NAME = b"whet-stage"
# Where clones are put: hidden from nobody but us, no place for anybody's work, and nothing has to be made for it or
# cleared away. Not below /proc: a kernel that sees one of its own folders covered lets nobody inside mount another.
_STAGES = ("/boot", "/var/spool", "/var/mail", "/var/empty")

libc = ctypes.CDLL(None, use_errno=True)


class _State:
    private: bool | None = None
    stage: Path | None = None
    strangers: int | None = None


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


def clone(folder: str, *, strange: bool = False, covers: Sequence[str] = ()) -> Path:
    """*folder* once more, read-only, with all that is mounted below it, at a path that only we know.

    With `strange`, every file in it is somebody else's: owner and group count for nobody, and only what others may do
    may be done. At *covers*, nothing is seen. Raises `OSError` where the kernel, the file system or our rights do not
    allow it. Forked processes of ours share the stage, and find there what one of them has made.
    """
    name = hashlib.sha256(repr((_view(), folder, strange, covers)).encode()).hexdigest()[:16]
    place, ready = _stage() / name, _stage() / f"{name}.ready"
    if ready.exists():
        return place
    try:
        place.mkdir()
    except FileExistsError:
        # Another one is about it.
        place = _stage() / f"{name}-{os.getpid()}"
        place.mkdir(exist_ok=True)
    _attach(folder, place, strange=strange)
    for path in covers:
        _cover(place / Path(path).relative_to(folder))
    if place.name == name:
        ready.touch()
    return place


def _attach(folder: str, place: Path, *, strange: bool) -> None:
    flags = ctypes.c_uint(_OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC)
    tree = check(libc.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(folder), flags), folder)
    try:
        attributes = _MOUNT_ATTR_RDONLY | (_MOUNT_ATTR_IDMAP if strange else 0)
        asked = struct.pack("QQQQ", attributes, 0, 0, _strangers() if strange else 0)
        whole = ctypes.c_uint(_AT_EMPTY_PATH | _AT_RECURSIVE)
        check(libc.syscall(_MOUNT_SETATTR, tree, b"", whole, asked, ctypes.c_size_t(len(asked))), folder)
        to = (_AT_FDCWD, os.fsencode(place), ctypes.c_uint(_MOVE_MOUNT_F_EMPTY_PATH))
        check(libc.syscall(_MOVE_MOUNT, tree, b"", *to), str(place))
    finally:
        os.close(tree)


def _cover(path: Path) -> None:
    """Show nothing at *path*, be it a folder or a file."""
    if path.is_dir():
        flags = ctypes.c_ulong(_MS_RDONLY | _MS_NOSUID | _MS_NODEV)
        check(libc.mount(b"nothing", os.fsencode(path), b"tmpfs", flags, b"mode=755,size=4k"), str(path))
        return
    source = os.fsencode(os.devnull)
    check(libc.mount(source, os.fsencode(path), None, ctypes.c_ulong(_MS_BIND), None), str(path))


def _view() -> str:
    """Which view of mounts is ours: a file system on the stage may be seen in another one as well."""
    return os.readlink("/proc/self/ns/mnt")  # noqa: PTH115 - a name and not a path


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
        if not _is_staged(place):
            flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV)
            check(libc.mount(_NAME, os.fsencode(place), b"tmpfs", flags, b"mode=700"), str(place))
        _State.stage = place
    return _State.stage


def _is_staged(place: Path) -> bool:
    """Whether a process of ours has mounted there already: a second mount would hide what is in the first."""
    mounts = (line.split(b" ") for line in Path("/proc/self/mountinfo").read_bytes().split(b"\n") if line)
    return any(fields[4] == os.fsencode(place) and _NAME in fields for fields in mounts)


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


_RDONLY = 1

# Renamed folders and changed permissions are copied up whole, so that the upper folder alone tells what changed.
_OPTIONS = "redirect_dir=off,metacopy=off,index=off"


def mount_overlay(target: Path, *, lower: Sequence[Path], upper: Path | None, work: Path | None) -> None:
    """Show the *lower* folders, the first on top, at *target*; what is written goes to *upper*."""
    with ExitStack() as stack:

        def named(path: Path) -> str:
            # By descriptor: a path may hold the characters that separate options, and be longer than they may be.
            fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, fd)
            return f"/proc/self/fd/{fd}"

        options = f"lowerdir={':'.join(named(path) for path in lower)},{_OPTIONS}"
        if upper is None or work is None:
            _mount(target, options, _RDONLY)
            return
        options += f",upperdir={named(upper)},workdir={named(work)}"
        try:
            # Without it, unmounting writes all of the disk's unwritten pages; nothing here outlives a power cut.
            _mount(target, f"{options},volatile", 0)
        except OSError:
            _mount(target, options, 0)


def _mount(target: Path, options: str, flags: int) -> None:
    check(
        libc.mount(b"overlay", os.fsencode(target), b"overlay", ctypes.c_ulong(flags), options.encode()),
        str(target),
    )
