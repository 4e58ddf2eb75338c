"""Mounts that only this process and its children can see, and that end with it.

The standard library has no call for them, so they are made by system calls through ctypes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from whet.linux import MS_PRIVATE, MS_RDONLY, MS_REC, check, libc, mount

_CLONE_NEWNS = 0x00020000
_MNT_DETACH = 2
# The overlay copies renamed folders and changed permissions up whole, so that the upper folder alone shows the changes.
_OVERLAY_OPTIONS = "redirect_dir=off,metacopy=off,index=off"


class _MountsState:
    private: bool | None = None


class Mount(NamedTuple):
    """What is mounted at a place: the type of file system, its source and its options."""

    place: Path
    kind: str
    source: str
    options: list[str]


def mounted() -> list[Mount]:
    """Return every mount that we can see."""
    mounts = []
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").split("\n")[:-1]:
            before, _, after = line.partition(" - ")
            kind, source, options = after.split(" ", 2)
            mounts.append(Mount(Path(before.split(" ")[4]), kind, source, options.split(",")))
    return mounts


def private_mounts() -> bool:
    """Give this process its own view of mounts; return False if that is not allowed.

    Call it early, while there is one thread: other threads would keep the old view.
    """
    if _MountsState.private is None:
        _MountsState.private = _one_thread() and _unshared()
    return _MountsState.private


def are_private() -> bool:
    """Return whether `private_mounts` was called and succeeded."""
    return bool(_MountsState.private)


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
            mount(b"overlay", target, b"overlay", MS_RDONLY, options)
            return
        options += f",upperdir={named(upper)},workdir={named(work)}"
        try:
            # Otherwise unmounting writes all unwritten pages of the disk; nothing here has to survive a power cut.
            mount(b"overlay", target, b"overlay", 0, f"{options},volatile")
        except OSError:
            mount(b"overlay", target, b"overlay", 0, options)


def unmount(target: Path) -> None:
    """Remove the mount at *target*; processes that still use it keep it until they end."""
    check(libc.umount2(os.fsencode(target), _MNT_DETACH), str(target))


def _one_thread() -> bool:
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


def _unshared() -> bool:
    try:
        check(libc.unshare(_CLONE_NEWNS), "/")
        mount(None, Path("/"), None, MS_REC | MS_PRIVATE)
    except OSError:
        return False
    return True
