"""Requests and answers: bodies and headers within their limits, pages of lists, and answers as JSON."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Protocol, TypeVar
from uuid import UUID

import anyio
import msgspec
from fastapi import Depends, Header, Path, Query
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy import Connection, Select, Table, and_, delete, insert, or_, select
from sqlalchemy.exc import IntegrityError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message

from whet.reading.documents import DocumentError, unique_keys
from whet.service.database import idempotency, now_us
from whet.service.errors import Refused, invalid_request, invalid_values, not_found
from whet.service.service import Service, ServiceLimits, in_thread

JSON = "application/json"


class Strict(BaseModel):
    """A JSON object with these fields and no others."""

    model_config = ConfigDict(extra="forbid", strict=True)


Moment = Annotated[str, Field(description="In UTC.", examples=["2026-01-31T12:00:00.000Z"])]


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with *value* as JSON."""
    return Response(msgspec.json.encode(value, enc_hook=BaseModel.model_dump), status, headers, media_type=JSON)


def _id_of(what: str) -> Callable[[str], Awaitable[str]]:
    """Return a dependency that gives the id in a path; text that cannot be an id is not found."""

    async def read(id: Annotated[str, Path(max_length=100)]) -> str:  # noqa: A002
        return read_id(id, what)

    return read


def read_id(text: str, what: str) -> str:
    """Return the id that *text* is; text that cannot be an id is not found."""
    try:
        return str(UUID(text))
    except ValueError:
        raise not_found(what) from None


SuiteId = Annotated[str, Depends(_id_of("suite"))]
RunId = Annotated[str, Depends(_id_of("run"))]
ImproveRunId = Annotated[str, Depends(_id_of("improve run"))]
ProposalId = Annotated[str, Depends(_id_of("proposal"))]


# Pages of lists.

T = TypeVar("T")
DEFAULT_LIMIT = 50
_LATEST_US = 2**62
_ID_LENGTH = 36

Limit = Annotated[int, Query(ge=1, le=100)]
NextCursor = Annotated[
    str | None, Field(description="Pass it as `cursor` to get the next page; null on the last page.")
]


class Page(msgspec.Struct, frozen=True):
    """The part of a list that a caller wants: at most `limit` rows, older than `before`."""

    limit: int
    before: tuple[int, str] | None

    def select(self, query: Select[Any], table: Table) -> Select[Any]:
        """Limit *query* to this page and one more row, which shows whether there is another page."""
        if self.before is not None:
            created_us, id_ = self.before
            older = table.c.created_us < created_us
            query = query.where(or_(older, and_(table.c.created_us == created_us, table.c.id < id_)))
        return query.order_by(table.c.created_us.desc(), table.c.id.desc()).limit(self.limit + 1)

    def split(self, rows: list[T]) -> tuple[list[T], str | None]:
        """Return the rows of this page, and the cursor of the next one."""
        return split_page(rows, self.limit, _cursor)


def split_page(rows: list[T], limit: int, cursor_of: Callable[[T], str]) -> tuple[list[T], str | None]:
    """Return at most *limit* rows, and the cursor after them if there are more."""
    return rows[:limit], cursor_of(rows[limit - 1]) if len(rows) > limit else None


def _cursor(row: Any) -> str:
    return base64.urlsafe_b64encode(f"{row.created_us}.{row.id}".encode()).decode().rstrip("=")


async def _page(limit: Limit = DEFAULT_LIMIT, cursor: Annotated[str | None, Query(max_length=200)] = None) -> Page:
    return Page(limit, _read_cursor(cursor) if cursor is not None else None)


Paged = Annotated[Page, Depends(_page)]


def _read_cursor(cursor: str) -> tuple[int, str]:
    refusal = invalid_request(("query.cursor", "must be a next_cursor of this service"))
    try:
        text = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4)).decode("ascii")
        time_text, _, id_ = text.partition(".")
        created_us = int(time_text)
    except (UnicodeError, binascii.Error, ValueError):
        raise refusal from None
    if not 0 <= created_us <= _LATEST_US or len(id_) != _ID_LENGTH or not id_.isprintable():
        raise refusal
    return created_us, id_


# Bodies.


