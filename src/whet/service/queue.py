"""The workers: first what was under way when the last server ended, then the queue, never more than allowed at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import anyio
import anyio.lowlevel

from whet.service.database import Database
from whet.service.service import QUEUE, Service, persistently
from whet.service.stored_runs import StoredRun, oldest_waiting, runs_under_way, start_run
from whet.service.work import work_on


class Queue:
    """Takes runs out of the database one at a time; remembers only who was served when."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._served: dict[str, int] = {}
        self._turn = 0

    def take(self) -> StoredRun | None:
        """The next run, which is now under way; none where nobody waits."""
        with self._database.writing() as connection:
            waiting = oldest_waiting(connection)
            under_way = Counter(run.organisation_id for run in runs_under_way(connection))
            for organisation_id in self._order(waiting, under_way):
                run = waiting[organisation_id]
                if start_run(connection, run.id):
                    self._turn += 1
                    self._served[organisation_id] = self._turn
                    return run
        return None

    def _order(self, waiting: Mapping[str, StoredRun], under_way: Mapping[str, int]) -> Iterable[str]:
        return sorted(
            waiting,
            key=lambda who: (under_way.get(who, 0), self._served.get(who, 0), waiting[who].created_us, who),
        )


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
