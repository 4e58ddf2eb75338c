"""The routes of improve runs: start one, follow it, cancel it, and get what it found."""

from __future__ import annotations

import logging
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Path, Query, Request
from sqlalchemy import Connection
from starlette.responses import FileResponse, Response, StreamingResponse

from whet.service import http
from whet.service.api.auth import At, Reader, Starter, Writer
from whet.service.api.evidence import (
    EVENT_STREAM,
    Artifact,
    EventCursor,
    EventSource,
    LastEventId,
    send_from,
    stream_of,
)
from whet.service.api.improve_request import ImproveBody, refuse_unready, request_of
from whet.service.api.runs import who
from whet.service.errors import Refused, problems
from whet.service.quotas import refuse_over_quota
from whet.service.service import QUEUE, RETENTION, in_thread
from whet.service.store import improve_runs, runs
from whet.service.store.improve_folder import ImproveRunFolder
from whet.service.store.improve_runs import (
    ImproveRun,
    ImproveRunAnswer,
    ImproveRunPage,
    ImproveStatus,
    event_document,
    split_of,
)
from whet.service.store.suites import get_suite
from whet.service.worker import retention

log = logging.getLogger("whet.service")
router = APIRouter(prefix="/api/v1", tags=["improve runs"])

_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events: run_enqueued, run_started, phase_changed, candidate_persisted, proposal_created, and"
        " run_completed, run_failed or run_cancelled as the last one. Each has a number as its id, and JSON as its"
        " data: id, run_id, org_id, type, created_at, and where they apply status, phase, candidate_id, proposal_id"
        " and payload.",
        "content": {EVENT_STREAM: {"schema": {"type": "string"}}},
    }
}
_RESULTS: dict[int | str, dict[str, Any]] = {200: {"description": "improve.json, as the page about results describes."}}
_FILE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file, as bytes.", "content": {"application/octet-stream": {}}}
}


class ImproveArtifacts(http.Strict):
    """Files of an improve run: the log, the split, the report, the patch, and the skills of candidates."""

    artifacts: list[Artifact]


@router.post(
    "/improve-runs",
    status_code=202,
    response_model=ImproveRunAnswer,
    responses=problems(400, 404, 408, 409, 413, 415, 422),
    openapi_extra=http.document_body("ImproveBody"),
)
async def create_improve_run(
    request: Request, caller: Starter, service: At, idempotency_key: http.IdempotencyKey = None
) -> Response:
    """Look for a better version of a skill. Nothing changes the skill: what is found becomes a proposal."""
    body = http.checked(ImproveBody, (await http.read_json(request, service.limits))[1])
    organisation_id = caller.organisation_id
    suite_id = http.read_id(body.eval_suite_id, "suite")
    stored = await service.read(get_suite, organisation_id, suite_id, version=body.suite_version)
    lock = await service.read(split_of, suite_id)
    new_ids: set[str] = set()

    def create(connection: Connection) -> ImproveRun:
        asked = request_of(connection, service, organisation_id, body)
        refuse_unready(service, stored, lock)
        # The version must not be deleted meanwhile.
        get_suite(connection, organisation_id, suite_id, version=stored.version, lock=True)
        if runs.count_waiting(connection, organisation_id) >= service.limits.max_waiting_runs:
            raise Refused(429, "too many runs are waiting", headers={"retry-after": "60"})
        refuse_over_quota(connection, service.limits.quota, organisation_id, more_runs=1)
        asked["asked_by"] = caller.prefix
        suite = (stored.id, stored.version)
        run = improve_runs.create_improve_run(connection, organisation_id, suite, asked, body.label)
        new_ids.add(run.id)
        return run

    parts = (b"create improve run", msgspec.json.encode(body.model_dump(), order="sorted"))
    run = await http.create_once(
        service,
        organisation_id,
        (idempotency_key, http.fingerprint(*parts)),
        create,
        lambda connection, known: improve_runs.get_improve_run(connection, organisation_id, known),
    )
    if run.id in new_ids:
        queued = (run.id, who(caller), run.eval_suite_id, run.suite_version, run.runner)
        log.info("improve run %s queued by %s: suite %s, version %d, runner %s", *queued)
    service.notices.notify(QUEUE)
    return http.answer({"improve_run": run}, 202, {"location": f"{router.prefix}/improve-runs/{run.id}"})


