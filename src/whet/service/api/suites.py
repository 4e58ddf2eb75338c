"""The routes of suites: list, create, get, change and delete them, and get earlier versions."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel
from sqlalchemy import Connection
from starlette.responses import Response

from whet.service import http
from whet.service.api.auth import At, Key, Reader, Writer
from whet.service.errors import problems
from whet.service.quotas import refuse_over_quota
from whet.service.service import Service, in_thread
from whet.service.store import suites
from whet.service.store.suites import StoredSuite

router = APIRouter(prefix="/api/v1/eval-suites", tags=["suites"])

Version = Annotated[int, Path(ge=1, le=2**31 - 1)]
_BODY = (400, 408, 413, 415, 422)


class SuiteHead(BaseModel):
    """A suite without its cases."""

    id: str
    version: int
    name: str
    source_id: str | None
    source_kind: str
    verifier_kind: str
    supports_no_skill: bool
    resource_limits_json: dict[str, Any]
    suite_kind: str
    runnable: bool
    not_runnable_reasons: list[str]
    created_at: http.Moment
    updated_at: http.Moment


class CountedSuite(SuiteHead):
    """A suite as lists show it."""

    case_count: int


class Suite(SuiteHead):
    """A suite with its cases."""

    cases_json: list[dict[str, Any]]


class SuiteAnswer(http.Strict):
    """One suite."""

    suite: Suite


class SuitePage(http.Strict):
    """Suites, newest first."""

    suites: list[CountedSuite]
    next_cursor: http.NextCursor


class VersionPage(http.Strict):
    """The versions of a suite, newest first."""

    versions: list[CountedSuite]
    next_cursor: http.NextCursor


@router.get("", response_model=SuitePage, responses=problems(422))
async def list_suites(caller: Reader, service: At, page: http.Paged) -> Response:
    """List the suites of the organisation, newest first, without their cases."""
    page_suites, following = await service.read(suites.list_suites, caller.organisation_id, page)
    return http.answer({"suites": [suite.shown(service.lacking) for suite in page_suites], "next_cursor": following})


@router.post(
    "",
    status_code=201,
    response_model=SuiteAnswer,
    responses=problems(409, *_BODY),
    openapi_extra=http.document_body("EvalSuite"),
)
async def create_suite(
    request: Request, caller: Writer, service: At, idempotency_key: http.IdempotencyKey = None
) -> Response:
    """Create a suite in its first version."""
    body, value = await http.read_json(request, service.limits)
    head, cases = await in_thread(lambda: suites.encode_suite(suites.read_document(value)))

    def create(connection: Connection) -> StoredSuite:
        _refuse_over_quota(connection, service, caller, head, cases)
        return suites.create_suite(connection, caller.organisation_id, head, cases)

    suite = await http.create_once(
        service,
        caller.organisation_id,
        (idempotency_key, http.fingerprint(b"create suite", body)),
        create,
        lambda connection, id_: suites.get_suite(connection, caller.organisation_id, id_, version=1),
    )
    return _answer(service, suite, 201, {"location": f"{router.prefix}/{suite.id}"})


@router.get(
    "/{id}",
    response_model=SuiteAnswer,
    responses={**problems(404, 422), 304: {"description": "The suite still has that ETag."}},
)
async def get_suite(caller: Reader, service: At, id_: http.SuiteId, if_none_match: http.IfNoneMatch = None) -> Response:
    """Get a suite in its newest version."""
    suite = await service.read(suites.get_suite, caller.organisation_id, id_)
    if http.is_unchanged(if_none_match, suite.version):
        return Response(status_code=304, headers={"etag": http.etag(suite.version)})
    return _answer(service, suite)


@router.patch(
    "/{id}",
    response_model=SuiteAnswer,
    responses=problems(404, 409, 412, *_BODY),
    openapi_extra=http.document_body("EvalSuitePatch"),
)
async def change_suite(
    request: Request, caller: Writer, service: At, id_: http.SuiteId, if_match: http.IfMatch = None
) -> Response:
    """Change the named fields, which makes a new version. New cases replace all cases; the source cannot change."""
    _, value = await http.read_json(request, service.limits)

    def change(connection: Connection) -> StoredSuite:
        stored_suite = suites.get_suite(connection, caller.organisation_id, id_, lock=True)
        http.require_match(if_match, stored_suite.version)
        new_suite = stored_suite.changed(value)
        if new_suite == stored_suite.suite():
            return stored_suite
        head, cases = suites.encode_suite(new_suite)
        _refuse_over_quota(connection, service, caller, head, cases)
        return suites.add_version(connection, stored_suite, head, cases)

    return _answer(service, await service.write(change))


@router.delete("/{id}", status_code=204, response_model=None, responses=problems(404, 412, 422))
async def delete_suite(caller: Writer, service: At, id_: http.SuiteId, if_match: http.IfMatch = None) -> Response:
    """Delete a suite and its versions; its runs stay."""

    def delete(connection: Connection) -> None:
        stored_suite = suites.get_suite(connection, caller.organisation_id, id_, lock=True)
        http.require_match(if_match, stored_suite.version)
        suites.delete_suite(connection, stored_suite)

    await service.write(delete)
    return Response(status_code=204)


@router.get("/{id}/versions", response_model=VersionPage, responses=problems(404, 422))
async def list_versions(
    caller: Reader,
    service: At,
    id_: http.SuiteId,
    limit: http.Limit = http.DEFAULT_LIMIT,
    cursor: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
) -> Response:
    """List the versions of a suite, newest first, without their cases."""
    versions, following = await service.read(suites.list_versions, caller.organisation_id, id_, limit, cursor)
    return http.answer({"versions": [suite.shown(service.lacking) for suite in versions], "next_cursor": following})


@router.get("/{id}/versions/{version}", response_model=SuiteAnswer, responses=problems(404, 422))
async def get_version(caller: Reader, service: At, id_: http.SuiteId, version: Version) -> Response:
    """Get a version of a suite, which never changes."""
    suite = await service.read(suites.get_suite, caller.organisation_id, id_, version=version)
    return _answer(service, suite)


@router.delete("/{id}/versions/{version}", status_code=204, response_model=None, responses=problems(404, 409, 422))
async def delete_version(caller: Writer, service: At, id_: http.SuiteId, version: Version) -> Response:
    """Delete an earlier version of a suite, unless a run that has not ended needs it."""

    def delete(connection: Connection) -> None:
        stored_suite = suites.get_suite(connection, caller.organisation_id, id_, lock=True)
        suites.delete_version(connection, stored_suite, version)

    await service.write(delete)
    return Response(status_code=204)


def _refuse_over_quota(connection: Connection, service: Service, caller: Key, head: bytes, cases: bytes) -> None:
    size = len(head) + len(cases)
    refuse_over_quota(connection, service.limits.quota, caller.organisation_id, more_bytes=size)


def _answer(service: Service, suite: StoredSuite, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return http.answer(
        {"suite": suite.shown(service.lacking)}, status, {"etag": http.etag(suite.version), **(headers or {})}
    )
