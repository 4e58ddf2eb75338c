"""How the service says no: a status, one sentence, and a list of what is wrong where."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any
from uuid import UUID

import msgspec
from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

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
