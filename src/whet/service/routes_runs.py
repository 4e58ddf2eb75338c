"""Runs over HTTP: ask for one, see how far it is, see what came of it, end it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Query, Request
from pydantic import ValidationError
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect
from starlette.responses import FileResponse, Response

from whet.model.eval_cases import EvalSuite
from whet.model.run import NO_AGENT
from whet.service import shapes
from whet.service import stored_runs as stored
from whet.service.auth import At, Caller, Reader, Starter
from whet.service.bundles import (
    UPLOADED,
    BundleRefused,
    add_bundle,
    bundles_dir,
    has_bundle,
    keep_bundle,
    skill_problem,
    uploaded_digest,
)
from whet.service.database import DEFAULT_LIMIT, Database, Page
from whet.service.documents import suite_of
from whet.service.http import (
    JSON,
    MB,
    IdempotencyKey,
    Limits,
    Refused,
    answer,
    decode_json,
    id_in,
    invalid_values,
    limit_body,
    not_found,
    page_of,
    read_body,
)
from whet.service.routes_suites import Cursor, Limit, SuiteId, once_only
from whet.service.run_folder import place_of
from whet.service.service import QUEUE, Service, in_thread, reasons_against
from whet.service.shapes import RunBody, shown_run
from whet.service.stored_runs import RunAsked, Status, StoredRun, count_waiting
from whet.service.stored_suites import Once, get_suite, made_before, remember
from whet.suites.eval_documents import WITHOUT_AGENT, needs_of, not_runnable_reasons

FORM = "multipart/form-data"
_MOST_JSON = MB
_FIELDS = ("request", "skill")


async def read_run_request(request: Request, limits: Limits) -> tuple[RunBody, UploadFile | None]:
    """What was asked, and the archive that came with it, if one did."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == JSON:
        body = await read_body(request, _MOST_JSON, limits.body_timeout_s)
        return _asked(body), None
    if kind != FORM:
        raise Refused(415, f"the content type must be {JSON} or {FORM}")
    return await _form(request, limits)


async def _form(request: Request, limits: Limits) -> tuple[RunBody, UploadFile | None]:
    limit_body(request, limits.max_bundle_bytes + _MOST_JSON, limits.body_timeout_s)
    try:
        form = await request._get_form(max_files=1, max_fields=1, max_part_size=_MOST_JSON)  # noqa: SLF001
    except MultiPartException as error:
        raise Refused(400, f"the form cannot be read: {error.message}") from None
    except ClientDisconnect:
        raise Refused(400, "the body ended early") from None
    unknown = [(name, "is no field of this form") for name in form if name not in _FIELDS]
    if unknown:
        raise Refused(422, "the request is not valid", details=unknown)
    said, upload = form.get("request", "{}"), form.get("skill")
    if not isinstance(said, str):
        raise Refused(422, "the request is not valid", details=[("request", "must be a field with JSON, not a file")])
    if isinstance(upload, str):
        raise Refused(422, "the request is not valid", details=[("skill", "must be a file")])
    return _asked(said.encode(errors="replace")), upload


def _asked(body: bytes) -> RunBody:
    try:
        return RunBody.model_validate(decode_json(body))
    except ValidationError as error:
        raise invalid_values(error.errors(include_url=False, include_input=False)) from None


def fingerprint_of(asked: RunBody) -> bytes:
    """What tells one request from another, whatever the order of its fields."""
    return msgspec.json.encode(asked.model_dump(), order="sorted")


def refuse_what_cannot_run(service: Service, suite: EvalSuite, asked: RunBody) -> None:
    """Refuse a suite that the service does not run, or not as it is asked, with every reason."""
    needs = needs_of(suite, agent=asked.runner not in (None, NO_AGENT))
    reasons = [*not_runnable_reasons(suite), *reasons_against(needs, service.lacking)]
    if reasons:
        raise Refused(409, "the suite is not runnable", details=[("", reason) for reason in reasons])


def refuse_wrong_request(
    service: Service, connection: Connection, organisation_id: str, suite: EvalSuite, asked: RunBody
) -> None:
    """Refuse a request that asks for what is not there, or for too much."""
    problems = [*_skill_problems(connection, organisation_id, suite, asked), *_runner_problems(service, suite, asked)]
    if problems:
        raise Refused(422, "the request is not valid", details=problems)
    if count_waiting(connection, organisation_id) >= service.limits.max_waiting_runs:
        raise Refused(429, "too many runs are waiting", headers={"retry-after": "60"})


