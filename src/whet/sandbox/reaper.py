"""Ending what came to us because something killed the warden above it.

Only then has whet a child that it did not start: everything else comes to its warden. So a child that is not known is
of no attempt any more, and is ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import anyio

from whet.sandbox.descent import children, descendants, signal_all

_PAUSE_S = 0.002
_PATIENCE_S = 10.0


class Reaper:
    """Knows which children are ours by intent, and ends the others."""

    def __init__(self) -> None:
        self._session = os.getsid(0)
        self._known: set[int] = set()

    def start_anew(self) -> None:
        """In a fresh process: its parent's children are not its own, and its session is another."""
        self._session = os.getsid(0)
        self._known.clear()

    def adopt(self, pid: int) -> None:
        """This process is meant to be there."""
        self._known.add(pid)

    def release(self, pid: int) -> None:
        """This one is not ours any more."""
        self._known.discard(pid)

    async def end_strays(self) -> None:
        """Kill what lost its warden, and return when it is dead."""
        deadline = time.monotonic() + _PATIENCE_S
        while strays := self._strays():
            for pid in strays:
                signal_all([pid, *descendants(pid)], signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - it does not wait
            if time.monotonic() > deadline:
                return
            await anyio.sleep(_PAUSE_S)

    def _strays(self) -> list[int]:
        """Our children that nobody started on purpose; what is in our own session, no attempt started."""
        return [pid for pid in children(os.getpid()) if pid not in self._known and _session_of(pid) != self._session]


def kill_marked(name: str, value: str) -> int:
    """Kill every process of this user whose environment says *name*=*value*; how many there were.

    For runs that an earlier service could not end because it was itself killed.
    """
    wanted = f"{name}={value}".encode()
    killed: set[int] = set()
    # Again until a look finds no new one: a process may fork while we look.
    while found := set(_marked(wanted)) - killed:
        signal_all(sorted(found), signal.SIGKILL)
        killed |= found
    return len(killed)


def _marked(wanted: bytes) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid() and wanted in _environment(int(entry.name)):
            yield int(entry.name)


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1


reaper = Reaper()
