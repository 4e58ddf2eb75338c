"""The events of a run as they happen, over a stream that can be taken up again where it broke off."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import anyio
import msgspec
from fastapi import APIRouter, Header, Query
from fastapi import Path as InPath
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from whet.record.recorded_run import journal_lines
from whet.service import shapes
from whet.service.auth import At, Reader
from whet.service.database import DEFAULT_LIMIT
from whet.service.http import Refused, answer, not_found
from whet.service.routes_runs import RunId, find_run
from whet.service.routes_suites import Limit
from whet.service.run_folder import RunPlace, place_of
from whet.service.service import Service, in_thread
from whet.service.stored_runs import StoredEvent, StoredRun, events_after

# The settings of whoever operates the service, and what is of no use to anybody.
_PRIVATE = ("run.json", ".lock")


def files_of(place: RunPlace, below: str, after: str | None, most: int) -> list[tuple[str, int]]:
    """Paths and sizes of files in order, at most so many, those after *after*; links are no files of ours."""
    folder = below.strip("/")
    found = sorted(
        (path, size)
        for path, size in _all_files(place)
        if (not folder or path.startswith(f"{folder}/")) and (after is None or path > after)
    )
    return found[:most]


def file_in(place: RunPlace, path: str) -> Path | None:
    """The file that callers call *path*; none where it is no file, or leads anywhere else."""
    if not _is_plain(path) or path in _PRIVATE:
        return None
    extra = {file.name: file for file in _extras(place)}
    record = place.record
    found = extra.get(path) or (record / path if record is not None else None)
    if found is None or _size(found) is None:
        return None
    # A folder on the way may be a link too: an agent made what is in a workspace.
    root = (record if path not in extra else place.path) or place.path
    return found if found.resolve().is_relative_to(root.resolve()) else None


def _is_plain(path: str) -> bool:
    parts = path.split("/")
    return "\0" not in path and all(part not in ("", ".", "..") for part in parts)


def _extras(place: RunPlace) -> list[Path]:
    return [file for file in (place.log, place.report) if _size(file) is not None]


def _size(file: Path) -> int | None:
    """The size of a file; none where it is anything else, is gone by now, or has a name that no file can have."""
    try:
        seen = file.lstat()
    except OSError:
        return None
    return seen.st_size if stat.S_ISREG(seen.st_mode) else None


def _all_files(place: RunPlace) -> Iterator[tuple[str, int]]:
    for file, shown in _named(place):
        # A name that is no text cannot be asked for.
        if shown not in _PRIVATE and shown.isprintable() and (size := _size(file)) is not None:
            yield shown, size


def _named(place: RunPlace) -> Iterator[tuple[Path, str]]:
    for file in _extras(place):
        yield file, file.name
    record = place.record
    if record is None:
        return
    for folder, _, names in os.walk(record):
        for name in names:
            file = Path(folder, name)
            yield file, str(file.relative_to(record))


evidence_router = APIRouter(prefix="/api/v1", tags=["evidence"])

_MOST_FILES = 1000
_LARGEST = 2**53
# What a file of an agent says must never run in the browser of somebody who looks at it.
_HARMLESS = {"content-security-policy": "sandbox; default-src 'none'", "content-disposition": "attachment"}
_FILE = {200: {"description": "The file, as bytes.", "content": {"application/octet-stream": {}}}}


@evidence_router.get("/runs/{id}/trials", response_model=shapes.TrialPage, responses=shapes.problems(404, 422))
async def list_trials(
    id: RunId,  # noqa: A002
    caller: Reader,
    service: At,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Annotated[int, Query(ge=0, le=_LARGEST)] = 0,
) -> Response:
    """Trials that have ended so far, with grades and reasons; `next_cursor` is where later ones will be found."""
    run = await find_run(service, caller, id)

    def look() -> tuple[list[bytes], int]:
        journal = place_of(service.data_dir, run.id).journal
        return journal_lines(journal, cursor, limit) if journal is not None else ([], cursor)

    lines, following = await in_thread(look)
    try:
        trials = [msgspec.json.decode(line) for line in lines]
    except msgspec.DecodeError:
        trials = [None]
    if not all(isinstance(trial, dict) for trial in trials):
        wrong = [("query.cursor", "must be a next_cursor that this run gave")]
        raise Refused(422, "the request is not valid", details=wrong)
    return answer({"trials": trials, "next_cursor": str(following)})


@evidence_router.get("/runs/{id}/artifacts", response_model=shapes.ArtifactPage, responses=shapes.problems(404, 422))
async def list_artifacts(
    id: RunId,  # noqa: A002
    caller: Reader,
    service: At,
    below: Annotated[str, Query(max_length=1000, description="Only files in this folder.")] = "",
    limit: Annotated[int, Query(ge=1, le=_MOST_FILES)] = _MOST_FILES,
    cursor: Annotated[str | None, Query(max_length=4000)] = None,
) -> Response:
    """The files of a run, by path."""
    run = await find_run(service, caller, id)
    record = place_of(service.data_dir, run.id)
    found = await in_thread(files_of, record, below, cursor, limit + 1)
    following = found[limit - 1][0] if len(found) > limit else None
    shown = [{"path": path, "size": size} for path, size in found[:limit]]
    return answer({"artifacts": shown, "next_cursor": following})


@evidence_router.get(
    "/runs/{id}/artifacts/{path:path}",
    response_class=FileResponse,
    responses={**_FILE, **shapes.problems(404, 422)},  # type: ignore[dict-item]
)
async def get_artifact(
    id: RunId,  # noqa: A002
    path: Annotated[str, InPath(max_length=4000)],
    caller: Reader,
    service: At,
) -> Response:
    """One file of a run."""
    run = await find_run(service, caller, id)
    found: Path | None = await in_thread(file_in, place_of(service.data_dir, run.id), path)
    if found is None:
        raise not_found("artifact")
    return FileResponse(found, media_type="application/octet-stream", headers=_HARMLESS)


events_router = APIRouter(prefix="/api/v1", tags=["runs"])

_STREAM = "text/event-stream"
# Proxies end connections that are silent for long.
_SILENCE_S = 15.0
_MOST = 2**31 - 1
_DESCRIBED = {
    200: {
        "description": "Events: run_queued, run_started, run_planned, trial_ended, and run_completed, run_failed or"
        " run_cancelled as the last one. Each has a number as its id, and JSON as its data.",
        "content": {_STREAM: {"schema": {"type": "string"}}},
    }
}


@events_router.get(
    "/runs/{id}/events",
    response_class=StreamingResponse,
    responses={**_DESCRIBED, **shapes.problems(404, 422)},  # type: ignore[dict-item]
)
async def stream_events(
    id: RunId,  # noqa: A002
    caller: Reader,
    service: At,
    last_event_id: Annotated[str | None, Header(description="The id of the last event that was seen.")] = None,
    cursor: Annotated[int | None, Query(ge=0, le=_MOST, description="The same, for who cannot set headers.")] = None,
) -> Response:
    """What happened to a run and happens to it, from the beginning or after an event; ends with the run."""
    run = await find_run(service, caller, id)
    after = _number(last_event_id) if last_event_id is not None else cursor or 0
    # Taken here and not when the stream begins: of many requests at once, all would still find a place.
    if not service.take_stream(caller.organisation_id):
        raise Refused(429, "too many event streams are open", headers={"retry-after": "10"})
    return _Counted(service, run, after)


class _Counted(StreamingResponse):
    """A stream that gives its place back, also if its caller leaves before it begins."""

    def __init__(self, service: Service, run: StoredRun, after: int) -> None:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(_stream(service, run, after), media_type=_STREAM, headers=headers)
        self._give_back = partial(service.end_stream, run.organisation_id)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._give_back()


def _number(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(_MOST)) else -1
    if not 0 <= number <= _MOST:
        wrong = [("header.Last-Event-ID", "must be the id of an event")]
        raise Refused(422, "the request is not valid", details=wrong)
    return number


async def _stream(service: Service, run: StoredRun, after: int) -> AsyncIterator[bytes]:
    while not service.notices.stopping:
        told = service.notices.listen(run.id)
        events = await in_thread(_read, service, run, after)
        if events:
            yield b"".join(_written(event) for event in events)
            after = events[-1].number
            if any(event.type in _LAST for event in events):
                return
            continue
        if run.ended:
            return
        with anyio.move_on_after(_SILENCE_S) as waited:
            await told.wait()
        if waited.cancelled_caught:
            yield b": still there\n\n"


_LAST = frozenset({"run_completed", "run_failed", "run_cancelled"})


def _read(service: Service, run: StoredRun, after: int) -> list[StoredEvent]:
    with service.database.reading() as connection:
        return events_after(connection, run.id, after)


def _written(event: StoredEvent) -> bytes:
    # JSON has no line breaks, so one data line is enough.
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.number, event.type.encode(), event.payload)
