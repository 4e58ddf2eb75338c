"""Working on one run: its process is started, followed and, where it was cut short, started again."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from whet.sandbox.reaper import kill_marked
from whet.server.documents import document_of
from whet.server.notices import QUEUE
from whet.server.runs.command import MARK, command_of, environment_of
from whet.server.runs.conclude import conclude, given_up
from whet.server.runs.folder import RunPlace, place_of
from whet.server.runs.process import run_process
from whet.server.runs.skills import SkillUnusable, fetch_skill
from whet.server.runs.tail import Tail
from whet.server.service import Service
from whet.server.storage.runs import Ending, StoredRun, end_run, get_run
from whet.server.storage.suites import get_suite
from whet.server.threads import in_thread, persistently

log = logging.getLogger("whet.server")
# A process that is cut short without our doing, such as by the system for want of memory, is tried so often.
_MOST_STARTS = 3
_LOOK_S = 0.2
_PATIENCE_S = 10.0


async def work_on(service: Service, run: StoredRun) -> None:
    """Bring *run* to its end, from wherever it is; cancelled when the server stops, and taken up again later."""
    place = place_of(service.data_dir, run.id)
    try:
        ending = await _bring_to_end(service, run, place)
    except SkillUnusable as error:
        ending = Ending(status="failed", error=str(error))
    except Exception:
        # One run must not take the others with it; the reason is for the operator.
        log.exception("run %s could not be worked on", run.id)
        ending = Ending(status="failed", error="the service could not carry out this run; its log says why")
    await persistently(_keep, service, run, ending)
    service.notices.tell(run.id)
    service.notices.tell(QUEUE)


async def _bring_to_end(service: Service, run: StoredRun, place: RunPlace) -> Ending:
    """Start the process as often as it takes."""
    await _clear_away(run)
    await persistently(_prepare, service, run, place)
    code = 0
    for _ in range(_MOST_STARTS):
        cancel = _CancelWish(service, run)
        if await cancel.is_there():
            return Ending(status="cancelled")
        skill = await fetch_skill(service, run, place)
        service.metrics.started.inc()
        async with _followed(service, run, place), cancel.watched():
            code = await _process(service, run, place, skill, cancel.event)
        ending = await in_thread(lambda: conclude(code, place, cancelled=cancel.event.is_set()))  # noqa: B023
        if ending is not None:
            return ending
        await _clear_away(run)
    return given_up(code, place)


async def _clear_away(run: StoredRun) -> None:
    """End what is left of the run, also by a server before us: it would write into its record, or hold its lock."""
    with anyio.move_on_after(_PATIENCE_S):
        while await in_thread(kill_marked, MARK, run.id):  # noqa: ASYNC110 - nobody tells of strangers' ends
            await anyio.sleep(_LOOK_S)


async def _process(service: Service, run: StoredRun, place: RunPlace, skill: Path | None, end: anyio.Event) -> int:
    command = await in_thread(command_of, service, place, run.asked, skill)
    env = environment_of(service, os.environ, run.id)
    return await run_process(command, env=env, cwd=place.path, log=place.log, ask_to_end=end)


class _CancelWish:
    """Whether somebody wants a run to end."""

    def __init__(self, service: Service, run: StoredRun) -> None:
        self._service = service
        self._run = run
        self.event = anyio.Event()

    async def is_there(self) -> bool:
        """Ask the database."""
        found = await persistently(_read, self._service, self._run)
        return found is not None and found.cancel_us is not None

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Set `event` as soon as the wish is there."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch)
            yield
            tasks.cancel_scope.cancel()

    async def _watch(self) -> None:
        while True:
            told = self._service.notices.listen(self._run.id)
            if await self.is_there():
                self.event.set()
                return
            await told.wait()


@asynccontextmanager
async def _followed(service: Service, run: StoredRun, place: RunPlace) -> AsyncIterator[None]:
    """Tell of trials as they end, and of the last ones at the end."""
    tail = Tail(service.database, run.id, place)

    async def look() -> None:
        while await persistently(tail.look):
            service.notices.tell(run.id)

    async def follow() -> None:
        while True:
            await look()
            await anyio.sleep(_LOOK_S)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow)
        yield
        tasks.cancel_scope.cancel()
    await look()


def _prepare(service: Service, run: StoredRun, place: RunPlace) -> None:
    with service.database.reading() as connection:
        suite = get_suite(connection, run.organisation_id, run.suite_id, version=run.suite_version, deleted=True)
    assert suite is not None, "versions are never removed"
    place.prepare(document_of(suite))


def _read(service: Service, run: StoredRun) -> StoredRun | None:
    with service.database.reading() as connection:
        return get_run(connection, run.organisation_id, run.id)


def _keep(service: Service, run: StoredRun, ending: Ending) -> None:
    with service.database.writing() as connection:
        end_run(connection, run.id, ending)