def _skill_problems(
    connection: Connection, organisation_id: str, suite: EvalSuite, asked: RunBody
) -> Iterator[tuple[str, str]]:
    if asked.variant == "no_skill" and not suite.supports_no_skill:
        yield "variant", "the suite does not support no_skill"
    if asked.skill is None:
        if asked.variant == "skill" or not suite.supports_no_skill:
            yield "skill", "is missing: upload an archive, or name one"
        return
    if (problem := skill_problem(asked.skill)) is not None:
        yield "skill", problem
    digest = uploaded_digest(asked.skill)
    if digest is not None and not has_bundle(connection, organisation_id, digest):
        yield "skill", "no such archive was uploaded"


def _runner_problems(service: Service, suite: EvalSuite, asked: RunBody) -> Iterator[tuple[str, str]]:
    known = ", ".join(service.runners) or "none is configured"
    if asked.runner in (None, NO_AGENT):
        needing = next((index for index, case in enumerate(suite.cases) if case.kind not in WITHOUT_AGENT), None)
        if needing is not None:
            yield "runner", f"is missing, and cases_json[{needing}] needs an agent; known: {known}"
    elif asked.runner not in service.runners:
        yield "runner", f"is no runner of this service; known: {known}"


router = APIRouter(prefix="/api/v1", tags=["runs"])

RunId = Annotated[str, Path(max_length=100)]
_ANSWER = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {"schema": {"$ref": "#/components/schemas/RunBody"}},
            FORM: {
                "schema": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "request": {"type": "string", "contentMediaType": JSON},
                        "skill": {"type": "string", "format": "binary"},
                    },
                }
            },
        },
    }
}


@router.get("/runners", response_model=shapes.RunnerList, responses=shapes.problems())
async def list_runners(_: Reader, service: At) -> Response:
    """The runners that a run can be asked for; `none` runs no agent."""
    return answer({"runners": list(dict.fromkeys([*service.runners, NO_AGENT]))})


