"""Mounts that only this process and what it starts can see, and that end with it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

_CLONE_NEWNS = 0x00020000
_MS_RDONLY = 1
_MS_REC = 0x4000
_MS_PRIVATE = 1 << 18
_MNT_DETACH = 2

# Renamed folders and changed permissions are copied up whole, so that the upper folder alone tells what changed.
_OPTIONS = "redirect_dir=off,metacopy=off,index=off"

_libc = ctypes.CDLL(None, use_errno=True)


class _State:
    private: bool | None = None


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
            _mount(target, options, _MS_RDONLY)
            return
        options += f",upperdir={named(upper)},workdir={named(work)}"
        try:
            # Without it, unmounting writes all of the disk's unwritten pages; nothing here outlives a power cut.
            _mount(target, f"{options},volatile", 0)
        except OSError:
            _mount(target, options, 0)


def unmount(target: Path) -> None:
    """Take the mount at *target* away; what still uses it keeps it until it ends."""
    _check(_libc.umount2(os.fsencode(target), _MNT_DETACH), target)


def _mount(target: Path, options: str, flags: int) -> None:
    _check(
        _libc.mount(b"overlay", os.fsencode(target), b"overlay", ctypes.c_ulong(flags), options.encode()),
        target,
    )


def _one_thread() -> bool:
    try:
        return len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208 - names are enough
    except OSError:
        return False


def _unshared() -> bool:
    try:
        _check(_libc.unshare(_CLONE_NEWNS), Path("/"))
        _check(_libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None), Path("/"))
    except OSError:
        return False
    return True


def _check(result: int, target: Path) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(target))
