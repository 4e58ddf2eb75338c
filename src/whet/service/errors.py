"""How the service says no: one exception, one JSON form, and every error of the application in that form."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, get_args

import msgspec
from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from whet.reading.text import did_you_mean, shown

log = logging.getLogger("whet.service")


class Detail(BaseModel, extra="forbid", strict=True):
    """One problem, and where it is."""

    path: str = Field(examples=["cases_json[3].environment_ref"])
    message: str


class Problem(BaseModel, extra="forbid", strict=True):
    """Why a request was refused."""

    error: str
    details: list[Detail]


class Refused(Exception):
    """A request that the service does not carry out; `details` are pairs of a path and a message."""

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
    """Return the refusal for something that does not exist or belongs to another organisation."""
    return Refused(404, f"there is no such {what}")


def invalid_request(*details: tuple[str, str]) -> Refused:
    """Return the refusal for a request with these problems, as pairs of a path and a message."""
    return Refused(422, "the request is not valid", details=details)


def invalid_values(errors: Sequence[Any], kind: type[BaseModel] | None = None) -> Refused:
    """Return the refusal for what pydantic found, in our words; *kind* is what the body should be."""
    return invalid_request(*((_path(mistake["loc"]), _message(mistake, kind)) for mistake in errors))


# What a value must be, by pydantic's name of the mistake; in braces is what it says of it.
_MUST_BE = {
    "string_type": "a string",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "an integer"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    "list_type": "a list",
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "an object"),
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
    "string_pattern_mismatch": "{words}",
}
_MUST_HAVE = {
    "string_too_short": "at least {min_length} characters",
    "string_too_long": "at most {max_length} characters",
    "too_short": "at least {min_length} items, not {actual_length}",
    "too_long": "at most {max_length} items, not {actual_length}",
}
_patterns: dict[str, str] = {}


def worded(pattern: str, words: str) -> str:
    """Return *pattern*; the error for what it does not match says that it must be *words*."""
    _patterns[pattern] = words
    return pattern


def _message(problem: Mapping[str, Any], kind: type[BaseModel] | None) -> str:
    mistake, value = problem["type"], problem.get("input")
    context = dict(problem.get("ctx") or {})
    if mistake == "missing":
        return "is missing"
    if mistake == "extra_forbidden":
        fields = _known_at(kind, problem["loc"]) if kind else ()
        hint = did_you_mean(str(problem["loc"][-1]), fields) or (
            f"known: {', '.join(fields)}" if fields else "leave it out"
        )
        return f"is not a known field; {hint}"
    if mistake == "string_too_short" and not value:
        return "must not be empty"
    if mistake in _MUST_HAVE:
        return f"must have {_MUST_HAVE[mistake].format(**context)}"
    if mistake in _MUST_BE:
        pattern = str(context.get("pattern"))
        words = _patterns.get(pattern, f"as the pattern {pattern} says")
        expectation = _MUST_BE[mistake].format(**context, words=words).replace("'", '"')
        return f"must be {expectation}, not {shown(value)}"
    # A check of ours says it in its own words.
    return str(context["error"]) if mistake == "value_error" else f"is not valid: {problem['msg']}"


def _known_at(kind: type[BaseModel], places: Sequence[str | int]) -> tuple[str, ...]:
    """Return the fields of the object in a *kind* that holds what is at *places*."""
    for place in places[:-1]:
        if isinstance(place, str):
            kind = next(_models_in(kind.model_fields[place].annotation))
    return tuple(kind.model_fields)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)


def _path(places: Sequence[str | int]) -> str:
    path = ""
    for place in places:
        if isinstance(place, int):
            path += f"[{place}]"
        else:
            path += f".{place}" if path else place
    return path.encode(errors="replace").decode()


_MEANINGS = {
    400: "The body cannot be read.",
    401: "There is no valid key.",
    403: "The key lacks the scope.",
    404: "It does not exist.",
    408: "The body did not arrive in time.",
    409: "It conflicts with the current state.",
    412: "The suite has changed.",
    413: "The body is too large.",
    415: "The content type is not supported.",
    422: "The request is not valid.",
    429: "Too many requests; see Retry-After.",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the refusals of a route for OpenAPI: *statuses*, and those of every route that needs a key."""
    return {status: {"model": Problem, "description": _MEANINGS[status]} for status in (401, 403, 429, *statuses)}


def answer_problems(app: FastAPI, routers: Sequence[APIRouter]) -> None:
    """Make every error leave *app* in the same form."""
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> Response:
        return _response(error)

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            # Each route knows only its own method.
            matching = (route for route in routes if route.path_regex.match(request.url.path))
            methods = sorted({method for route in matching for method in route.methods or ()})
            headers = {"allow": ", ".join(methods)} if methods else headers
        return _response(Refused(error.status_code, str(error.detail), headers=headers))

    @app.exception_handler(OperationalError)
    async def no_database(_: Request, error: OperationalError) -> Response:
        # Log only its type: its message may contain the parameters of a query.
        log.warning("the database does not answer: %s", type(error.orig).__name__)
        return _response(Refused(503, "the database does not answer", headers={"retry-after": "5"}))

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> Response:
        del error
        return _response(Refused(500, "this is a bug in whet: see the log of the server"))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return _response(invalid_values(error.errors()))


def _response(refused: Refused) -> Response:
    details = [{"path": path, "message": message} for path, message in refused.details]
    body = msgspec.json.encode({"error": refused.error, "details": details})
    return Response(body, refused.status, refused.headers, media_type="application/json")