def content_type(request: Request) -> str:
    """Return the content type of *request*, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


# A body that comes more slowly than this, after a first while, holds a connection for nothing.
_LEAST_BYTES_PER_S = 32 * 1024


def limit_body(request: Request, most: int, timeout_s: float) -> None:
    """Refuse *request*, while it is read, after *most* bytes, or when the caller pauses or is too slow."""
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > most:
        raise _too_large(most)
    receive, size, began = request.receive, 0, anyio.current_time()

    async def counted() -> Message:
        nonlocal size
        late = began + timeout_s + size / _LEAST_BYTES_PER_S
        try:
            with anyio.fail_after(min(timeout_s, late - anyio.current_time())):
                message = await receive()
        except TimeoutError:
            raise Refused(408, "the body did not arrive in time", headers={"connection": "close"}) from None
        size += len(message.get("body", b""))
        if size > most:
            raise _too_large(most)
        return message

    request._receive = counted  # noqa: SLF001 - the one place where Starlette takes its messages from


def _too_large(most: int) -> Refused:
    # The rest of the body would have to be read before the connection could be used again.
    return Refused(413, f"the body is larger than {most} bytes", headers={"connection": "close"})


async def read_body(request: Request, most: int, timeout_s: float) -> bytes:
    """Read the whole body."""
    limit_body(request, most, timeout_s)
    try:
        return await request.body()
    except ClientDisconnect:
        raise Refused(400, "the body ended early") from None


async def read_json(request: Request, limits: ServiceLimits) -> tuple[bytes, Any]:
    """Return the body, and its JSON value."""
    if content_type(request) != JSON:
        raise Refused(415, f"the content type must be {JSON}")
    body = await read_body(request, limits.max_body_bytes, limits.body_timeout_s)
    # On a thread: the largest body takes longer than others should wait.
    return body, await in_thread(decode_json, body)


def decode_json(body: bytes) -> Any:
    """Return the JSON value in *body*."""
    try:
        value = msgspec.json.decode(body)
        # A second time, only for the keys: msgspec silently keeps the last of two equal ones.
        json.loads(body, object_pairs_hook=unique_keys)
    except DocumentError as error:
        raise Refused(400, f"the body {error}") from None
    except msgspec.DecodeError as error:
        raise Refused(400, f"the body is not JSON: {error}") from None
    except UnicodeDecodeError:
        raise Refused(400, "the body is not UTF-8") from None
    except RecursionError:
        raise Refused(400, "the body is nested too deeply") from None
    return value


B = TypeVar("B", bound=BaseModel)


def checked(kind: type[B], value: Any) -> B:
    """Return *value* as a *kind*; raises Refused with every problem."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise invalid_values(error.errors(include_url=False), kind) from None


def document_body(name: str) -> dict[str, Any]:
    """Describe the body of a request for OpenAPI by the name of its schema."""
    content = {JSON: {"schema": {"$ref": f"#/components/schemas/{name}"}}}
    return {"requestBody": {"required": True, "content": content}}


# Entity tags.

_TAG = re.compile(r'\s*(W/)?"([\x21\x23-\x7e\x80-\xff]*)"\s*(?:,|$)')

IfMatch = Annotated[str | None, Header(description='The ETag that the suite must still have, such as "3".')]
IfNoneMatch = Annotated[str | None, Header(description="Answer 304 if the suite still has this ETag.")]


def etag(version: int) -> str:
    """Return the entity tag of a version of a suite."""
    return f'"{version}"'


def require_match(header: str | None, version: int) -> None:
    """Refuse if somebody changed the suite after the caller got it."""
    if header is None or header.strip() == "*":
        return
    strong = {tag for weak, tag in _TAG.findall(header) if not weak}
    if str(version) not in strong:
        raise Refused(412, f"the suite is now at version {version}: get it again", headers={"etag": etag(version)})


def is_unchanged(header: str | None, version: int) -> bool:
    """Return whether the caller already has this version."""
    if header is None:
        return False
    return header.strip() == "*" or str(version) in {tag for _, tag in _TAG.findall(header)}


# Requests that are sent twice and carried out once.

_KEPT_US = 24 * 3600 * 1_000_000

IdempotencyKey = Annotated[
    str | None,
    Header(min_length=1, max_length=200, description="If you send a request twice within a day, it is done once."),
]


class HasId(Protocol):
    """Something that the service stores under an id."""

    @property
    def id(self) -> str:
        """The id of the item."""


H = TypeVar("H", bound=HasId)


def fingerprint(*parts: bytes) -> str:
    """Return a hash that tells whether two requests are the same."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


async def create_once(
    service: Service,
    organisation_id: str,
    once: tuple[str | None, str],
    create: Callable[[Connection], H],
    get: Callable[[Connection, str], H],
) -> H:
    """Call *create*, or *get* with the id of what the same request has created before.

    *once* is the idempotency key of the request, if it has one, and its fingerprint.
    """
    key, request = once
    key_hash = hashlib.sha256(key.encode()).hexdigest() if key is not None else None

    def work(connection: Connection) -> H:
        former_id = _created_before(connection, organisation_id, key_hash, request) if key_hash is not None else None
        if former_id is not None:
            return get(connection, former_id)
        resource = create(connection)
        if key_hash is not None:
            # In the same transaction, so that only one of two equal requests can succeed.
            connection.execute(
                insert(idempotency).values(
                    organisation_id=organisation_id,
                    key_hash=key_hash,
                    fingerprint=request,
                    resource_id=resource.id,
                    created_us=now_us(),
                )
            )
        return resource

    try:
        return await service.write(work)
    except IntegrityError:
        # The same request came twice at the same time. Now it finds what the other one created.
        return await service.write(work)


def _created_before(connection: Connection, organisation_id: str, key_hash: str, request: str) -> str | None:
    connection.execute(delete(idempotency).where(idempotency.c.created_us <= now_us() - _KEPT_US))
    row = connection.execute(
        select(idempotency.c.fingerprint, idempotency.c.resource_id).where(
            idempotency.c.organisation_id == organisation_id, idempotency.c.key_hash == key_hash
        )
    ).first()
    if row is None:
        return None
    if row.fingerprint != request:
        raise Refused(409, "this Idempotency-Key was used for another request")
    return str(row.resource_id)
