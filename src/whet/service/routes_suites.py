"""Suites over HTTP: list, create, get, change, delete, and look at earlier versions."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from sqlalchemy.exc import IntegrityError
from starlette.responses import Response

from whet.service import shapes
from whet.service import stored_suites as stored
from whet.service.auth import At, Reader, Writer
from whet.service.database import DEFAULT_LIMIT, MOST
from whet.service.documents import packed, patched, read_document, shown_suite, suite_of
from whet.service.http import (
    IdempotencyKey,
    IfMatch,
    IfNoneMatch,
    Refused,
    answer,
    etag,
    id_in,
    not_found,
    page_of,
    read_json,
    require_match,
    unchanged,
)
from whet.service.service import Service, in_thread
from whet.service.stored_suites import Once, OtherRequest, StoredSuite, made_before, remember

router = APIRouter(prefix="/api/v1/eval-suites", tags=["suites"])

Limit = Annotated[int, Query(ge=1, le=MOST)]
Cursor = Annotated[str | None, Query(max_length=200)]
SuiteId = Annotated[str, Path(max_length=100)]
Version = Annotated[int, Path(ge=1, le=2**31 - 1)]
_BODY = (400, 408, 413, 415, 422)


def document_body(name: str) -> dict[str, Any]:
    """The body of a request, by the name of its schema."""
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
    return {"requestBody": {"required": True, "content": content}}


@router.get("", response_model=shapes.SuitePage, responses=shapes.problems(422))
async def list_suites(caller: Reader, service: At, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None) -> Response:
    """The suites of the organisation, newest first, without their cases."""
    page = page_of(limit, cursor)

    def look() -> tuple[list[StoredSuite], str | None]:
        with service.database.reading() as connection:
            return stored.list_suites(connection, caller.organisation_id, page)

    found, following = await in_thread(look)
    return answer({"suites": [shown_suite(suite, service.lacking) for suite in found], "next_cursor": following})


@router.post(
    "",
    status_code=201,
    response_model=shapes.SuiteAnswer,
    responses=shapes.problems(409, *_BODY),
    openapi_extra=document_body("EvalSuite"),
)
async def create_suite(
    request: Request, caller: Writer, service: At, idempotency_key: IdempotencyKey = None
) -> Response:
    """Keep a new suite, in its first version."""
    body, value = await read_json(request, service.limits.max_body_bytes, service.limits.body_timeout_s)
    once = Once.of(idempotency_key, b"create suite", body) if idempotency_key is not None else None

    def create() -> StoredSuite:
        head, cases = packed(read_document(value))
        with service.database.writing() as connection:
            if once is not None and (id_ := made_before(connection, caller.organisation_id, once)) is not None:
                return _found(stored.get_suite(connection, caller.organisation_id, id_, version=1))
            made = stored.create_suite(connection, caller.organisation_id, head, cases)
            if once is not None:
                remember(connection, caller.organisation_id, once, made.id)
            return made

    return _suite_answer(service, await once_only(create), 201)


@router.get(
    "/{id}",
    response_model=shapes.SuiteAnswer,
    responses={**shapes.problems(404, 422), 304: {"description": "The suite still has that ETag."}},
)
async def get_suite(id: SuiteId, caller: Reader, service: At, if_none_match: IfNoneMatch = None) -> Response:  # noqa: A002
    """One suite, in its newest version."""
    suite = await _look_up(service, caller.organisation_id, id)
    if unchanged(if_none_match, suite.version):
        return Response(status_code=304, headers={"etag": etag(suite.version)})
    return _suite_answer(service, suite)


@router.patch(
    "/{id}",
    response_model=shapes.SuiteAnswer,
    responses=shapes.problems(404, 412, *_BODY),
    openapi_extra=document_body("EvalSuitePatch"),
)
async def change_suite(
    id: SuiteId,  # noqa: A002
    request: Request,
    caller: Writer,
    service: At,
    if_match: IfMatch = None,
) -> Response:
    """Change what is named, as a new version; cases are replaced as a whole, and provenance stays."""
    _, value = await read_json(request, service.limits.max_body_bytes, service.limits.body_timeout_s)

    def change() -> StoredSuite:
        with service.database.writing() as connection:
            suite = _found(stored.get_suite(connection, caller.organisation_id, id_in(id, "suite"), lock=True))
            require_match(if_match, suite.version)
            changed = patched(suite, value)
            if changed == suite_of(suite):
                return suite
            head, cases = packed(changed)
            return stored.add_version(connection, suite, head, cases)

    return _suite_answer(service, await in_thread(change))


@router.delete("/{id}", status_code=204, response_model=None, responses=shapes.problems(404, 412, 422))
async def delete_suite(id: SuiteId, caller: Writer, service: At, if_match: IfMatch = None) -> Response:  # noqa: A002
    """Let a suite be found no more; what was run of it stays."""

    def delete() -> None:
        with service.database.writing() as connection:
            suite = _found(stored.get_suite(connection, caller.organisation_id, id_in(id, "suite"), lock=True))
            require_match(if_match, suite.version)
            stored.delete_suite(connection, suite)

    await in_thread(delete)
    return Response(status_code=204)


@router.get("/{id}/versions", response_model=shapes.VersionPage, responses=shapes.problems(404, 422))
async def list_versions(
    id: SuiteId,  # noqa: A002
    caller: Reader,
    service: At,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
) -> Response:
    """The versions of a suite, newest first, without their cases."""

    def look() -> list[StoredSuite]:
        with service.database.reading() as connection:
            suite = _found(stored.get_suite(connection, caller.organisation_id, id_in(id, "suite")))
            return stored.list_versions(connection, suite, limit + 1, cursor)

    found = await in_thread(look)
    following = str(found[limit - 1].version) if len(found) > limit else None
    return answer(
        {"versions": [shown_suite(suite, service.lacking) for suite in found[:limit]], "next_cursor": following}
    )


@router.get("/{id}/versions/{version}", response_model=shapes.SuiteAnswer, responses=shapes.problems(404, 422))
async def get_version(id: SuiteId, version: Version, caller: Reader, service: At) -> Response:  # noqa: A002
    """One version of a suite, which never changes."""
    return _suite_answer(service, await _look_up(service, caller.organisation_id, id, version))


async def once_only(make: Any) -> Any:
    """What *make* gives; where two requests with one key came together, the second finds what the first made."""
    try:
        try:
            return await in_thread(make)
        except IntegrityError:
            return await in_thread(make)
    except OtherRequest:
        raise Refused(409, "this Idempotency-Key was used for another request") from None


async def _look_up(service: Service, organisation_id: str, id_: str, version: int | None = None) -> StoredSuite:
    known = id_in(id_, "suite")

    def look() -> StoredSuite | None:
        with service.database.reading() as connection:
            return stored.get_suite(connection, organisation_id, known, version=version)

    return _found(await in_thread(look))


def _found(suite: StoredSuite | None) -> StoredSuite:
    if suite is None:
        raise not_found("suite")
    return suite


def _suite_answer(service: Service, suite: StoredSuite, status: int = 200) -> Response:
    headers = {"etag": etag(suite.version)}
    if status == 201:  # noqa: PLR2004 - the status of what was created
        headers["location"] = f"{router.prefix}/{suite.id}"
    return answer({"suite": shown_suite(suite, service.lacking)}, status, headers)
