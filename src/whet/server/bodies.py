"""Reading what a caller sends: not more than is allowed, not for ever, and JSON or a clear error."""

from __future__ import annotations

import json
from typing import Any

import anyio
import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from whet.server.problems import JSON, Refused

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
