"""The routes of runs: start one, follow it, cancel it, and get its results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from pydantic import ValidationError
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect
from starlette.responses import FileResponse, Response

from whet.model.eval_cases import EvalSuite
from whet.model.run import NO_AGENT
from whet.service import bundles, http, runs
from whet.service.auth import At, Key, Reader, Starter
from whet.service.database import Status
from whet.service.refusals import Refused, invalid_request, invalid_values, problems
from whet.service.run_folder import RunFolder
from whet.service.runs import Run, RunAnswer, RunBody, RunPage
from whet.service.service import MB, QUEUE, Limits, Service, in_thread, reasons_against
from whet.service.suites import get_suite
from whet.suites.eval_documents import WITHOUT_AGENT, needs_of, not_runnable_reasons

router = APIRouter(prefix="/api/v1", tags=["runs"])

_FORM = "multipart/form-data"
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
            _FORM: {"schema": _FORM_SCHEMA},
        },
    }
}
_MOST_JSON = MB
_RESULTS: dict[int | str, dict[str, Any]] = {200: {"description": "As `whet schema results` describes them."}}


class RunnerList(http.Strict):
    """The runners of the server."""

    runners: list[str]


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
    run = await http.create_once(
        service,
        caller.organisation_id,
        (idempotency_key, http.fingerprint(*parts)),
        lambda connection: _create(connection, service, caller, suite_id, body),
        lambda connection, known: runs.get_run(connection, caller.organisation_id, known),
    )
    service.notices.notify(QUEUE)
    return http.answer({"run": run}, 202, {"location": f"{router.prefix}/runs/{run.id}"})


async def _read_request(request: Request, limits: Limits) -> tuple[RunBody, UploadFile | None]:
    """Return the body, and the archive that came with it, if any."""
    kind = http.content_type(request)
    if kind == http.JSON:
        return _parse(await http.read_body(request, _MOST_JSON, limits.body_timeout_s)), None
    if kind != _FORM:
        raise Refused(415, f"the content type must be {http.JSON} or {_FORM}")
    http.limit_body(request, limits.max_bundle_bytes + _MOST_JSON, limits.body_timeout_s)
    try:
        form = await request._get_form(max_files=1, max_fields=1, max_part_size=_MOST_JSON)  # noqa: SLF001
    except MultiPartException as error:
        raise Refused(400, f"the form cannot be read: {error.message}") from None
    except ClientDisconnect:
        raise Refused(400, "the body ended early") from None
    unknown = [(name, "is not a field of this form") for name in form if name not in _FORM_SCHEMA["properties"]]
    if unknown:
        raise invalid_request(*unknown)
    body, upload = form.get("request", "{}"), form.get("skill")
    if not isinstance(body, str):
        raise invalid_request(("request", "must be a field with JSON, not a file"))
    if isinstance(upload, str):
        raise invalid_request(("skill", "must be a file"))
    return _parse(body.encode(errors="replace")), upload


def _parse(body: bytes) -> RunBody:
    try:
        return RunBody.model_validate(http.decode_json(body))
    except ValidationError as error:
        raise invalid_values(error.errors(include_url=False, include_input=False)) from None


def _keep_upload(service: Service, caller: Key, body: RunBody, upload: UploadFile) -> RunBody:
    """Store the archive, and name it in the request."""
    if body.skill is not None:
        raise invalid_request(("skill", "is given twice: as a file and by name"))
    folder = bundles.bundles_dir(service.data_dir, caller.organisation_id)
    try:
        digest, size = bundles.keep_bundle(folder, upload.file, service.bundle_limits)
    except bundles.SkillError as error:
        raise invalid_request(("skill", str(error))) from None
    # The same archive may have been uploaded before.
    with suppress(IntegrityError), service.database.writing() as connection:
        bundles.add_bundle(connection, caller.organisation_id, digest, size)
    return body.model_copy(update={"skill": f"{bundles.UPLOADED}{digest}"})


def _create(connection: Connection, service: Service, caller: Key, suite_id: str, body: RunBody) -> Run:
    """Add the run to the queue, unless the server cannot run the suite or not as it is asked."""
    organisation_id = caller.organisation_id
    stored = get_suite(connection, organisation_id, suite_id, version=body.suite_version)
    suite = stored.suite()
    needs = needs_of(suite, agent=body.runner not in (None, NO_AGENT))
    reasons = [*not_runnable_reasons(suite), *reasons_against(needs, service.lacking)]
    if reasons:
        raise Refused(409, "the suite is not runnable", details=[("", reason) for reason in reasons])
    wrong = [*_skill_problems(connection, organisation_id, suite, body), *_runner_problems(service, suite, body)]
    if wrong:
        raise invalid_request(*wrong)
    if runs.count_waiting(connection, organisation_id) >= service.limits.max_waiting_runs:
        raise Refused(429, "too many runs are waiting", headers={"retry-after": "60"})
    return runs.create_run(connection, organisation_id, (stored.id, stored.version), body, caller.prefix)


def _skill_problems(
    connection: Connection, organisation_id: str, suite: EvalSuite, body: RunBody
) -> Iterator[tuple[str, str]]:
    if body.arm == "no_skill" and not suite.supports_no_skill:
        yield "arm", "the suite does not support no_skill"
    if body.skill is None:
        if body.arm == "skill" or not suite.supports_no_skill:
            yield "skill", "is missing: upload an archive, or name one"
        return
    if (problem := bundles.reference_problem(body.skill)) is not None:
        yield "skill", problem
    digest = bundles.uploaded_digest(body.skill)
    if digest is not None and not bundles.has_bundle(connection, organisation_id, digest):
        yield "skill", "no such archive was uploaded"


def _runner_problems(service: Service, suite: EvalSuite, body: RunBody) -> Iterator[tuple[str, str]]:
    known = ", ".join(service.runners) or "none is configured"
    if body.runner in (None, NO_AGENT):
        needing = next((index for index, case in enumerate(suite.cases) if case.kind not in WITHOUT_AGENT), None)
        if needing is not None:
            yield "runner", f"is missing, and cases_json[{needing}] needs an agent; known: {known}"
    elif body.runner not in service.runners:
        yield "runner", f"is not a runner of this service; known: {known}"


@router.get("/eval-suites/{id}/runs", response_model=RunPage, responses=problems(404, 422))
async def list_runs_of_suite(
    caller: Reader, service: At, suite_id: http.SuiteId, page: http.Paged, status: Status | None = None
) -> Response:
    """List the runs of a suite, newest first."""
    await service.read(get_suite, caller.organisation_id, suite_id, deleted=True)
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
    found, following = await service.read(
        runs.list_runs, caller.organisation_id, page, suite_id=suite_id, status=status
    )
    return http.answer({"runs": found, "next_cursor": following})


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
    service.notices.notify(run.id)
    return http.answer({"run": run})


@router.get("/runs/{id}/results", response_model=None, responses={**_RESULTS, **problems(404, 409, 422)})
async def get_results(run: OneRun, service: At) -> Response:
    """Get the results of a run that has ended."""
    path = await in_thread(lambda: RunFolder.of(service.data_dir, run.id).results)
    if not run.ended or path is None:
        raise Refused(409, f"there are no results: the run is {run.status}")
    return FileResponse(path, media_type=http.JSON)
