"""Who descends from whom, and ending a whole descent.

The kernel hands an orphan to its nearest ancestor that asked to be a subreaper. So whatever a process starts stays
below the subreaper above it, also after new sessions, double forks and with an empty environment.

Only the standard library: a warden imports this, and nothing else of ours.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# Between two looks at what was killed; longer and longer, for what cannot be killed.
_MOST_LOOKS = 200
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0005, 0.5
libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Receive orphans of our descendants from now on."""
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Be killed by the kernel when the thread that started us ends."""
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def wake_with_parent() -> None:
    """Be continued when the thread that started us ends: something may have stopped us, and work is left."""
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)


def descendants(pid: int) -> list[int]:
    """All processes below *pid*, parents first."""
    found: list[int] = []
    seen: set[int] = set()
    waiting = children(pid)
    while waiting:
        child = waiting.pop()
        if child not in seen:
            seen.add(child)
            found.append(child)
            waiting.extend(children(child))
    return found


def signal_all(pids: Iterable[int], number: int) -> None:
    """Send a signal to each of *pids* that is still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def reap(ended: Callable[[int, int], object] = lambda _pid, _status: None) -> bool:
    """Wait for every child that has ended by now, and tell *ended* its status; whether a child is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        ended(pid, status)


def end_descendants(patience_s: float, ended: Callable[[int, int], object] = lambda _pid, _status: None) -> list[int]:
    """Kill all that a subreaper has below it, until it has no child; those that could not be killed in time.

    Where it has no child it has no other descendant either, because orphans come to it.
    """
    deadline = time.monotonic() + patience_s
    pause_s = _FIRST_PAUSE_S
    while reap(ended):
        found = descendants(os.getpid())
        if time.monotonic() > deadline:
            return found
        if pause_s > _FIRST_PAUSE_S:
            # Some replace whatever dies. What is stopped neither dies nor replaces anything.
            found = _stopped(found)
        signal_all(found, signal.SIGKILL)
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.2, _LONGEST_PAUSE_S)
    return []


def _stopped(found: list[int]) -> list[int]:
    """Stop all that is below us, until a look finds nothing new; all of it."""
    stopped: set[int] = set()
    for _ in range(_MOST_LOOKS):
        fresh = [pid for pid in found if pid not in stopped]
        if not fresh:
            break
        signal_all(fresh, signal.SIGSTOP)
        stopped.update(fresh)
        found = descendants(os.getpid())
    return sorted(stopped.union(found))


def children(pid: int) -> list[int]:
    """The children of all threads of *pid*."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - a hot path; pathlib costs ten times as much
    except OSError:
        return []
    found: list[int] = []
    missing = False
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123
                found.extend(map(int, file.read().split()))
        except FileNotFoundError:
            # This thread has ended, and others may have children; or this kernel has no such files.
            missing = True
        except OSError:
            continue
    return found or (list(_children_by_scan(pid)) if missing else [])


def _children_by_scan(pid: int) -> Iterator[int]:
    """The same for kernels built without `children` files."""
    if os.path.exists("/proc/thread-self/children") or not os.path.exists(f"/proc/{pid}"):  # noqa: PTH110
        return
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            fields = _stat_fields(int(name))
            if fields and int(fields[1]) == pid:
                yield int(name)


def _stat_fields(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat from the state on; a program's name may hold spaces and brackets."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []
