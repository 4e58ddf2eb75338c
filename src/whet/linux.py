"""The C library, for calls that Python does not offer."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

PR_SET_PDEATHSIG = 1
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 0x1000, 0x4000, 1 << 18

libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Ask the kernel to kill us when the thread that started us ends."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def mount(source: bytes | None, target: Path, kind: bytes | None, flags: int, options: str | None = None) -> None:
    """Call mount(2); *kind* is the type of file system."""
    data = None if options is None else options.encode()
    check(libc.mount(source, os.fsencode(target), kind, ctypes.c_ulong(flags), data), str(target))


def check(result: int, about: str) -> int:
    """Return the result of a system call; raise `OSError` if it failed."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), about)
    return result
