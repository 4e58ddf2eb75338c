"""Read a file that somebody else may have made: only a regular one, and no more of it than fits in memory.

Opening a pipe waits for a writer, a device never ends, and a file of one byte on disk may have a size of terabytes.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

# More than any document that a run writes, and few enough bytes to hold.
LARGEST = 256 * 1024 * 1024
# A line holds what an agent said last, which has its limit; a longer one is not ours and could fill the memory.
LONGEST_LINE = LARGEST
_MIB = 1024 * 1024


class UnfitFile(OSError):
    """Something that is not read, because it is not a regular file or is too large."""


def open_file(path: Path) -> BufferedReader:
    """Open a regular file to read it, and never wait; raises `OSError`, and `UnfitFile` for anything else."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise UnfitFile(errno.EINVAL, "it is not a file", str(path))


def read_file(path: Path, most: int = LARGEST) -> bytes:
    """Return what is in a regular file of at most *most* bytes; raises `OSError`, and `UnfitFile` for a larger one."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        # One more than is allowed, because a file may grow while it is read.
        data = file.read(min(size, most) + 1) if size <= most else b""
    if size > most or len(data) > most:
        raise UnfitFile(errno.EFBIG, f"it has more than {most // _MIB:,} MiB", str(path))
    return data if len(data) <= size else read_file(path, most)


def next_line(file: BinaryIO, most: int) -> bytes:
    """Return the next line, at most *most* bytes of it; of a hole in a file, only a first piece."""
    start = file.readline(_MIB)
    if len(start) < _MIB or start.endswith(b"\n") or start.startswith(b"\0"):
        return start
    return start + file.readline(most - _MIB)


def read_start(path: Path, most: int) -> bytes:
    """Return the first *most* bytes of a regular file; raises `OSError`."""
    with open_file(path) as file:
        return file.read(most)
