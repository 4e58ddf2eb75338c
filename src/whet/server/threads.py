"""Work that waits for the disk or the database, away from the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from whet.server.storage.database import CONNECTIONS

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_limiter: RunVar[CapacityLimiter] = RunVar("whet-server-threads")


async def in_thread(work: Callable[[*Ts], T], *args: *Ts) -> T:
    """What *work* gives; not more at a time than the database has connections."""
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = CapacityLimiter(CONNECTIONS)
        _limiter.set(limiter)
    # anyio waits for it also when we are cancelled: a transaction that nobody waits for would go on behind our back.
    return await to_thread.run_sync(work, *args, limiter=limiter)
