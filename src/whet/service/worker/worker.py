"""The workers: each takes a run from the queue, starts its process, and resumes it if it was interrupted."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import Process
from msgspec.structs import replace

from whet.model import codec
from whet.model.run import NO_AGENT
from whet.run.children import child_command, end_child
from whet.run.context import HIDDEN_VARIABLE
from whet.sandbox.process.pool import kill_marked
from whet.service.service import MB, QUEUE, RETENTION, Service, in_thread, persistently, work_for
from whet.service.store.run_folder import RunFolder, Tail
from whet.service.store.runs import Ending, Outcome, Queue, Run, is_cancelled, running_runs
from whet.service.store.skills import WITHOUT, SkillError, fetch_skills
from whet.service.store.suites import get_suite
from whet.service.worker._compare import compare_with_previous
from whet.service.worker._improve import ImproveJob
from whet.service.worker._job import Job
from whet.service.worker.retention import folder_bytes

log = logging.getLogger("whet.service")
# In the environment of everything that a run starts, so that its remains can be found after a crash.
_MARK = "WHET_SERVICE_RUN"
# Runs must not see the secrets of the service.
_DATABASE_VARIABLE = "WHET_DATABASE"
# The exit codes of `whet run` that come with complete results.
_OUTCOMES: dict[int, Outcome] = {0: "passed", 1: "failed", 3: "errored"}
# Exit codes after which another try would end the same way: something must be corrected.
_FINAL = (2, 70)
_NOT_IN_SUMMARY = ("cases", "suite_path", "record")
# How often a run is started if something else ends its process, such as the system for lack of memory.
_MOST_STARTS = 3
_LOOK_S = 0.2
# How often a full disk is looked at.
_ROOM_S = 2.0
_CLEARING_PATIENCE_S = 10.0
# What a run needs to write at least, however little the operator wants to be free.
_LEAST_ROOM = 16 * MB
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


async def dispatch(service: Service) -> None:
    """Work on runs until we are cancelled: first those that the last server left running, then the queue."""
    queue = Queue()
    slots = anyio.Semaphore(service.workers)

    async def worker(run: Run) -> None:
        try:
            await work_on(service, run)
        finally:
            slots.release()

    async with anyio.create_task_group() as tasks:
        for run in await persistently(lambda: service.read(running_runs)):
            log.info("run %s resumed: the last server ended before it did", run.id)
            await slots.acquire()
            tasks.start_soon(worker, run)
        while True:
            await slots.acquire()
            tasks.start_soon(worker, await _next(service, queue))


async def _next(service: Service, queue: Queue) -> Run:
    while True:
        notice = service.notices.listen(QUEUE)
        run = await persistently(lambda: service.write(queue.take))
        if run is not None:
            log.info("run %s started", run.id)
            service.notices.notify(run.id)
            return run
        await notice.wait()
        # The server wakes us when it stops, too. This lets it cancel us.
        await anyio.lowlevel.checkpoint()


async def work_on(service: Service, run: Run) -> None:
    """Bring *run* to its end from any state. We are cancelled if the server stops, and the next one goes on."""
    work_for(run.organisation_id)
    job, began = _job_of(service, run), time.monotonic()
    folder = job.folder
    try:
        ending = await _bring_to_end(service, run, job)
        if ending.status == "completed":
            ending = await in_thread(job.complete, ending)
    except SkillError as error:
        ending = Ending(status="failed", error=str(error))
    except Exception:
        # One run must not stop the others. The reason is for the operator.
        log.exception("run %s failed inside the service", run.id)
        ending = Ending(status="failed", error="the service could not carry out this run; its log says why")
    size = await in_thread(folder_bytes, folder.path)
    stored_ending = replace(ending, bytes=size, error=ending.error and service.without_places(ending.error))
    await persistently(lambda: service.write(job.store, stored_ending))
    verdict = f", {stored_ending.outcome}" if stored_ending.outcome else ""
    log.info("run %s ended after %.1f s: %s%s", run.id, time.monotonic() - began, stored_ending.status, verdict)
    for name in (run.id, QUEUE, RETENTION):
        service.notices.notify(name)


class _RunJob(Job):
    """A run of a suite."""

    def __init__(self, service: Service, run: Run) -> None:
        super().__init__(service, run, RunFolder.of(service.data_dir, run.id))

    def tail(self) -> Tail:
        """Return what follows the journal."""
        return Tail(self.service.database, self.run.id, self.folder)

    def command(self, skills: Sequence[Path | None]) -> list[str]:
        """Return the command that starts the run, or resumes it."""
        return _command(self.service, self.run, self.folder, skills)

    def conclude(self, code: int, *, cancelled: bool) -> Ending | None:
        """Return how the run ended after its process did."""
        return conclude(code, self.folder, cancelled=cancelled)

    def complete(self, ending: Ending) -> Ending:
        """Compare the run with the one before."""
        return replace(ending, previous=compare_with_previous(self.service, self.run))


def _job_of(service: Service, run: Run) -> Job:
    return ImproveJob(service, run) if run.kind == "improve" else _RunJob(service, run)


async def _bring_to_end(service: Service, run: Run, job: Job) -> Ending:
    """Start the process until it ends in a way that counts, or too often."""
    folder = job.folder
    await _clear_away(run)
    code, starts = 0, 0
    while starts < _MOST_STARTS:
        if await _is_cancelled(service, run):
            return Ending(status="cancelled")
        try:
            await _prepare(service, run, job)
            skills = await fetch_skills(service, run, folder)
            service.metrics.started.inc()
            async with _followed(service, run, job), _cancelling(service, run) as cancel:
                code = await _run_process(service, run, job, skills, cancel)
            ending = await in_thread(lambda: job.conclude(code, cancelled=cancel.is_set()))  # noqa: B023
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            ending = None
        # Nothing that failed on a full disk says anything about the run: its record can be resumed.
        is_failure = ending is None or ending.status == "failed" or ending.outcome == "errored"
        full = is_failure and not await _has_room(service)
        if ending is not None and not full:
            return ending
        starts += not full
        await _clear_away(run)
        if full:
            await _wait_for_room(service, run)
    return given_up(code, folder)


async def _has_room(service: Service) -> bool:
    """Return whether there is as much room on the disk as runs should have."""
    free = await in_thread(lambda: shutil.disk_usage(service.data_dir).free)
    return free >= max(_LEAST_ROOM, service.min_free_bytes)


async def _wait_for_room(service: Service, run: Run) -> None:
    """Wait until a run can be written again, or is cancelled."""
    log.warning("run %s waits: the disk is full; it goes on when there is room", run.id)
    while not await _has_room(service) and not await _is_cancelled(service, run):  # noqa: ASYNC110 - no signal for it
        await anyio.sleep(_ROOM_S)
    log.info("run %s goes on", run.id)


async def _clear_away(run: Run) -> None:
    """Kill what a crash has left of the run: it could write into the record, or hold its lock."""
    with anyio.move_on_after(_CLEARING_PATIENCE_S):
        while await in_thread(kill_marked, _MARK, run.id):  # noqa: ASYNC110 - nothing signals the end of strangers
            await anyio.sleep(_LOOK_S)


async def _prepare(service: Service, run: Run, job: Job) -> None:
    suite = await persistently(
        lambda: service.read(get_suite, run.organisation_id, run.suite_id, version=run.suite_version, deleted=True)
    )
    await in_thread(lambda: job.prepare(suite.document()))


async def _is_cancelled(service: Service, run: Run) -> bool:
    return await persistently(lambda: service.read(is_cancelled, run.id))


@asynccontextmanager
async def _cancelling(service: Service, run: Run) -> AsyncIterator[anyio.Event]:
    """Give an event that is set as soon as somebody cancels the run."""
    cancel = anyio.Event()

    async def watch() -> None:
        while not cancel.is_set():
            notice = service.notices.listen(run.id)
            if await _is_cancelled(service, run):
                cancel.set()
            else:
                await notice.wait()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        yield cancel
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def _followed(service: Service, run: Run, job: Job) -> AsyncIterator[None]:
    """Add events while the process works, and once more at the end."""
    tail = job.tail()

    async def look() -> None:
        while await persistently(lambda: in_thread(tail.look)):
            service.notices.notify(run.id)

    async def follow() -> None:
        while True:
            await look()
            await anyio.sleep(_LOOK_S)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow)
        yield
        tasks.cancel_scope.cancel()
    await look()


async def _run_process(service: Service, run: Run, job: Job, skills: Sequence[Path | None], cancel: anyio.Event) -> int:
    """Start the process and wait for it; ends it when *cancel* is set, or when we are cancelled."""
    folder = job.folder
    command = await in_thread(job.command, skills)
    with folder.log.open("ab") as output:
        process = await anyio.open_process(
            command,
            stdin=None,
            stdout=output,
            stderr=output,
            cwd=folder.path,
            env=_environment(service, os.environ, run.id),
            start_new_session=True,
        )
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_when, cancel, process)
            code = await process.wait()
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await end_child(process)
    return code


async def _end_when(cancel: anyio.Event, process: Process) -> None:
    await cancel.wait()
    await end_child(process)


def _command(service: Service, run: Run, folder: RunFolder, skills: Sequence[Path | None]) -> list[str]:
    """Return the command that starts the run, or resumes it if it has a record."""
    record = folder.record
    # By their names, because the process starts in the folder: what it prints is for callers.
    options: list[tuple[str, object]] = [
        ("--config", service.config_file),
        ("--output-dir", folder.records.name),
        ("--sandbox", service.sandbox),
        ("--on", service.on),
        # Checks of the skill need to know of one, also if only arms have it.
        ("--skill", next((skill.name for skill in skills if skill is not None), None)),
        *(("--runner", runner or NO_AGENT) for runner in _runners(run)),
        ("--arm", run.arm),
        *(("--arm", arm) for arm in _arms(run, skills)),
        ("--trials", run.trials),
        *_rounds(run),
    ]
    option_words = [part for name, value in options if value is not None for part in (name, str(value))]
    if run.until_decided is not None:
        option_words.append("--until-decided")
    again = ["--resume", str(record.relative_to(folder.path))] if record is not None else None
    arguments = again or [folder.suite.name, *option_words]
    reporters = ["--reporter", "terminal", "--reporter", f"markdown={folder.report.name}"]
    return child_command(["run", *arguments, *reporters], most_bytes=service.run_memory_bytes)


def _rounds(run: Run) -> Iterator[tuple[str, object]]:
    """Yield the options of a run until decided, if it is one."""
    if (until := run.until_decided) is not None:
        yield "--effect", until.effect_points
        yield "--max-rounds", until.max_rounds
        yield "--margin", until.margin_points
        yield "--goal", until.goal


def _runners(run: Run) -> list[str | None]:
    """Return the runners of a run, each once."""
    arm_runners = [arm.runner or run.runner for arm in run.arms or ()]
    return list(dict.fromkeys(arm_runners or [run.runner]))


def _arms(run: Run, skills: Sequence[Path | None]) -> Iterator[str]:
    """Yield each arm as `--arm` takes it. Archives are named from the folder of the run: its path may have a comma."""
    arms, (run_skill, *arm_skills) = run.arms or [], skills
    for arm, archive in zip(arms, arm_skills, strict=True):
        skill = None if arm.skill == WITHOUT else archive or run_skill
        parts = [f"skill:{skill.name if skill is not None else WITHOUT}"]
        if any(other_arm.runner for other_arm in arms):
            parts.append(f"runner:{arm.runner or run.runner}")
        if arm.model is not None:
            parts.append(f"model:{arm.model}")
        yield f"{arm.name}={','.join(parts)}"


def _environment(service: Service, environ: Mapping[str, str], run_id: str) -> dict[str, str]:
    """Return the operator's environment, which runners may need, without our secrets and with our rules."""
    variables = {name: value for name, value in environ.items() if name != _DATABASE_VARIABLE}
    return {
        **variables,
        "WHET_ALLOW_PRIVATE_ADDRESSES": "true" if service.packages.allow_private_addresses else "false",
        "WHET_ALLOW_LOCAL_FILES": "false",
        "WHET_ALLOW_ANY_BUCKET": "false",
        _MARK: run_id,
        HIDDEN_VARIABLE: os.pathsep.join(map(str, _hidden(service))),
        "NO_COLOR": "1",
        "TERM": "dumb",
    }


