"""The routes of runs: start one, follow it, cancel it, and get its results."""

from __future__ import annotations

import logging
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from sqlalchemy import Connection
from starlette.datastructures import UploadFile
from starlette.responses import FileResponse, Response

from whet.model.eval_cases import EvalSuite
from whet.model.run import NO_AGENT
from whet.service import http
from whet.service.api.auth import Anybody, At, Key, Reader, Starter, Writer
from whet.service.api.estimate import RunPlanAnswer, estimate_run, find_pilot
from whet.service.api.run_request import LabelBody, RunBody, find_skills, problems_of, rounds_problems, too_long
from whet.service.api.skills import FORM, MOST_JSON, keep_upload, read_form
from whet.service.database import Status
from whet.service.errors import Refused, invalid_request, problems
from whet.service.quotas import refuse_over_quota
from whet.service.service import QUEUE, RETENTION, Service, ServiceLimits, in_thread, reasons_against
from whet.service.store import runs, skills
from whet.service.store.run_folder import RunFolder
from whet.service.store.runs import Run, RunAnswer, RunPage
from whet.service.store.suites import get_suite, require_suite
from whet.service.worker import retention
from whet.suites.evals.documents import needs_of, not_runnable_reasons

log = logging.getLogger("whet.service")
router = APIRouter(prefix="/api/v1", tags=["runs"])

_FORM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "request": {"type": "string", "contentMediaType": http.JSON},
        "skill": {"type": "string", "format": "binary"},
    },
}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            http.JSON: {"schema": {"$ref": "#/components/schemas/RunBody"}},
            FORM: {"schema": _FORM_SCHEMA},
        },
    }
}
_RESULTS: dict[int | str, dict[str, Any]] = {200: {"description": "As `whet schema results` describes them."}}


class RunnerList(http.Strict):
    """The runners of the server."""

    runners: list[str]


class CallerKey(http.Strict):
    """The key of the caller: whose it is, and what it may do."""

    organisation: str
    prefix: str
    label: str | None
    scopes: list[str]


@router.get("/key", response_model=CallerKey, responses=problems())
async def show_key(caller: Anybody) -> Response:
    """Say what the key of the request may do, so that a page offers only that."""
    known = {"organisation": caller.organisation, "prefix": caller.prefix, "label": caller.label}
    return http.answer({**known, "scopes": list(caller.scopes)})


@router.get("/runners", response_model=RunnerList, responses=problems())
async def list_runners(_: Reader, service: At) -> Response:
    """List the runners that you can run a suite with; `none` runs no agent."""
    return http.answer({"runners": list(dict.fromkeys([*service.runners, NO_AGENT]))})


@router.post(
    "/eval-suites/{id}/runs",
    status_code=202,
    response_model=RunAnswer,
    responses=problems(400, 404, 408, 409, 413, 415, 422),
    openapi_extra=_BODY,
)
async def create_run(
    request: Request,
    caller: Starter,
    service: At,
    suite_id: http.SuiteId,
    idempotency_key: http.IdempotencyKey = None,
) -> Response:
    """Run a suite with a skill that you upload here, uploaded before, or name by its address."""
    body, upload = await _read_request(request, service.limits)
    if upload is not None:
        body = await in_thread(_keep_upload, service, caller, body, upload)
    parts = (b"create run", suite_id.encode(), msgspec.json.encode(body.model_dump(), order="sorted"))
    new_ids: set[str] = set()

    def create(connection: Connection) -> Run:
        run = _create(connection, service, caller, suite_id, body)
        new_ids.add(run.id)
        return run

    run = await http.create_once(
        service,
        caller.organisation_id,
        (idempotency_key, http.fingerprint(*parts)),
        create,
        lambda connection, known: runs.get_run(connection, caller.organisation_id, known),
    )
    if run.id in new_ids:
        log.info(
            "run %s queued by %s: suite %s, version %d, runner %s",
            *(run.id, who(caller), run.suite_id, run.suite_version, run.runner or NO_AGENT),
        )
    service.notices.notify(QUEUE)
    return http.answer({"run": run}, 202, {"location": f"{router.prefix}/runs/{run.id}"})


def who(caller: Key) -> str:
    """Return how the log names a caller."""
    return f"{caller.prefix} of {caller.organisation}"


async def _read_request(request: Request, limits: ServiceLimits) -> tuple[RunBody, UploadFile | None]:
    """Return the body, and the archive that came with it, if any."""
    kind = http.content_type(request)
    if kind == http.JSON:
        return _parse(await http.read_body(request, MOST_JSON, limits.body_timeout_s)), None
    if kind != FORM:
        raise Refused(415, f"the content type must be {http.JSON} or {FORM}")
    body, upload = await read_form(request, limits, "request")
    return _parse((body if body is not None else "{}").encode(errors="replace")), upload


def _parse(body: bytes) -> RunBody:
    return http.checked(RunBody, http.decode_json(body))


def _keep_upload(service: Service, caller: Key, body: RunBody, upload: UploadFile) -> RunBody:
    """Store the archive, and name it in the request."""
    if body.skill is not None:
        raise invalid_request(("skill", "is given twice: as a file and by name"))
    bundle = keep_upload(service, caller.organisation_id, upload)
    return body.model_copy(update={"skill": f"{skills.UPLOADED}{bundle.sha256}"})


