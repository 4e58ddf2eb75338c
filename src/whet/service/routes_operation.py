"""The files of the page; they are the same for everybody and hold nothing private, so they need no key."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated

from fastapi import APIRouter, Header
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import PlainTextResponse, Response

from whet.service import shapes
from whet.service.auth import At
from whet.service.http import answer, not_found
from whet.service.service import CONTENT_TYPE, Service, in_thread
from whet.service.stored_runs import count_by_status
from whet.version import __version__

router = APIRouter(tags=["operation"])


@router.get("/healthz", response_model=shapes.Health, responses={503: {"model": shapes.Health}})
async def health(service: At) -> Response:
    """Whether the service works and reaches its database."""
    state = "ok" if await in_thread(_counts, service) is not None else "down"
    shown = {"status": state, "database": state, "version": __version__}
    return answer(shown, 200 if state == "ok" else 503)


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses={200: {"description": "Figures in the format of Prometheus."}},
)
async def metrics(service: At) -> Response:
    """Figures for Prometheus."""
    counts = await in_thread(_counts, service)
    return Response(service.metrics.page(counts or {}), headers={"content-type": CONTENT_TYPE})


def _counts(service: Service) -> dict[str, int] | None:
    try:
        with service.database.reading() as connection:
            return count_by_status(connection)
    except SQLAlchemyError:
        return None


page_router = APIRouter(include_in_schema=False)

_INDEX = "index.html"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Only our own files run and are loaded, nothing is sent elsewhere, nobody frames us, and no text becomes markup:
# with trusted types and no policy, the browser itself refuses `innerHTML` and its kind.
_POLICY = (
    "default-src 'none'; "
    "script-src 'self'; "
    "style-src 'self'; "
    "img-src 'self'; "
    "connect-src 'self'; "
    "base-uri 'none'; "
    "form-action 'none'; "
    "frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # Asked for each time, so that a page never mixes files of two versions.
    "cache-control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    media_type: str
    etag: str


def _read() -> dict[str, _File]:
    found = {}
    for item in files("whet.service").joinpath("page").iterdir():
        ending = item.name[item.name.rfind(".") :]
        if ending in _TYPES:
            content = item.read_bytes()
            found[item.name] = _File(content, _TYPES[ending], f'"{hashlib.sha256(content).hexdigest()[:32]}"')
    return found


_FILES = _read()
Known = Annotated[str | None, Header(alias="if-none-match")]


@page_router.get("/")
async def index(known: Known = None) -> Response:
    """The page."""
    return _answer(_INDEX, known)


@page_router.get("/page/{name}")
async def part(name: str, known: Known = None) -> Response:
    """A file that the page is made of."""
    return _answer(name, known)


def _answer(name: str, known: str | None) -> Response:
    file = _FILES.get(name)
    if file is None:
        raise not_found("page")
    headers = {**_HEADERS, "etag": file.etag}
    if known is not None and file.etag in known:
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media_type)