def _hidden(service: Service) -> list[Path]:
    """Return what agents must not see. A folder that is shown to an agent is not hidden, so its contents are listed."""
    places = [service.data_dir, service.data_dir / "runs", service.data_dir / "bundles"]
    if service.database.file is not None:
        file = service.database.file.resolve()
        places += [file, *(file.with_name(f"{file.name}{end}") for end in ("-wal", "-shm"))]
    return places


def conclude(code: int, folder: RunFolder, *, cancelled: bool) -> Ending | None:
    """Return how the run ended after its process did; None if it was interrupted and can be resumed."""
    summary = _summary(folder)
    summary_json = msgspec.json.encode(summary) if summary is not None else None
    # First, because cancelling a run that is complete changes nothing.
    if code in _OUTCOMES and summary is not None and not summary.get("interrupted"):
        return Ending(status="completed", outcome=_outcome(code, summary), summary=summary_json)
    if cancelled:
        return Ending(status="cancelled", summary=summary_json)
    if code in _FINAL:
        return Ending(status="failed", error=folder.last_words() or f"whet ended with exit code {code}")
    return None


def _outcome(code: int, summary: Mapping[str, Any]) -> Outcome:
    """Return how a run ended that has complete results; one that compares arms says so, and its decisions the rest."""
    outcome = _OUTCOMES[code]
    return "compared" if outcome == "passed" and summary.get("compares") else outcome


def given_up(code: int, folder: RunFolder) -> Ending:
    """Return the ending of a run whose process was interrupted too often."""
    error = f"whet ended early, with exit code {code}, each time it was started\n{folder.last_words()}"
    return Ending(status="failed", error=error.strip())


def _summary(folder: RunFolder) -> dict[str, Any] | None:
    """Return the results without the cases, also in each comparison: lists of runs show summaries too."""
    path = folder.results
    if path is None:
        return None
    try:
        results = codec.decode_file(path, dict[str, Any])
    except (OSError, codec.WireError):
        return None
    comparisons = {
        name: [_without_cases(comparison) for comparison in results.get(name) or []] for name in ("lift", "comparisons")
    }
    return {name: value for name, value in results.items() if name not in _NOT_IN_SUMMARY} | comparisons


def _without_cases(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != "cases"}
