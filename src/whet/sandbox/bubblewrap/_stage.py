"""The stage: read-only copies of folders that only we and our children know, made once and shown in every sandbox.

The standard library has no call for them, so they are mounted by system calls through ctypes.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import signal
import struct
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from whet.linux import MS_BIND, MS_NODEV, MS_NOSUID, MS_RDONLY, check, die_with_parent, libc, mount
from whet.workspace.mounts import mounted, private_mounts

_CLONE_NEWUSER = 0x10000000
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH = 1, 4
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_IDMAP = 1, 0x00100000
# The only id that has a meaning in an ownerless mount; no file has it.
_UNUSED_ID = 2**32 - 2
_NAME = "whet-stage"
# Settings of the kernel are a line, or a few.
_MOST_OF_A_FILE = 65536
# Folders on which to mount the stage. They exist and are hardly used, and the mount is visible only to us.
# Not below /proc: if one of its folders is covered, the kernel forbids mounting another /proc inside.
_PLACES = ("/boot", "/var/spool", "/var/mail", "/var/empty")


class _StageState:
    folder: Path | None = None
    no_owners: int | None = None


def clone(folder: str, *, ownerless: bool = False, covers: Sequence[str] = ()) -> Path:
    """Mount a read-only copy of *folder*, with all mounts below it, and return its path, which only we know.

    With `ownerless`, no file in it belongs to us: only the permissions of others count. The paths in
    *covers* are hidden. Raises `OSError` if the kernel, the file system or our rights do not allow it.
    """
    place, note = _place_on_stage((folder, ownerless, covers))
    if note is not None:
        _attach(folder, place, ownerless=ownerless)
        for path in covers:
            _cover(place / Path(path).relative_to(folder))
        note.touch()
    return place


def snapshot(folder: str, *, without: Collection[str], live: str) -> Path:
    """Write down the small files of *folder* as they are now, in memory, and return its path, which only we know.

    Leaves out the paths in *without*. The folder *live* in it is the real one.
    """
    place, note = _place_on_stage((folder, sorted(without), live))
    if note is not None:
        mount(_NAME.encode(), place, b"tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
        _write_down(folder, str(place), {*without, live})
        (place / Path(live).relative_to(folder)).mkdir(parents=True)
        _attach(live, place / Path(live).relative_to(folder), ownerless=False)
        note.touch()
    return place


def _place_on_stage(content: object) -> tuple[Path, Path | None]:
    """Return the place of *content* on the stage, and the note to make when it is mounted; None if it is already.

    Processes that we fork share the stage, and find there what one of them has made.
    """
    name = hashlib.sha256(repr((_view(), content)).encode()).hexdigest()[:16]
    place, note = _stage() / name, _stage() / f"{name}.ready"
    # The kernel gives the id of a view to another one later, so the folder may be left from a view that has ended.
    if note.exists() and place.is_mount():
        return place, None
    try:
        place.mkdir()
    except FileExistsError:
        # Another process is making it.
        place = _stage() / f"{name}-{os.getpid()}"
        place.mkdir(exist_ok=True)
        note = place.with_suffix(".ready")
    return place, note


def _attach(folder: str, place: Path, *, ownerless: bool) -> None:
    flags = ctypes.c_uint(_OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC)
    tree = check(libc.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(folder), flags), folder)
    try:
        attributes = _MOUNT_ATTR_RDONLY | (_MOUNT_ATTR_IDMAP if ownerless else 0)
        asked = struct.pack("QQQQ", attributes, 0, 0, _no_owners() if ownerless else 0)
        whole = ctypes.c_uint(_AT_EMPTY_PATH | _AT_RECURSIVE)
        check(libc.syscall(_MOUNT_SETATTR, tree, b"", whole, asked, ctypes.c_size_t(len(asked))), folder)
        to = (_AT_FDCWD, os.fsencode(place), ctypes.c_uint(_MOVE_MOUNT_F_EMPTY_PATH))
        check(libc.syscall(_MOVE_MOUNT, tree, b"", *to), str(place))
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
        mount(b"nothing", path, b"tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "mode=755,size=4k")
    else:
        mount(os.fsencode(os.devnull), path, None, MS_BIND)


def _view() -> str:
    """Return the id of our view of mounts: another view may show the stage as well."""
    return os.readlink("/proc/self/ns/mnt")


def _stage() -> Path:
    """Return the folder for clones: a file system in memory, which ends with us."""
    if _StageState.folder is not None:
        return _StageState.folder
    if not private_mounts():
        raise PermissionError(1, "mounts are not private")
    place = next((place for place in map(Path, _PLACES) if place.is_dir() and not place.is_symlink()), None)
    if place is None:
        raise FileNotFoundError(2, "there is no place to mount on")
    # A process of ours may have mounted it before; a second mount would hide the first.
    if not any(other.place == place and other.source == _NAME for other in mounted()):
        mount(_NAME.encode(), place, b"tmpfs", MS_NOSUID | MS_NODEV, "mode=700")
    _StageState.folder = place
    return place


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
