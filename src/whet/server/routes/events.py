"""The events of a run as they happen, over a stream that can be taken up again where it broke off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated

import anyio
from fastapi import APIRouter, Header, Query
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from whet.server import shapes
from whet.server.auth import At, Reader
from whet.server.problems import Refused
from whet.server.routes.runs import RunId, find_run
from whet.server.service import Service
from whet.server.storage.events import StoredEvent, events_after
from whet.server.storage.runs import StoredRun
from whet.server.threads import in_thread

router = APIRouter(prefix="/api/v1", tags=["runs"])

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


@router.get(
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
