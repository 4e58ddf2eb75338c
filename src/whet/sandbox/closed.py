"""What only root may read or write, by owner and mode.

To be root outside and nobody in particular inside is still to own these files, so it is not enough to drop rights.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

_OTHERS_READ, _OTHERS_WRITE, _OTHERS_SEARCH = 0o004, 0o002, 0o001
# Tells the descriptions of all keys of the user, whoever asks.
_TELLS_OF_OTHERS = ("keys",)
# One folder for each network interface, which come and go; what is in them is nothing to anybody inside.
_FLEETING = re.compile(r"/proc/sys/net/[^/]+/(conf|neigh)$")


def closed_below(folder: str) -> Iterator[str]:
    """The outermost files and folders below *folder* that others may not read, and that might let us all the same."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if _is_closed(found) or _FLEETING.search(entry.path):
            yield entry.path
        elif stat.S_ISDIR(found.st_mode):
            yield from closed_below(entry.path)


def closed_in_proc() -> Iterator[tuple[str, str]]:
    """What of /proc, beside processes and `sys`, is nothing to see ("hide") or to write to ("hold")."""
    for entry in sorted(os.scandir("/proc"), key=lambda entry: entry.name):
        if entry.name.isdigit() or entry.is_symlink() or entry.name == "sys":
            continue
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            if _holds_more_than_words(entry.path):
                yield entry.path, "hide"
        elif entry.name in _TELLS_OF_OTHERS or (_is_root() and not mode & _OTHERS_READ):
            yield entry.path, "hide"
        elif _writable(mode):
            yield entry.path, "hold"


def _holds_more_than_words(folder: str) -> bool:
    """Whether there is something to write to, or to keep from others, below *folder*."""
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            try:
                mode = Path(place, name).lstat().st_mode
            except OSError:
                continue
            if stat.S_ISREG(mode) and _writable(mode):
                return True
            if _is_root() and not stat.S_ISLNK(mode) and not mode & _OTHERS_READ:
                return True
    return False


def _is_closed(found: os.stat_result) -> bool:
    if stat.S_ISLNK(found.st_mode) or not (found.st_uid == os.getuid() or found.st_gid in _groups()):
        return False
    if stat.S_ISDIR(found.st_mode):
        return not found.st_mode & _OTHERS_SEARCH
    # What others may at least execute is a program, and stays one.
    return not found.st_mode & (_OTHERS_READ | _OTHERS_SEARCH)


def _writable(mode: int) -> bool:
    return bool(mode & (0o222 if _is_root() else _OTHERS_WRITE))


def _groups() -> set[int]:
    return {os.getgid(), *os.getgroups()}


def _is_root() -> bool:
    return os.getuid() == 0