@router.post(
    "/eval-suites/{id}/runs",
    status_code=202,
    response_model=shapes.RunAnswer,
    responses=shapes.problems(400, 404, 408, 409, 413, 415, 422),
    openapi_extra=_ANSWER,
)
async def create_run(
    id: SuiteId,  # noqa: A002
    request: Request,
    caller: Starter,
    service: At,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Ask for a run of a suite: with a skill that is uploaded here, was uploaded before, or lies at an address."""
    suite_id = id_in(id, "suite")
    asked, upload = await read_run_request(request, service.limits)
    if upload is not None:
        asked = await in_thread(_with_upload, service, caller, asked, upload)
    parts = (b"create run", suite_id.encode(), fingerprint_of(asked))
    once = Once.of(idempotency_key, *parts) if idempotency_key is not None else None
    run = await once_only(lambda: _create(service, caller, suite_id, asked, once))
    service.notices.tell(QUEUE)
    return answer({"run": shown_run(run)}, 202, {"location": f"{router.prefix}/runs/{run.id}"})


def _with_upload(service: Service, caller: Caller, asked: RunBody, upload: UploadFile) -> RunBody:
    """Keep the archive, and let the request name it."""
    if asked.skill is not None:
        raise Refused(422, "the request is not valid", details=[("skill", "is given twice: as a file and by name")])
    folder = bundles_dir(service.data_dir, caller.organisation_id)
    try:
        digest, size = keep_bundle(folder, upload.file, service.bundle_limits)
    except BundleRefused as error:
        raise Refused(422, "the request is not valid", details=[("skill", str(error))]) from None
    # Somebody may have uploaded the same at the same time.
    with suppress(IntegrityError), service.database.writing() as connection:
        add_bundle(connection, caller.organisation_id, digest, size)
    return asked.model_copy(update={"skill": f"{UPLOADED}{digest}"})


def _create(service: Service, caller: Caller, suite_id: str, asked: RunBody, once: Once | None) -> StoredRun:
    organisation_id = caller.organisation_id
    with service.database.writing() as connection:
        if once is not None and (id_ := made_before(connection, organisation_id, once)) is not None:
            return _found(stored.get_run(connection, organisation_id, id_))
        found = get_suite(connection, organisation_id, suite_id, version=asked.suite_version)
        if found is None:
            raise not_found("suite")
        suite = suite_of(found)
        refuse_what_cannot_run(service, suite, asked)
        refuse_wrong_request(service, connection, organisation_id, suite, asked)
        wanted = RunAsked(
            runner=asked.runner,
            skill=asked.skill,
            variant=asked.variant,
            trials=asked.trials,
            asked_by=caller.key_prefix,
        )
        run = stored.create_run(connection, organisation_id, (found.id, found.version), wanted)
        if once is not None:
            remember(connection, organisation_id, once, run.id)
        return run


@router.get("/eval-suites/{id}/runs", response_model=shapes.RunPage, responses=shapes.problems(404, 422))
async def list_runs_of_suite(
    id: SuiteId,  # noqa: A002
    caller: Reader,
    service: At,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
    status: Status | None = None,
) -> Response:
    """The runs of a suite, newest first."""
    suite_id = id_in(id, "suite")
    return await _list(service.database, caller, page_of(limit, cursor), suite_id, status)


@router.get("/runs", response_model=shapes.RunPage, responses=shapes.problems(422))
async def list_runs(
    caller: Reader,
    service: At,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
    status: Annotated[Status | None, Query()] = None,
) -> Response:
    """The runs of the organisation, newest first."""
    return await _list(service.database, caller, page_of(limit, cursor), None, status)


async def _list(
    database: Database, caller: Caller, page: Page, suite_id: str | None, status: Status | None
) -> Response:
    def look() -> tuple[list[StoredRun], str | None]:
        with database.reading() as connection:
            if suite_id is not None and get_suite(connection, caller.organisation_id, suite_id, deleted=True) is None:
                raise not_found("suite")
            return stored.list_runs(connection, caller.organisation_id, page, suite_id=suite_id, status=status)

    found, following = await in_thread(look)
    return answer({"runs": [shown_run(run) for run in found], "next_cursor": following})


@router.get("/runs/{id}", response_model=shapes.RunAnswer, responses=shapes.problems(404, 422))
async def get_run(id: RunId, caller: Reader, service: At) -> Response:  # noqa: A002
    """One run."""
    return answer({"run": shown_run(await find_run(service, caller, id))})


@router.post("/runs/{id}/cancel", response_model=shapes.RunAnswer, responses=shapes.problems(404, 409, 422))
async def cancel_run(id: RunId, caller: Starter, service: At) -> Response:  # noqa: A002
    """End a run: one that waits at once, one that is under way as soon as its agents have ended."""
    run = await find_run(service, caller, id)

    def cancel() -> StoredRun:
        with service.database.writing() as connection:
            return stored.cancel_run(connection, run.id)

    after = await in_thread(cancel)
    if after.ended and after.status != "cancelled":
        raise Refused(409, f"the run has ended already: it is {after.status}")
    service.notices.tell(run.id)
    return answer({"run": shown_run(after)})


_RESULTS: dict[int | str, dict[str, Any]] = {200: {"description": "As `whet schema results` describes them."}}


@router.get("/runs/{id}/results", response_model=None, responses={**_RESULTS, **shapes.problems(404, 409, 422)})
async def get_results(id: RunId, caller: Reader, service: At) -> Response:  # noqa: A002
    """The results of a run, once it has ended."""
    run = await find_run(service, caller, id)
    path = await in_thread(lambda: place_of(service.data_dir, run.id).results)
    if not run.ended or path is None:
        raise Refused(409, f"there are no results: the run is {run.status}")
    return FileResponse(path, media_type=JSON)


async def find_run(service: Service, caller: Caller, id_: str) -> StoredRun:
    """The caller's run with this id."""
    known = id_in(id_, "run")

    def look() -> StoredRun | None:
        with service.database.reading() as connection:
            return stored.get_run(connection, caller.organisation_id, known)

    return _found(await in_thread(look))


def _found(run: StoredRun | None) -> StoredRun:
    if run is None:
        raise not_found("run")
    return run
