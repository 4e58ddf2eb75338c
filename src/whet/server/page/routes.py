"""The files of the page; they are the same for everybody and hold nothing private, so they need no key."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated

from fastapi import APIRouter, Header
from starlette.responses import Response

from whet.server.problems import not_found

router = APIRouter(include_in_schema=False)

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
    for item in files("whet.server").joinpath("page").iterdir():
        ending = item.name[item.name.rfind(".") :]
        if ending in _TYPES:
            content = item.read_bytes()
            found[item.name] = _File(content, _TYPES[ending], f'"{hashlib.sha256(content).hexdigest()[:32]}"')
    return found


_FILES = _read()
Known = Annotated[str | None, Header(alias="if-none-match")]


@router.get("/")
async def index(known: Known = None) -> Response:
    """The page."""
    return _answer(_INDEX, known)


@router.get("/page/{name}")
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
