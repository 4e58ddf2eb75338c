"""The routes of evidence: the events, trials and files of a run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated, Any

import anyio
import msgspec
from fastapi import APIRouter, Header, Path, Query
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from whet.reading.files import read_start
from whet.record.read.run import journal_lines
from whet.service.api._listings import Listings
from whet.service.api.auth import At
from whet.service.api.runs import OneRun
from whet.service.errors import Refused, invalid_request, not_found, problems
from whet.service.http import DEFAULT_LIMIT, Limit, NextCursor, Strict, answer, split_page
from whet.service.service import MB, Service, in_thread
from whet.service.store.run_folder import RunFolder
from whet.service.store.runs import Run, events_after
from whet.view.pages import HARMLESS

router = APIRouter(prefix="/api/v1")
_listings = Listings()

_MOST_FILES = 1000
_LARGEST = 2**53
_MOST = 2**31 - 1
EVENT_STREAM = "text/event-stream"
_BYTES = "application/octet-stream"
# What whet prints of a run is a few lines for each trial.
_MOST_TEXT = 16 * MB
# Proxies close connections that are silent for long.
_SILENCE_S = 15.0
_LAST_EVENTS = frozenset({"run_completed", "run_failed", "run_cancelled"})
_FILE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file, as bytes.", "content": {"application/octet-stream": {}}}
}
_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events: run_queued, run_started, run_planned, trial_ended, and run_completed, run_failed or"
        " run_cancelled as the last one. Each has a number as its id, and JSON as its data.",
        "content": {EVENT_STREAM: {"schema": {"type": "string"}}},
    }
}
LastEventId = Annotated[str | None, Header(description="The id of the last event that you have.")]
EventCursor = Annotated[int | None, Query(ge=0, le=_MOST, description="The same, if you cannot set headers.")]


class TrialPage(Strict):
    """Trials in the order in which they ended, as the journal has them."""

    trials: list[dict[str, Any]]
    next_cursor: str


class Artifact(Strict):
    """A file of a run."""

    path: str
    size: int


class ArtifactPage(Strict):
    """Files of a run, sorted by path."""

    artifacts: list[Artifact]
    next_cursor: NextCursor


@router.get("/runs/{id}/trials", tags=["evidence"], response_model=TrialPage, responses=problems(404, 422))
async def list_trials(
    run: OneRun,
    service: At,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Annotated[int, Query(ge=0, le=_LARGEST)] = 0,
) -> Response:
    """List the trials that have ended, with grades and reasons; later ones are at `next_cursor`."""

    def look() -> tuple[list[bytes], int]:
        journal = RunFolder.of(service.data_dir, run.id).journal
        return journal_lines(journal, cursor, limit) if journal is not None else ([], cursor)

    lines, following = await in_thread(look)
    try:
        trials = [msgspec.json.decode(line) for line in lines]
    except msgspec.DecodeError:
        trials = [None]
    if not all(isinstance(trial, dict) for trial in trials):
        raise invalid_request(("query.cursor", "must be a next_cursor of this run"))
    return answer({"trials": trials, "next_cursor": str(following)})


@router.get("/runs/{id}/artifacts", tags=["evidence"], response_model=ArtifactPage, responses=problems(404, 422))
async def list_artifacts(
    run: OneRun,
    service: At,
    below: Annotated[str, Query(max_length=1000, description="Only files in this folder.")] = "",
    limit: Annotated[int, Query(ge=1, le=_MOST_FILES)] = _MOST_FILES,
    cursor: Annotated[str | None, Query(max_length=4000)] = None,
) -> Response:
    """List the files of a run, sorted by path."""
    folder = RunFolder.of(service.data_dir, run.id)
    page = await in_thread(lambda: _listings.page(folder, ended=run.ended, below=below, after=cursor, most=limit + 1))
    files, following = split_page(page, limit, lambda file: file[0])
    return answer({"artifacts": [{"path": path, "size": size} for path, size in files], "next_cursor": following})


@router.get(
    "/runs/{id}/artifacts/{path:path}",
    tags=["evidence"],
    response_class=FileResponse,
    responses={**_FILE, **problems(404, 422)},
)
async def get_artifact(path: Annotated[str, Path(max_length=4000)], run: OneRun, service: At) -> Response:
    """Get a file of a run."""
    return await send_file(service, run, path, "artifact")


async def send_file(service: Service, run: Run, path: str, what: str) -> Response:
    """Answer with a file of a run, as callers call it; refuses as if there were no such *what*."""
    return await send_from(service, RunFolder.of(service.data_dir, run.id), path, what)


async def send_from(service: Service, folder: RunFolder, path: str, what: str) -> Response:
    """Answer with a file in *folder*, as callers call it; refuses as if there were no such *what*."""
    file = await in_thread(folder.file, path)
    if file is None:
        raise not_found(what)
    if file not in folder.texts:
        return FileResponse(file, media_type=_BYTES, headers=HARMLESS)
    text = await in_thread(lambda: service.without_places(read_start(file, _MOST_TEXT).decode("utf-8", "replace")))
    return Response(text.encode(), media_type=_BYTES, headers=dict(HARMLESS))


@router.get(
    "/runs/{id}/events",
    tags=["runs"],
    response_class=StreamingResponse,
    responses={**_EVENTS, **problems(404, 422)},
)
async def stream_events(
    run: OneRun,
    service: At,
    last_event_id: LastEventId = None,
    cursor: EventCursor = None,
) -> Response:
    """Stream the events of a run, from the first one or after an event; the stream ends with the run."""
    return stream_of(service, EventSource(run.id, run.organisation_id, run.ended), last_event_id, cursor)


def stream_of(service: Service, source: EventSource, last_event_id: str | None, cursor: int | None) -> Response:
    """Answer with the events of a run, all of them or those after the last one that the caller has."""
    after = _event_number(last_event_id) if last_event_id is not None else cursor or 0
    # Count it here and not when the stream begins, or many simultaneous requests would all be admitted.
    if not service.take_stream(source.organisation_id):
        raise Refused(429, "too many event streams are open", headers={"retry-after": "10"})
    return _EventStream(service, source, after)


def _event_number(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(_MOST)) else -1
    if not 0 <= number <= _MOST:
        raise invalid_request(("header.Last-Event-ID", "must be the id of an event"))
    return number


def _payload(event: Any) -> bytes:
    payload: bytes = event.payload
    return payload


class EventSource(msgspec.Struct, frozen=True):
    """Whose events are streamed, and how one is told."""

    run_id: str
    organisation_id: str
    # Before the stream began.
    ended: bool
    encode: Callable[[Any], bytes] = _payload


class _EventStream(StreamingResponse):
    """A stream that is counted until it ends, even if its caller leaves before it begins."""

    def __init__(self, service: Service, source: EventSource, after: int) -> None:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(_events(service, source, after), media_type=EVENT_STREAM, headers=headers)
        self._end = partial(service.end_stream, source.organisation_id)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()


async def _events(service: Service, source: EventSource, after: int) -> AsyncIterator[bytes]:
    while not service.notices.stopping:
        notice = service.notices.listen(source.run_id)
        events = await service.read(events_after, source.run_id, after)
        if events:
            # Our JSON has no line breaks, so one data line is enough.
            yield b"".join(
                b"id: %d\nevent: %s\ndata: %s\n\n" % (event.number, event.type.encode(), source.encode(event))
                for event in events
            )
            after = events[-1].number
            if any(event.type in _LAST_EVENTS for event in events):
                return
            continue
        if source.ended:
            return
        with anyio.move_on_after(_SILENCE_S) as silence:
            await notice.wait()
        if silence.cancelled_caught:
            yield b": still there\n\n"
