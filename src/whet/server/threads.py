"""Work that waits for the disk or the database, away from the event loop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import anyio
from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from sqlalchemy.exc import InterfaceError, OperationalError

from whet.server.storage.database import CONNECTIONS

log = logging.getLogger("whet.server")
_PAUSE_S = 1.0
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


async def persistently(work: Callable[[*Ts], T], *args: *Ts) -> T:
    """What *work* gives, once the database answers: a run must not be lost because it was restarted."""
    while True:
        try:
            return await in_thread(work, *args)
        except (OperationalError, InterfaceError) as error:
            log.warning("the database does not answer: %s", type(error.orig).__name__)
            await anyio.sleep(_PAUSE_S)
