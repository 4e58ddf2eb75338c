"""The workers: first what was under way when the last server ended, then the queue, never more than allowed at once."""

from __future__ import annotations

import anyio
import anyio.lowlevel

from whet.server.notices import QUEUE
from whet.server.runs.queue import Queue
from whet.server.runs.work import work_on
from whet.server.service import Service
from whet.server.storage.runs import StoredRun, runs_under_way
from whet.server.threads import persistently


async def dispatch(service: Service) -> None:
    """Work on runs until we are cancelled."""
    queue = Queue(service.database)
    slots = anyio.Semaphore(service.workers)

    async def worker(run: StoredRun) -> None:
        try:
            await work_on(service, run)
        finally:
            slots.release()

    async with anyio.create_task_group() as tasks:
        for run in await persistently(_left_under_way, service):
            await slots.acquire()
            tasks.start_soon(worker, run)
        while True:
            await slots.acquire()
            tasks.start_soon(worker, await _next(service, queue))


async def _next(service: Service, queue: Queue) -> StoredRun:
    while True:
        told = service.notices.listen(QUEUE)
        run = await persistently(queue.take)
        if run is not None:
            service.notices.tell(run.id)
            return run
        await told.wait()
        # Told also when the server stops: let that come to pass.
        await anyio.lowlevel.checkpoint()


def _left_under_way(service: Service) -> list[StoredRun]:
    with service.database.reading() as connection:
        return runs_under_way(connection)
