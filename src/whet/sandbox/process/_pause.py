"""Stop what an agent started while its work is looked at, and let it go on afterwards.

Everything that could continue a stopped process is stopped too. The kernel can still do it: a timer, a change of a
file or the death of a parent may send SIGCONT. So whet looks afterwards whether one of them ran, and the work counts
for nothing if one did.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import anyio

from whet.errors import WorkspaceSpoiled
from whet.sandbox.process.procfs import signal_all, state_of

# One that waits in the kernel is not stopped before it comes back, and does nothing of its own until then.
_STILL = "TtZXD"
_WAITING = "D"
_ENDED = "ZX"
_PAUSE_S = 0.002
_PATIENCE_S = 10.0
# What counts how often a thread got the processor.
_SWITCHES = (b"voluntary_ctxt_switches:", b"nonvoluntary_ctxt_switches:")


@asynccontextmanager
async def paused(find: Callable[[], list[int]]) -> AsyncIterator[None]:
    """Stop all processes that *find* returns, during the context; raises `WorkspaceSpoiled` if one goes on."""
    stopped: set[int] = set()
    try:
        with anyio.move_on_after(_PATIENCE_S):
            await _stop(find, stopped)
        if running := _running(find()):
            raise WorkspaceSpoiled(f"started processes that cannot be stopped while it is graded: {running}")
        before = _switches(find())
        yield
        if restless := _restless(before, find()):
            raise WorkspaceSpoiled(f"had processes that went on while it was graded: {restless}")
    finally:
        signal_all({*stopped, *find()}, signal.SIGCONT)


async def _stop(find: Callable[[], list[int]], stopped: set[int]) -> None:
    """Stop what there is until all of it is still, twice: one may have been started by another just before."""
    quiet = 0
    while quiet < 2:  # noqa: PLR2004 - see above
        pids = find()
        fresh = [pid for pid in pids if pid not in stopped or _running([pid])]
        signal_all(fresh, signal.SIGSTOP)
        stopped.update(fresh)
        quiet = 0 if fresh else quiet + 1
        if fresh:
            await anyio.sleep(_PAUSE_S)


def _running(pids: Iterable[int]) -> list[int]:
    return [pid for pid in pids if state_of(pid) not in _STILL]


def _restless(before: dict[int, int | None], pids: Iterable[int]) -> list[int]:
    """Return those of *pids* that are new, or ran since *before*; one that waited in the kernel may have come back."""
    now = _switches(pids)
    return [pid for pid, count in now.items() if pid not in before or before[pid] not in (count, None)]


def _switches(pids: Iterable[int]) -> dict[int, int | None]:
    """Return how often each process got the processor; None for one that waits in the kernel, nothing of the dead."""
    counts: dict[int, int | None] = {}
    for pid in pids:
        state = state_of(pid)
        if state not in _ENDED:
            counts[pid] = None if state == _WAITING else _count_switches(pid)
    return counts


def _count_switches(pid: int) -> int:
    """Return how often the threads of a process got the processor, all together."""
    total = 0
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return 0
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/status", "rb") as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith(_SWITCHES))
        except OSError:
            continue
    return total