@router.get("/improve-runs", response_model=ImproveRunPage, responses=problems(404, 422))
async def list_improve_runs(
    caller: Reader,
    service: At,
    page: http.Paged,
    status: Annotated[ImproveStatus | None, Query()] = None,
    eval_suite_id: Annotated[str | None, Query(max_length=100, description="Only those on this suite.")] = None,
) -> Response:
    """List the improve runs of the organisation, newest first."""
    suite_id = http.read_id(eval_suite_id, "suite") if eval_suite_id is not None else None
    page_runs, following = await service.read(
        improve_runs.list_improve_runs, caller.organisation_id, page, suite_id=suite_id, status=status
    )
    return http.answer({"improve_runs": page_runs, "next_cursor": following})


async def _find(caller: Reader, service: At, id_: http.ImproveRunId) -> ImproveRun:
    return await service.read(improve_runs.get_improve_run, caller.organisation_id, id_)


# The improve run in the path, for callers who may read it.
OneImproveRun = Annotated[ImproveRun, Depends(_find)]


@router.get("/improve-runs/{id}", response_model=ImproveRunAnswer, responses=problems(404, 422))
async def get_improve_run(run: OneImproveRun) -> Response:
    """Get an improve run."""
    return http.answer({"improve_run": run})


@router.get("/improve-runs/{id}/results", response_model=None, responses={**_RESULTS, **problems(404, 409, 422)})
async def get_improvement(run: OneImproveRun, service: At) -> Response:
    """Get what an improve run did step by step: candidates, scores, decisions. It grows while the run is running."""
    document = await in_thread(ImproveRunFolder.of(service.data_dir, run.id).shown, service.without_places)
    if document is None:
        raise Refused(409, f"there are no results: the improve run is {run.status}")
    return Response(document, media_type=http.JSON)


@router.get(
    "/improve-runs/{id}/events",
    response_class=StreamingResponse,
    responses={**_EVENTS, **problems(404, 422)},
)
async def stream_improve_events(
    run: OneImproveRun,
    service: At,
    last_event_id: LastEventId = None,
    cursor: EventCursor = None,
) -> Response:
    """Stream the events of an improve run, from the first one or after an event; the stream ends with the run."""

    def encode(event: Any) -> bytes:
        return msgspec.json.encode(event_document(run, event))

    return stream_of(service, EventSource(run.id, run.organisation_id, run.ended, encode), last_event_id, cursor)


@router.post("/improve-runs/{id}/cancel", response_model=ImproveRunAnswer, responses=problems(404, 409, 422))
async def cancel_improve_run(caller: Starter, service: At, id_: http.ImproveRunId) -> Response:
    """Cancel an improve run. One that waits ends at once, one that is running ends when its agents have ended."""
    run = await service.write(improve_runs.cancel_improve_run, caller.organisation_id, id_)
    if run.ended and run.status != "cancelled":
        raise Refused(409, f"the improve run has already ended: it is {run.status}")
    log.info("improve run %s cancelled by %s", run.id, who(caller))
    service.notices.notify(run.id)
    return http.answer({"improve_run": run})


@router.delete("/improve-runs/{id}", status_code=204, response_model=None, responses=problems(404, 409, 422))
async def delete_improve_run(caller: Writer, service: At, id_: http.ImproveRunId) -> Response:
    """Delete an improve run that has ended, with its files and its proposal. What was applied stays as a skill."""
    await service.write(retention.delete_run, caller.organisation_id, id_, "improve")
    log.info("improve run %s deleted by %s", id_, who(caller))
    service.notices.notify(id_)
    service.notices.notify(RETENTION)
    return Response(status_code=204)


@router.get("/improve-runs/{id}/artifacts", response_model=ImproveArtifacts, responses=problems(404, 422))
async def list_improve_artifacts(run: OneImproveRun, service: At) -> Response:
    """List the files of an improve run that callers can get."""
    folder = ImproveRunFolder.of(service.data_dir, run.id)
    files = await in_thread(lambda: sorted(folder.files()))
    return http.answer({"artifacts": [{"path": path, "size": size} for path, size in files]})


@router.get(
    "/improve-runs/{id}/artifacts/{path:path}",
    response_class=FileResponse,
    responses={**_FILE, **problems(404, 422)},
)
async def get_improve_artifact(
    path: Annotated[str, Path(max_length=4000)], run: OneImproveRun, service: At
) -> Response:
    """Get a file of an improve run."""
    return await send_from(service, ImproveRunFolder.of(service.data_dir, run.id), path, "artifact")
