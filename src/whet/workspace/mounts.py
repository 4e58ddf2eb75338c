"""Mounts that only this process and its children can see, and that end with it.

The standard library has no call for them, so they are made by system calls through ctypes.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import signal
import struct
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, NoReturn

from whet.linux import die_with_parent, libc

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 2, 4, 0x1000, 0x4000, 1 << 18
_MNT_DETACH = 2
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH = 1, 4
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_IDMAP = 1, 0x00100000
# The overlay copies renamed folders and changed permissions up whole, so that the upper folder alone shows the changes.
_OVERLAY_OPTIONS = "redirect_dir=off,metacopy=off,index=off"
# The only id that has a meaning in an ownerless mount; no file has it.
_UNUSED_ID = 2**32 - 2
_STAGE_NAME = "whet-stage"
# Settings of the kernel are a line, or a few.
_MOST_OF_A_FILE = 65536
# Folders on which to mount the stage. They exist and are hardly used, and the mount is visible only to us.
# Not below /proc: if one of its folders is covered, the kernel forbids mounting another /proc inside.
_STAGES = ("/boot", "/var/spool", "/var/mail", "/var/empty")


class _StageState:
    private: bool | None = None
    stage: Path | None = None
    no_owners: int | None = None


class Mount(NamedTuple):
    """What is mounted at a place: the type of file system, its source and its options."""

    place: Path
    kind: str
    source: str
    options: list[str]


def mounted() -> list[Mount]:
    """Return every mount that we can see."""
    found = []
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").split("\n")[:-1]:
            before, _, after = line.partition(" - ")
            kind, source, options = after.split(" ", 2)
            found.append(Mount(Path(before.split(" ")[4]), kind, source, options.split(",")))
    return found


def private_mounts() -> bool:
    """Give this process its own view of mounts; return False if that is not allowed.

    Call it early, while there is one thread: other threads would keep the old view.
    """
    if _StageState.private is None:
        _StageState.private = _one_thread() and _unshared()
    return _StageState.private


def are_private() -> bool:
    """Return whether `private_mounts` was called and succeeded."""
    return bool(_StageState.private)


def mount_overlay(target: Path, *, lower: Sequence[Path], upper: Path | None, work: Path | None) -> None:
    """Show the *lower* folders, the first on top, at *target*; writes go to *upper*."""
    with ExitStack() as stack:

        def named(path: Path) -> str:
            # By descriptor: a path may contain the separators of options, or be longer than options may be.
            fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, fd)
            return f"/proc/self/fd/{fd}"

        options = f"lowerdir={':'.join(named(path) for path in lower)},{_OVERLAY_OPTIONS}"
        if upper is None or work is None:
            _mount(b"overlay", target, b"overlay", _MS_RDONLY, options)
            return
        options += f",upperdir={named(upper)},workdir={named(work)}"
        try:
            # Otherwise unmounting writes all unwritten pages of the disk; nothing here has to survive a power cut.
            _mount(b"overlay", target, b"overlay", 0, f"{options},volatile")
        except OSError:
            _mount(b"overlay", target, b"overlay", 0, options)


def unmount(target: Path) -> None:
    """Remove the mount at *target*; processes that still use it keep it until they end."""
    _check(libc.umount2(os.fsencode(target), _MNT_DETACH), str(target))


def clone(folder: str, *, ownerless: bool = False, covers: Sequence[str] = ()) -> Path:
    """Mount a read-only copy of *folder*, with all mounts below it, and return its path, which only we know.

    With `ownerless`, no file in it belongs to us: only the permissions of others count. The paths in
    *covers* are hidden. Raises `OSError` if the kernel, the file system or our rights do not allow it.
    """

    def make(place: Path) -> None:
        _attach(folder, place, ownerless=ownerless)
        for path in covers:
            _cover(place / Path(path).relative_to(folder))

    return _staged((folder, ownerless, covers), make)


def snapshot(folder: str, *, without: Collection[str], live: str) -> Path:
    """Write down the small files of *folder* as they are now, in memory, and return its path, which only we know.

    Leaves out the paths in *without*. The folder *live* in it is the real one.
    """

    def make(place: Path) -> None:
        _mount(_STAGE_NAME.encode(), place, b"tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755")
        _write_down(folder, str(place), {*without, live})
        (place / Path(live).relative_to(folder)).mkdir(parents=True)
        _attach(live, place / Path(live).relative_to(folder), ownerless=False)

    return _staged((folder, sorted(without), live), make)


def _staged(what: object, make: Callable[[Path], object]) -> Path:
    """Return the place of *what* on the stage, after letting *make* mount it.

    Processes that we fork share the stage, and find there what one of them has made.
    """
    name = hashlib.sha256(repr((_view(), what)).encode()).hexdigest()[:16]
    place, ready = _stage() / name, _stage() / f"{name}.ready"
    # The kernel gives the id of a view to another one later, so the folder may be left from a view that has ended.
    if ready.exists() and place.is_mount():
        return place
    try:
        place.mkdir()
    except FileExistsError:
        # Another process is making it.
        place = _stage() / f"{name}-{os.getpid()}"
        place.mkdir(exist_ok=True)
    make(place)
    if place.name == name:
        ready.touch()
    return place


def _attach(folder: str, place: Path, *, ownerless: bool) -> None:
    flags = ctypes.c_uint(_OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC)
    tree = _check(libc.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(folder), flags), folder)
    try:
        attributes = _MOUNT_ATTR_RDONLY | (_MOUNT_ATTR_IDMAP if ownerless else 0)
        asked = struct.pack("QQQQ", attributes, 0, 0, _no_owners() if ownerless else 0)
        whole = ctypes.c_uint(_AT_EMPTY_PATH | _AT_RECURSIVE)
        _check(libc.syscall(_MOUNT_SETATTR, tree, b"", whole, asked, ctypes.c_size_t(len(asked))), folder)
        to = (_AT_FDCWD, os.fsencode(place), ctypes.c_uint(_MOVE_MOUNT_F_EMPTY_PATH))
        _check(libc.syscall(_MOVE_MOUNT, tree, b"", *to), str(place))
    finally:
        os.close(tree)


def _write_down(folder: str, place: str, without: Collection[str]) -> None:
    """Copy what is below *folder*, except what is *without* or cannot be read."""
    for entry in os.scandir(folder):
        target = f"{place}/{entry.name}"
        if entry.path in without:
            continue
        if entry.is_dir(follow_symlinks=False):
            os.mkdir(target)
            _write_down(entry.path, target, without)
            continue
        with suppress(OSError), open(entry.path, "rb", buffering=0) as file:
            content = file.read(_MOST_OF_A_FILE) or b""
            with open(target, "xb", buffering=0) as copy:
                copy.write(content)


def _cover(path: Path) -> None:
    """Hide the folder or file at *path*."""
    if path.is_dir():
        _mount(b"nothing", path, b"tmpfs", _MS_RDONLY | _MS_NOSUID | _MS_NODEV, "mode=755,size=4k")
    else:
        _mount(os.fsencode(os.devnull), path, None, _MS_BIND)


def _view() -> str:
    """Return the id of our view of mounts: another view may show the stage as well."""
    return os.readlink("/proc/self/ns/mnt")


def _stage() -> Path:
    """Return the folder for clones: a file system in memory, which ends with us."""
    if not are_private():
        raise PermissionError(1, "mounts are not private")
    if _StageState.stage is None:
        place = next((place for place in map(Path, _STAGES) if place.is_dir() and not place.is_symlink()), None)
        if place is None:
            raise FileNotFoundError(2, "there is no place to mount on")
        # A process of ours may have mounted it before; a second mount would hide the first.
        if not any(mount.place == place and mount.source == _STAGE_NAME for mount in mounted()):
            _mount(_STAGE_NAME.encode(), place, b"tmpfs", _MS_NOSUID | _MS_NODEV, "mode=700")
        _StageState.stage = place
    return _StageState.stage


def _no_owners() -> int:
    """Return a user namespace in which no id has a meaning, to translate owners and groups with."""
    if _StageState.no_owners is None:
        pid = os.fork()
        if pid == 0:
            _wait_in_own_namespace()
        try:
            os.waitpid(pid, os.WUNTRACED)
            for kind in ("uid", "gid"):
                Path(f"/proc/{pid}/{kind}_map").write_text(f"{_UNUSED_ID} {_UNUSED_ID} 1")
            _StageState.no_owners = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
    return _StageState.no_owners


def _wait_in_own_namespace() -> NoReturn:
    parent = os.getppid()
    libc.unshare(_CLONE_NEWUSER)
    # Afterwards, because a new namespace takes the request back: stopped, we would outlive a parent that is killed.
    die_with_parent()
    if os.getppid() == parent:
        os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)


def _one_thread() -> bool:
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


def _unshared() -> bool:
    try:
        _check(libc.unshare(_CLONE_NEWNS), "/")
        _mount(None, Path("/"), None, _MS_REC | _MS_PRIVATE)
    except OSError:
        return False
    return True


def _mount(source: bytes | None, target: Path, kind: bytes | None, flags: int, options: str | None = None) -> None:
    """Call mount(2); *kind* is the type of file system."""
    data = None if options is None else options.encode()
    _check(libc.mount(source, os.fsencode(target), kind, ctypes.c_ulong(flags), data), str(target))


def _check(result: int, about: str) -> int:
    """Return the result of a system call; raise `OSError` if it failed."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), about)
    return result
