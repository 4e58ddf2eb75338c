"""Requests and answers: headers and bodies within their limits, answers as JSON, and how the service says no."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any
from uuid import UUID

import anyio
import msgspec
from fastapi import APIRouter, FastAPI, Header
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message

from whet.service.database import BadCursor, Page

log = logging.getLogger("whet.service")
JSON = "application/json"


class Refused(Exception):
    """A request that is not carried out; `details` are pairs of a path and a message."""

    def __init__(
        self,
        status: int,
        error: str,
        *,
        details: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(error)
        self.status = status
        self.error = error
        self.details = tuple(details)
        self.headers = dict(headers or {})


def not_found(what: str) -> Refused:
    """There is no such thing, or it is another organisation's, which is the same."""
    return Refused(404, f"there is no such {what}")


def problem_response(refused: Refused) -> Response:
    """The answer to a request that is refused."""
    body = {"error": refused.error, "details": [{"path": path, "message": said} for path, said in refused.details]}
    return Response(msgspec.json.encode(body), refused.status, refused.headers, media_type=JSON)


def answer_problems(app: FastAPI, routers: Sequence[APIRouter]) -> None:
    """Let every error leave *app* in the same form."""
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> Response:
        return problem_response(error)

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            # Each route knows only its own method.
            matching = (route for route in routes if route.path_regex.match(request.url.path))
            methods = sorted({method for route in matching for method in route.methods or ()})
            headers = {"allow": ", ".join(methods)} if methods else headers
        return problem_response(Refused(error.status_code, str(error.detail), headers=headers))

    @app.exception_handler(OperationalError)
    async def no_database(_: Request, error: OperationalError) -> Response:
        # Its type alone: what it says may hold the parameters of a query.
        log.warning("the database does not answer: %s", type(error.orig).__name__)
        return problem_response(Refused(503, "the database does not answer", headers={"retry-after": "5"}))

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> Response:
        del error
        return problem_response(Refused(500, "this is a mistake in whet: its log says more"))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return problem_response(invalid_values(error.errors()))


def invalid_values(errors: Sequence[Any]) -> Refused:
    """What pydantic found, in our form."""
    return Refused(422, "the request is not valid", details=[(_path(found["loc"]), found["msg"]) for found in errors])


def _path(places: Sequence[str | int]) -> str:
    path = ""
    for place in places:
        path += f"[{place}]" if isinstance(place, int) else f".{place}" if path else place
    return path.encode(errors="replace").decode()


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """*value* as JSON."""
    return Response(msgspec.json.encode(value), status, headers, media_type=JSON)


def id_in(text: str, what: str) -> str:
    """The id that a path names; one that cannot be an id is simply not found."""
    try:
        return str(UUID(text))
    except ValueError:
        raise not_found(what) from None


def page_of(limit: int, cursor: str | None) -> Page:
    """The part of a list that was asked for."""
    try:
        return Page.of(limit, cursor)
    except BadCursor:
        wrong = [("query.cursor", "must be a next_cursor that this service gave")]
        raise Refused(422, "the request is not valid", details=wrong) from None


MB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Figures that an operator may change, and some that follow from them."""

    requests_per_minute: int = 600
    max_body_bytes: int = 4 * MB
    max_bundle_bytes: int = 64 * MB
    max_waiting_runs: int = 200
    max_streams: int = 50
    # Wrong keys from one address, per minute.
    failures_per_minute: int = 60
    body_timeout_s: float = 60.0


_LONGEST_KEY = 100


def limit_body(request: Request, most: int, timeout_s: float) -> None:
    """Let reading *request* end with a refusal after *most* bytes, or where the caller takes too long for a piece."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > most:
        raise _too_large(most)
    receive, seen = request.receive, 0

    async def counted() -> Message:
        nonlocal seen
        try:
            with anyio.fail_after(timeout_s):
                message = await receive()
        except TimeoutError:
            raise Refused(408, "the body did not come in time", headers={"connection": "close"}) from None
        seen += len(message.get("body", b""))
        if seen > most:
            raise _too_large(most)
        return message

    request._receive = counted  # noqa: SLF001 - the one place where Starlette takes its messages from


async def read_body(request: Request, most: int, timeout_s: float) -> bytes:
    """The whole body."""
    limit_body(request, most, timeout_s)
    try:
        return await request.body()
    except ClientDisconnect:
        raise Refused(400, "the body ended early") from None


async def read_json(request: Request, most: int, timeout_s: float) -> tuple[bytes, Any]:
    """The body, and the JSON value that it says."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise Refused(415, f"the content type must be {JSON}")
    body = await read_body(request, most, timeout_s)
    return body, decode_json(body)


def decode_json(body: bytes) -> Any:
    """The JSON value in *body*."""
    try:
        value = msgspec.json.decode(body)
        # Once more, for keys alone: of two that are the same, the other reader takes the last without a word.
        json.loads(body, object_pairs_hook=_once_each)
    except msgspec.DecodeError as error:
        raise Refused(400, f"the body is not JSON: {error}") from None
    except UnicodeDecodeError:
        raise Refused(400, "the body is not UTF-8") from None
    except RecursionError:
        raise Refused(400, "the body is nested too deeply") from None
    return value


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise Refused(400, f'the body has the key "{twice[:_LONGEST_KEY]}" twice in one object')
    return found


def _too_large(most: int) -> Refused:
    # What is left of the body would have to be read before the connection could be used again.
    return Refused(413, f"the body is larger than {most} bytes", headers={"connection": "close"})


_TAG = re.compile(r'\s*(W/)?"([\x21\x23-\x7e\x80-\xff]*)"\s*(?:,|$)')
MOST_KEY = 200

IfMatch = Annotated[str | None, Header(description='The ETag that the suite must still have, such as "3".')]
IfNoneMatch = Annotated[str | None, Header(description="Answer 304 where the suite still has this ETag.")]
IdempotencyKey = Annotated[
    str | None,
    Header(min_length=1, max_length=MOST_KEY, description="Sent twice within a day, the request is done once."),
]


def etag(version: int) -> str:
    """The entity tag of a version of a suite."""
    return f'"{version}"'


def require_match(header: str | None, version: int) -> None:
    """Refuse where somebody changed the suite since the caller saw it."""
    if header is None or header.strip() == "*":
        return
    if str(version) not in _strong(header):
        raise Refused(412, f"the suite is at version {version} by now: get it again", headers={"etag": etag(version)})


def unchanged(header: str | None, version: int) -> bool:
    """Whether the caller has this version already."""
    return header is not None and (header.strip() == "*" or str(version) in _all(header))


def _strong(header: str) -> set[str]:
    return {tag for weak, tag in _TAG.findall(header) if not weak}


def _all(header: str) -> set[str]:
    return {tag for _, tag in _TAG.findall(header)}
