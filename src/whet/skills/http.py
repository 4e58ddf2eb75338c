"""A skill behind an HTTP endpoint: a POST with JSON in it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from whet.errors import AgentError, AgentTimedOut, OutputTooLarge, SkillFailed, SkillUnreachable
from whet.model.session import Usage
from whet.model.skill import CallableSkill
from whet.model.usage import token_count
from whet.skills.answers import BadAnswer, read_answer
from whet.skills.base import HEALTH_TIMEOUT_S, MOST_BYTES, Reply, auth_headers
from whet.version import __version__

if TYPE_CHECKING:
    import httpx2

_SHOWN = 500
# Not found, method not allowed, not implemented.
_NO_GET = frozenset({404, 405, 501})
_INPUT, _OUTPUT = "x-usage-input-tokens", "x-usage-output-tokens"


class HttpSkill:
    """One connection pool for all calls."""

    def __init__(self, skill: CallableSkill, client: httpx2.AsyncClient) -> None:
        assert skill.url is not None
        self._skill, self._url, self._client = skill, skill.url, client

    async def call(self, given: Mapping[str, Any], *, timeout_s: float) -> Reply:
        """POST the input; the answer is the whole JSON body."""
        body = {"skillId": self._skill.id, "version": self._skill.version, "input": dict(given)}
        began = time.monotonic()
        response, data = await self._send("POST", timeout_s, body)
        latency_ms = (time.monotonic() - began) * 1000
        if response.has_redirect_location:
            where = response.headers["location"]
            raise SkillFailed(
                f"HTTP {response.status_code}: it sends us on to {where}", hint="name that address in entrypoint"
            )
        if not response.is_success:
            raise SkillFailed(f"HTTP {response.status_code}: {_shown(data)}")
        try:
            output = read_answer(data)
        except BadAnswer as error:
            raise SkillFailed(f"its answer {error}: {_shown(data)}") from error
        return Reply(output=output, latency_ms=latency_ms, usage=_usage(response.headers))

    async def health(self) -> str | None:
        """Whether a GET of the same address succeeds; many endpoints know POST only, and that is no illness."""
        try:
            response, _ = await self._send("GET", HEALTH_TIMEOUT_S, None)
        except (AgentTimedOut, OutputTooLarge) as error:
            return error.message
        return None if response.is_success or response.status_code in _NO_GET else f"HTTP {response.status_code}"

    async def _send(self, method: str, timeout_s: float, body: Any) -> tuple[httpx2.Response, bytes]:
        import anyio  # noqa: PLC0415 - only those who call skills over HTTP wait for these
        import httpx2  # noqa: PLC0415

        try:
            with anyio.fail_after(timeout_s):
                async with self._client.stream(method, self._url, json=body) as response:
                    return response, await _read(response)
        except TimeoutError:
            raise AgentTimedOut(f"{self._url} did not answer within {timeout_s:g} s") from None
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise broken(self._url, error) from error


def http_client(skill: CallableSkill, environ: Mapping[str, str]) -> httpx2.AsyncClient:
    """A client that sends what the skill's endpoint wants to see, and uses no proxy that somebody else set up."""
    import httpx2  # noqa: PLC0415

    headers = {"X-Eval-Skills-Version": __version__, **skill.headers, **auth_headers(skill, environ)}
    return httpx2.AsyncClient(headers=headers, timeout=None, trust_env=False)


def broken(url: str, error: Exception) -> AgentError:
    """What it means that an exchange came to no end: nobody is there, or somebody does not do as HTTP wants it."""
    import httpx2  # noqa: PLC0415

    said = f"{url}: {str(error) or type(error).__name__}"
    never_there = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
    return SkillUnreachable(said) if never_there else SkillFailed(f"it broke off: {said}")


async def _read(response: httpx2.Response) -> bytes:
    data = bytearray()
    async for chunk in response.aiter_bytes():
        data += chunk
        if len(data) > MOST_BYTES:
            raise OutputTooLarge(f"the skill answered more than {MOST_BYTES} bytes")
    return bytes(data)


def _usage(headers: Mapping[str, str]) -> Usage | None:
    taken, given = (token_count(headers.get(name)) for name in (_INPUT, _OUTPUT))
    return None if taken is None and given is None else Usage(input_tokens=taken, output_tokens=given)


def _shown(data: bytes) -> str:
    text = data.decode(errors="replace").strip()
    return text or "(nothing)" if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
