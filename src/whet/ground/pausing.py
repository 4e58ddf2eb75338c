"""Stop what an agent started while its work is looked at, and let it go on afterwards.

A stopped process cannot be continued from inside: everything that could do that is stopped too.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio

from whet.errors import WorkspaceSpoiled
from whet.ground.descent import signal_all, state_of

# One that waits in the kernel is not stopped before it comes back, and does nothing of its own until then.
_STILL = "TtZXD"
_PAUSE_S = 0.002
_PATIENCE_S = 10.0


@asynccontextmanager
async def paused(find: Callable[[], list[int]]) -> AsyncIterator[None]:
    """Stop all processes that *find* returns, during the context; raises `WorkspaceSpoiled` if one goes on."""
    stopped: set[int] = set()
    try:
        with anyio.move_on_after(_PATIENCE_S):
            await _stop(find, stopped)
        if running := _running(find()):
            raise WorkspaceSpoiled(f"started processes that cannot be stopped while it is graded: {running}")
        yield
    finally:
        signal_all({*stopped, *find()}, signal.SIGCONT)


async def _stop(find: Callable[[], list[int]], stopped: set[int]) -> None:
    """Stop what there is until all of it is still, twice: one may have been started by another just before."""
    quiet = 0
    while quiet < 2:  # noqa: PLR2004 - see above
        found = find()
        fresh = [pid for pid in found if pid not in stopped or _running([pid])]
        signal_all(fresh, signal.SIGSTOP)
        stopped.update(fresh)
        quiet = 0 if fresh else quiet + 1
        if fresh:
            await anyio.sleep(_PAUSE_S)


def _running(pids: list[int]) -> list[int]:
    return [pid for pid in pids if state_of(pid) not in _STILL]
