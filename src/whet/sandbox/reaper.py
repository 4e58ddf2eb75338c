"""Finding and ending what a process left behind, also what did setsid and forked twice.

The kernel hands an orphan to its nearest ancestor that asked to be a subreaper. We ask, so whatever escapes an
attempt's process group becomes a child of ours, at the latest when its own parent dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import anyio

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PDEATHSIG = 1
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Carried in the environment of everything that an attempt starts; the value names the attempt.
MARK = "WHET_MARK"
_PAUSE_S = 0.002
_DEAD = (b"Z", b"X")
_PATIENCE_S = 10.0


def become_subreaper() -> None:
    """Receive orphans of our descendants from now on."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Be killed by the kernel when the thread that started us ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Reaper:
    """Knows which children are ours by intent, and ends the others when their attempt ends."""

    def __init__(self) -> None:
        self._session = os.getsid(0)
        self._known: set[int] = set()
        self._live: dict[str, int] = {}

    def start_anew(self) -> None:
        """In a fresh process: its parent's children are not its own, and its session is another."""
        self._session = os.getsid(0)
        self._known.clear()
        self._live.clear()

    def begin(self, mark: str) -> None:
        """An attempt starts; what it leaves behind is told by *mark*."""
        self._live[mark] = _boot_ticks()

    def adopt(self, pid: int) -> None:
        """This child is meant to be there."""
        self._known.add(pid)

    def release(self, pid: int) -> None:
        """This child has been waited for."""
        self._known.discard(pid)

    async def end(self, mark: str) -> None:
        """Kill what is left of the attempt, and return when it is dead."""
        self._live.pop(mark, None)
        deadline = time.monotonic() + _PATIENCE_S
        while strays := [pid for pid in self._strangers() if self._belongs(pid, mark)]:
            for pid in strays:
                _kill_tree(pid)
                _reap(pid)
            if time.monotonic() > deadline:
                return
            await anyio.sleep(_PAUSE_S)

    async def see_dead(self, pid: int | None) -> None:
        """Wait until *pid*, whose parent has ended, is dead; killed, if it takes its time."""
        deadline = time.monotonic() + _PATIENCE_S
        while pid is not None and _is_orphan(pid) and time.monotonic() < deadline:
            signal_all([pid], signal.SIGKILL)
            await anyio.sleep(_PAUSE_S)
        if pid is not None:
            _reap(pid)

    async def end_all(self) -> None:
        """Kill everything that attempts left behind, whoever started it."""
        self._live.clear()
        await self.end("")

    def _strangers(self) -> list[int]:
        """Our children that nobody started on purpose."""
        return [pid for pid in _children(os.getpid()) if pid not in self._known and _session_of(pid) != self._session]

    def _belongs(self, pid: int, mark: str) -> bool:
        found = _mark_of(pid)
        if found is not None:
            return found == mark or found not in self._live
        # It shed its environment. It is nobody's once every attempt that was live when it started has ended.
        started = _start_ticks(pid)
        return started is None or all(started < live for live in self._live.values())


def descendants(pid: int) -> list[int]:
    """All processes below *pid*, parents first."""
    found: list[int] = []
    waiting = _children(pid)
    while waiting:
        child = waiting.pop()
        if child not in found:
            found.append(child)
            waiting.extend(_children(child))
    return found


def signal_all(pids: list[int], number: int) -> None:
    """Send a signal to each of *pids* that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill_marked(name: str, value: str) -> int:
    """Kill every process of this user whose environment says *name*=*value*; how many there were.

    For what an earlier run of ours could not end because it was itself killed.
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


def _kill_tree(pid: int) -> None:
    signal_all([pid, *descendants(pid)], signal.SIGKILL)


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _children(pid: int) -> list[int]:
    """The children of all threads of *pid*."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - a hot path; pathlib costs ten times as much
        for thread in threads:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123
                found.extend(map(int, file.read().split()))
    except FileNotFoundError:
        return found or list(_children_by_scan(pid))
    except OSError:
        return found
    return found


def _children_by_scan(pid: int) -> Iterator[int]:
    """The same for kernels built without `children` files."""
    if not Path(f"/proc/{pid}").exists():
        return
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat_fields(int(entry.name))
            if fields and int(fields[1]) == pid:
                yield int(entry.name)


def _stat_fields(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat from the state on; a program's name may hold spaces and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def _is_orphan(pid: int) -> bool:
    """Whether *pid* lives and came to us or to init; another one by that number has a parent of its own."""
    fields = _stat_fields(pid)
    # One that is dead and waits for init to look at it does nothing any more, and some look once a second.
    return bool(fields) and fields[0] not in _DEAD and int(fields[1]) in (1, os.getpid())


def _start_ticks(pid: int) -> int | None:
    fields = _stat_fields(pid)
    return int(fields[19]) if fields else None


def _boot_ticks() -> int:
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS_PER_S)


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _mark_of(pid: int) -> str | None:
    prefix = f"{MARK}=".encode()
    return next(
        (item[len(prefix) :].decode(errors="replace") for item in _environment(pid) if item.startswith(prefix)), None
    )


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1


reaper = Reaper()
