"""The client for a skill that is an HTTP endpoint: one made for skills, or one that was there before."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin

import anyio
import httpx2

from whet.callable.clients.contract import HEALTH_TIMEOUT_S, MOST_BYTES, CallAnswer, auth_headers, read_answer
from whet.callable.clients.request import request_of
from whet.errors import AgentError, AgentTimedOut, OutputTooLarge, SkillFailed, SkillUnreachable
from whet.model.callable import CallableSkill
from whet.model.session import Usage, token_count
from whet.reading.documents import DocumentError
from whet.reading.text import shorten
from whet.sandbox.process.output import BoundedOutput
from whet.version import __version__

_SHOWN = 500
# Not found, method not allowed, not implemented.
_NO_GET = frozenset({404, 405, 501})
_INPUT, _OUTPUT = "x-usage-input-tokens", "x-usage-output-tokens"


class HttpSkill:
    """Calls an endpoint, with one connection pool for all calls."""

    def __init__(self, skill: CallableSkill, client: httpx2.AsyncClient) -> None:
        assert skill.url is not None
        self._skill, self._url, self._client = skill, skill.url, client

    async def call(self, arguments: Mapping[str, Any], *, timeout_s: float) -> CallAnswer:
        """Send the input; the JSON body is the answer."""
        method, url, headers, body = request_of(self._skill, self._url, arguments)
        began = time.monotonic()
        response, data = await self._send(method, url, timeout_s, headers=headers, json=body)
        latency_ms = (time.monotonic() - began) * 1000
        if response.has_redirect_location:
            message = f"HTTP {response.status_code}: it redirects to {response.headers['location']}"
            raise SkillFailed(message, hint="set entrypoint to that address")
        if not response.is_success:
            raise SkillFailed(f"HTTP {response.status_code}: {_body(data)}")
        try:
            # An endpoint that was there before may have nothing to say: 204.
            output = read_answer(data) if data or self._skill.request is None else None
        except DocumentError as error:
            raise SkillFailed(f"its answer {error}: {_body(data)}") from error
        return CallAnswer(output=output, latency_ms=latency_ms, usage=_usage(response.headers))

    async def health(self) -> str | None:
        """Return what is wrong if a GET of the same address fails; an endpoint that only knows POST is healthy.

        An endpoint that was there before is healthy if its server answers: asking it may change something.
        """
        has_request = self._skill.request is not None
        try:
            response, _ = await self._send(
                "GET", urljoin(self._url, "/") if has_request else self._url, HEALTH_TIMEOUT_S
            )
        except (AgentTimedOut, OutputTooLarge) as error:
            return error.message
        return (
            None
            if has_request or response.is_success or response.status_code in _NO_GET
            else f"HTTP {response.status_code}"
        )

    async def _send(self, method: str, url: str, timeout_s: float, **more: Any) -> tuple[httpx2.Response, bytes]:
        answer = BoundedOutput(MOST_BYTES, OutputTooLarge(f"the skill answered more than {MOST_BYTES} bytes"))
        try:
            with anyio.fail_after(timeout_s):
                async with self._client.stream(method, url, **more) as response:
                    async for chunk in response.aiter_bytes():
                        answer(chunk)
                    return response, bytes(answer.data)
        except TimeoutError:
            raise AgentTimedOut(f"{url} did not answer within {timeout_s:g} s") from None
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise connection_error(url, error) from error


def http_client(skill: CallableSkill, environ: Mapping[str, str]) -> httpx2.AsyncClient:
    """Return a client with the headers of the skill; it ignores proxies of the environment."""
    headers = {"X-Eval-Skills-Version": __version__, **skill.headers, **auth_headers(skill, environ)}
    return httpx2.AsyncClient(headers=headers, timeout=None, trust_env=False)


def connection_error(url: str, error: Exception) -> AgentError:
    """Return the error for an exchange that did not finish: no server, or one that does not speak HTTP."""
    details = f"{url}: {str(error) or type(error).__name__}"
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        return SkillUnreachable(details)
    return SkillFailed(f"the connection broke off: {details}")


def _usage(headers: Mapping[str, str]) -> Usage | None:
    input_tokens, output_tokens = (token_count(headers.get(name)) for name in (_INPUT, _OUTPUT))
    return (
        None
        if input_tokens is None and output_tokens is None
        else Usage(input_tokens=input_tokens, output_tokens=output_tokens)
    )


def _body(data: bytes) -> str:
    return shorten(data.decode(errors="replace").strip(), _SHOWN) or "(nothing)"
