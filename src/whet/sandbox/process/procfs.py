"""Find the descendants of a process, and end all of them.

The kernel gives an orphan to its nearest ancestor that is a subreaper. So everything that a process starts stays below
the subreaper above it, even after new sessions, double forks and with an empty environment.

Imports only the standard library and `whet.linux`, because supervisors import it: they are started with `python -I -S`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator

from whet.linux import PR_SET_PDEATHSIG, libc

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_MOST_LOOKS = 200
# The pause between two rounds of SIGKILL; it grows while processes do not die.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0005, 0.5


def become_subreaper() -> None:
    """Become the parent of all orphans among our descendants."""
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def wake_with_parent() -> None:
    """Ask the kernel to continue us when the thread that started us ends: we may be stopped, with work left to do."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)


def stay_unread() -> None:
    """Let no other process of our user read or trace us, nor what we fork."""
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def descendants(pid: int) -> list[int]:
    """Return all processes below *pid*, parents first."""
    pids: list[int] = []
    seen: set[int] = set()
    waiting = children(pid)
    while waiting:
        child = waiting.pop()
        if child not in seen:
            seen.add(child)
            pids.append(child)
            waiting.extend(children(child))
    return pids


def signal_all(pids: Iterable[int], number: int) -> None:
    """Send a signal to each of *pids* that still exists."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def reap(ended: Callable[[int, int], object] = lambda _pid, _status: None) -> bool:
    """Reap every child that has ended, call *ended* with its status, and return whether a child is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        ended(pid, status)


def end_descendants(patience_s: float, ended: Callable[[int, int], object] = lambda _pid, _status: None) -> list[int]:
    """Kill everything below us until we have no child; return the processes that did not die in time.

    We must be a subreaper: then orphans become our children, and without a child we have no descendant.
    """
    deadline = time.monotonic() + patience_s
    pause_s = _FIRST_PAUSE_S
    while reap(ended):
        pids = descendants(os.getpid())
        if time.monotonic() > deadline:
            return pids
        if pause_s > _FIRST_PAUSE_S:
            # Some processes replace each one that dies. A stopped process starts nothing.
            pids = _stopped(pids)
        signal_all(pids, signal.SIGKILL)
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.2, _LONGEST_PAUSE_S)
    return []


def _stopped(pids: list[int]) -> list[int]:
    """Stop everything below us until there is nothing new; return all of it."""
    stopped: set[int] = set()
    for _ in range(_MOST_LOOKS):
        fresh = [pid for pid in pids if pid not in stopped]
        if not fresh:
            break
        signal_all(fresh, signal.SIGSTOP)
        stopped.update(fresh)
        pids = descendants(os.getpid())
    return sorted(stopped.union(pids))


def children(pid: int) -> list[int]:
    """Return the children of all threads of *pid*."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    pids: list[int] = []
    missing = False
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                pids.extend(map(int, file.read().split()))
        except FileNotFoundError:
            # The thread has ended, and others may have children; or this kernel has no such files.
            missing = True
        except OSError:
            continue
    return pids or (list(_children_by_scan(pid)) if missing else [])


def _children_by_scan(pid: int) -> Iterator[int]:
    """Find the children of *pid* on kernels that are built without `children` files."""
    if os.path.exists("/proc/thread-self/children") or not os.path.exists(f"/proc/{pid}"):
        return
    for other in all_processes():
        try:
            with open(f"/proc/{other}/stat", "rb") as file:
                # After the name of the program, which may contain spaces and brackets.
                _, parent, *_ = file.read().rpartition(b")")[2].split()
        except (OSError, ValueError):
            continue
        if int(parent) == pid:
            yield other


def all_processes() -> list[int]:
    """Return the ids of all processes that we can see."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def members(first: int) -> list[int]:
    """Return the processes of a container but its *first*: what an engine executes in it is not below that one."""
    space = space_of(first)
    inside = space is not None and space != space_of(os.getpid())
    beside = [pid for pid in all_processes() if pid != first and space_of(pid) == space] if inside else []
    return list(
        dict.fromkeys((*descendants(first), *(process for pid in beside for process in (pid, *descendants(pid)))))
    )


def space_of(pid: int) -> str | None:
    """Return the process namespace of *pid*, if we may know it."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return None


def is_running(pid: int) -> bool:
    """Return whether *pid* is a process that has not ended."""
    return state_of(pid) not in "ZX"


def state_of(pid: int) -> str:
    """Return the letter by which the kernel tells the state of *pid*; "X" if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except OSError:
        return "X"
