"""Reading what a caller sends: not more than is allowed, not for ever, and JSON or a clear error."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Annotated, Any

import anyio
import msgspec
from fastapi import Header
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from whet.service.problems import JSON, Refused

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
