"""Working on one run: its process is started, followed and, where it was cut short, started again."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import msgspec
from anyio.abc import Process

from whet.ground.wardens import kill_marked
from whet.model.run import NO_AGENT
from whet.run.parts import HIDDEN_VARIABLE
from whet.service.bundles import SkillUnusable, fetch_skill
from whet.service.documents import document_of
from whet.service.run_folder import RunPlace, Tail, place_of
from whet.service.service import QUEUE, Service, in_thread, persistently
from whet.service.stored_runs import Ending, Outcome, RunAsked, StoredRun, end_run, get_run
from whet.service.stored_suites import get_suite

# In the environment of whatever a run starts, so that what is left of it can be found after a crash.
MARK = "WHET_SERVICE_RUN"
# The service's own secrets are none of its runs' business.
DATABASE_VARIABLE = "WHET_DATABASE"


def command_of(service: Service, place: RunPlace, asked: RunAsked, skill: Path | None) -> list[str]:
    """What to start: the run anew, or what is missing of it."""
    record = place.record
    arguments = _again(record) if record is not None else _anew(service, place, asked, skill)
    reporters = ["--reporter", "terminal", "--reporter", f"markdown={place.report}"]
    return [
        sys.executable,
        "-P",
        "-m",
        "whet.service.child",
        str(os.getpid()),
        "run",
        *arguments,
        *reporters,
    ]


def environment_of(service: Service, environ: Mapping[str, str], run_id: str) -> dict[str, str]:
    """The operator's environment, which runners may need, with the run's mark and what its suite may reach."""
    kept = {name: value for name, value in environ.items() if name != DATABASE_VARIABLE}
    reach = {
        "WHET_ALLOW_PRIVATE_ADDRESSES": "true" if service.packages.allow_private_addresses else "false",
        "WHET_ALLOW_LOCAL_FILES": "false",
    }
    hidden = os.pathsep.join(map(str, _private(service)))
    return {**kept, **reach, MARK: run_id, HIDDEN_VARIABLE: hidden, "NO_COLOR": "1", "TERM": "dumb"}


def _private(service: Service) -> list[Path]:
    """What no agent may see: one by one as well, because a folder that an agent is shown is not hidden as a whole."""
    places = [service.data_dir, service.data_dir / "runs", service.data_dir / "bundles"]
    if service.database.is_sqlite:
        file = Path(str(service.database.url.database)).resolve()
        places += [file, *(file.with_name(f"{file.name}{end}") for end in ("-wal", "-shm"))]
    return places


def _again(record: Path) -> list[str]:
    return ["--resume", str(record)]


def _anew(service: Service, place: RunPlace, asked: RunAsked, skill: Path | None) -> list[str]:
    options = {
        "--config": service.config_file,
        "--output-dir": place.records,
        "--sandbox": service.sandbox,
        "--skill": skill,
        "--runner": asked.runner or NO_AGENT,
        "--variant": asked.variant,
        "--trials": asked.trials,
    }
    given = [part for name, value in options.items() if value is not None for part in (name, str(value))]
    return [str(place.suite), *given]


# The exit codes of `whet run` that come with complete results.
_OUTCOMES: dict[int, Outcome] = {0: "passed", 1: "failed", 3: "errored"}
# Something must be corrected, or the record is lost: doing it again would end the same way.
_FINAL = (2, 4, 70, 74)
_LEFT_OUT = ("cases", "suite_path", "record")


def conclude(code: int, place: RunPlace, *, cancelled: bool) -> Ending | None:
    """How the run ended; none where it was cut short and can be gone on with."""
    summary = _summary(place)
    # First: a wish that came when all was done changes nothing.
    if code in _OUTCOMES and summary is not None and not summary.get("interrupted"):
        return Ending(status="completed", outcome=_OUTCOMES[code], summary=_encoded(summary))
    if cancelled:
        return Ending(status="cancelled", summary=_encoded(summary))
    if code in _FINAL:
        return Ending(status="failed", error=place.last_words() or f"whet ended with exit code {code}")
    return None


def given_up(code: int, place: RunPlace) -> Ending:
    """The end of a run whose process was cut short too often."""
    said = place.last_words()
    return Ending(
        status="failed", error=f"whet ended early, with exit code {code}, each time it was tried\n{said}".strip()
    )


def _summary(place: RunPlace) -> dict[str, Any] | None:
    """The head of the results: counts, usage, lift, and everything else but the cases."""
    path = place.results
    if path is None:
        return None
    try:
        found = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    head = {name: value for name, value in found.items() if name not in _LEFT_OUT}
    # Lists show summaries too: what is told of each case stays in the results.
    return head | {"lift": [_without_cases(lift) for lift in head.get("lift", [])]}


def _without_cases(lift: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in lift.items() if name != "cases"}


def _encoded(summary: dict[str, Any] | None) -> bytes | None:
    return msgspec.json.encode(summary) if summary is not None else None


# Agents are given two seconds by their run; then the run is asked again, which ends everything at once.
_ENDING_PATIENCE_S = (15.0, 5.0)


async def run_process(
    command: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path, ask_to_end: anyio.Event
) -> int:
    """Start *command* and wait for it; ends it in good time once *ask_to_end* is set, or when we are cancelled."""
    with log.open("ab") as output:
        process = await anyio.open_process(
            list(command), stdin=None, stdout=output, stderr=output, cwd=cwd, env=env, start_new_session=True
        )
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_when, ask_to_end, process)
            code = await process.wait()
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
    return code


async def _end_when(asked: anyio.Event, process: Process) -> None:
    await asked.wait()
    await _end(process)


async def _end(process: Process) -> None:
    """Ask twice, then insist; also whatever is left of its group."""
    for patience_s in _ENDING_PATIENCE_S:
        if process.returncode is not None:
            return
        _signal(process.terminate)
        with anyio.move_on_after(patience_s):
            await process.wait()
    if process.returncode is None:
        _signal(lambda: os.killpg(process.pid, signal.SIGKILL))
        await process.wait()


def _signal(send: Callable[[], object]) -> None:
    with suppress(ProcessLookupError):
        send()


log = logging.getLogger("whet.service")
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