def _create(connection: Connection, service: Service, caller: Key, suite_id: str, body: RunBody) -> Run:
    """Add the run to the queue, unless the server cannot run the suite or not as it is asked."""
    organisation_id = caller.organisation_id
    # The version must not be deleted meanwhile.
    stored_suite = get_suite(connection, organisation_id, suite_id, version=body.suite_version, lock=True)
    suite = stored_suite.suite()
    runners = (body.runner, *(arm.runner for arm in body.arms or ()))
    needs = needs_of(suite, agent=any(runner not in (None, NO_AGENT) for runner in runners))
    reasons = [*not_runnable_reasons(suite), *reasons_against(needs, service.lacking), *too_long(service, suite)]
    if reasons:
        raise Refused(409, "the suite is not runnable", details=[("", reason) for reason in reasons])
    wrong = dict.fromkeys(problems_of(service, suite, body))
    if wrong:
        raise invalid_request(*wrong)
    request = find_skills(connection, organisation_id, body)
    if runs.count_waiting(connection, organisation_id) >= service.limits.max_waiting_runs:
        raise Refused(429, "too many runs are waiting", headers={"retry-after": "60"})
    refuse_over_quota(connection, service.limits.quota, organisation_id, more_runs=1)
    request["asked_by"] = caller.prefix
    return runs.create_run(connection, organisation_id, (stored_suite.id, stored_suite.version), request, body.label)


@router.post(
    "/eval-suites/{id}/plan",
    response_model=RunPlanAnswer,
    responses=problems(400, 404, 408, 413, 415, 422),
    openapi_extra=http.document_body("RunBody"),
)
async def plan_run(request: Request, caller: Reader, service: At, suite_id: http.SuiteId) -> Response:
    """Say what a run would take, and start none. A skill is not looked for, so you can ask before you upload it."""
    body = http.checked(RunBody, (await http.read_json(request, service.limits))[1])
    suite, pilot = await service.read(_find_plan, caller.organisation_id, suite_id, body)
    if wrong := dict.fromkeys(rounds_problems(suite, body)):
        raise invalid_request(*wrong)
    return http.answer({"plan": await in_thread(estimate_run, service, suite, body, pilot)})


def _find_plan(
    connection: Connection, organisation_id: str, suite_id: str, body: RunBody
) -> tuple[EvalSuite, Run | None]:
    suite = get_suite(connection, organisation_id, suite_id, version=body.suite_version).suite()
    return suite, find_pilot(connection, suite_id, body)


@router.get("/eval-suites/{id}/runs", response_model=RunPage, responses=problems(404, 422))
async def list_runs_of_suite(
    caller: Reader, service: At, suite_id: http.SuiteId, page: http.Paged, status: Status | None = None
) -> Response:
    """List the runs of a suite, newest first."""
    await service.read(require_suite, caller.organisation_id, suite_id)
    return await _list(service, caller, page, suite_id, status)


@router.get("/runs", response_model=RunPage, responses=problems(422))
async def list_runs(
    caller: Reader, service: At, page: http.Paged, status: Annotated[Status | None, Query()] = None
) -> Response:
    """List the runs of the organisation, newest first."""
    return await _list(service, caller, page, None, status)


async def _list(
    service: Service, caller: Key, page: http.Page, suite_id: str | None, status: Status | None
) -> Response:
    page_runs, following = await service.read(
        runs.list_runs, caller.organisation_id, page, suite_id=suite_id, status=status
    )
    return http.answer({"runs": page_runs, "next_cursor": following})


async def _find(caller: Reader, service: At, id_: http.RunId) -> Run:
    return await service.read(runs.get_run, caller.organisation_id, id_)


# The run in the path, for callers who may read it.
OneRun = Annotated[Run, Depends(_find)]


@router.get("/runs/{id}", response_model=RunAnswer, responses=problems(404, 422))
async def get_run(run: OneRun) -> Response:
    """Get a run."""
    return http.answer({"run": run})


@router.post("/runs/{id}/cancel", response_model=RunAnswer, responses=problems(404, 409, 422))
async def cancel_run(caller: Starter, service: At, id_: http.RunId) -> Response:
    """Cancel a run. One that waits ends at once, one that is running ends when its agents have ended."""
    run = await service.write(runs.cancel_run, caller.organisation_id, id_)
    if run.ended and run.status != "cancelled":
        raise Refused(409, f"the run has already ended: it is {run.status}")
    log.info("run %s cancelled by %s", run.id, who(caller))
    service.notices.notify(run.id)
    return http.answer({"run": run})


@router.patch(
    "/runs/{id}",
    response_model=RunAnswer,
    responses=problems(400, 404, 408, 413, 415, 422),
    openapi_extra=http.document_body("LabelBody"),
)
async def change_run(request: Request, caller: Starter, service: At, id_: http.RunId) -> Response:
    """Give a run another label, or none."""
    body = http.checked(LabelBody, (await http.read_json(request, service.limits))[1])
    return http.answer({"run": await service.write(runs.label_run, caller.organisation_id, id_, body.label)})


@router.delete("/runs/{id}", status_code=204, response_model=None, responses=problems(404, 409, 422))
async def delete_run(caller: Writer, service: At, id_: http.RunId) -> Response:
    """Delete a run that has ended, with all its files. It is gone at once, and its files soon after."""
    await service.write(retention.delete_run, caller.organisation_id, id_)
    log.info("run %s deleted by %s", id_, who(caller))
    service.notices.notify(id_)
    service.notices.notify(RETENTION)
    return Response(status_code=204)


@router.get("/runs/{id}/results", response_model=None, responses={**_RESULTS, **problems(404, 409, 422)})
async def get_results(run: OneRun, service: At) -> Response:
    """Get the results of a run that has ended."""
    path = await in_thread(lambda: RunFolder.of(service.data_dir, run.id).results)
    if not run.ended or path is None:
        raise Refused(409, f"there are no results: the run is {run.status}")
    return FileResponse(path, media_type=http.JSON)
