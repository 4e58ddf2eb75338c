"""Overlay mounts, in the view of mounts that is ours alone."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from whet.sandbox.mounts import are_private, check, libc, private_mounts, unmount

__all__ = ["are_private", "mount_overlay", "private_mounts", "unmount"]

_MS_RDONLY = 1

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
            _mount(target, options, _MS_RDONLY)
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
