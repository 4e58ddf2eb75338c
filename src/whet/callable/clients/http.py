"""The client for a skill that is an HTTP endpoint: one made for skills, or one that was there before."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urljoin

import anyio

from whet.agents.callable import HEALTH_TIMEOUT_S, MOST_BYTES, Reply, auth_headers, read_answer
from whet.errors import AgentError, AgentTimedOut, OutputTooLarge, SkillFailed, SkillUnreachable
from whet.ground.program_output import BoundedOutput
from whet.model.benchmark import CallableSkill, HttpRequest
from whet.model.session import Usage, token_count
from whet.reading.documents import DocumentError
from whet.reading.text import shorten, shown
from whet.version import __version__

if TYPE_CHECKING:
    import httpx2

_SHOWN = 500
# Not found, method not allowed, not implemented.
_NO_GET = frozenset({404, 405, 501})
_INPUT, _OUTPUT = "x-usage-input-tokens", "x-usage-output-tokens"


class HttpSkill:
    """Calls an endpoint, with one connection pool for all calls."""

    def __init__(self, skill: CallableSkill, client: httpx2.AsyncClient) -> None:
        assert skill.url is not None
        self._skill, self._url, self._client = skill, skill.url, client

    async def call(self, given: Mapping[str, Any], *, timeout_s: float) -> Reply:
        """Send the input; the JSON body is the answer."""
        method, url, headers, body = self._request(given)
        began = time.monotonic()
        response, data = await self._send(method, url, timeout_s, headers=headers, json=body)
        latency_ms = (time.monotonic() - began) * 1000
        if response.has_redirect_location:
            moved = f"HTTP {response.status_code}: it redirects to {response.headers['location']}"
            raise SkillFailed(moved, hint="set entrypoint to that address")
        if not response.is_success:
            raise SkillFailed(f"HTTP {response.status_code}: {_body(data)}")
        try:
            # An endpoint that was there before may have nothing to say: 204.
            output = read_answer(data) if data or self._skill.request is None else None
        except DocumentError as error:
            raise SkillFailed(f"its answer {error}: {_body(data)}") from error
        return Reply(output=output, latency_ms=latency_ms, usage=_usage(response.headers))

    async def health(self) -> str | None:
        """Return what is wrong if a GET of the same address fails; an endpoint that only knows POST is healthy.

        An endpoint that was there before is healthy if its server answers: asking it may change something.
        """
        own = self._skill.request is not None
        try:
            response, _ = await self._send("GET", urljoin(self._url, "/") if own else self._url, HEALTH_TIMEOUT_S)
        except (AgentTimedOut, OutputTooLarge) as error:
            return error.message
        return None if own or response.is_success or response.status_code in _NO_GET else f"HTTP {response.status_code}"

    def _request(self, given: Mapping[str, Any]) -> tuple[str, str, dict[str, str], Any]:
        """Return the method, the address, more headers and the JSON body of a call."""
        asked = self._skill.request
        if asked is None:
            return (
                "POST",
                self._url,
                {},
                {"skillId": self._skill.id, "version": self._skill.version, "input": dict(given)},
            )
        return asked.method, _address(asked, self._url, given), _headers(asked, given), _json(asked, given)

    async def _send(self, method: str, url: str, timeout_s: float, **more: Any) -> tuple[httpx2.Response, bytes]:
        import httpx2  # noqa: PLC0415 - only skills over HTTP need it

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
            raise broken(url, error) from error


def _address(asked: HttpRequest, url: str, given: Mapping[str, Any]) -> str:
    """Return *url* with the fields of the input that belong into its path and its query."""
    for name in asked.path:
        url = url.replace(f"{{{name}}}", quote(_text(given.get(name)), safe=""))
    # A list is a field several times.
    pairs = [(name, _text(item)) for name, value in _given(asked.query, given) for item in _items(value)]
    return f"{url}{'&' if '?' in url else '?'}{urlencode(pairs)}" if pairs else url


def _headers(asked: HttpRequest, given: Mapping[str, Any]) -> dict[str, str]:
    return {name: _text(value) for name, value in _given(asked.header, given)}


def _json(asked: HttpRequest, given: Mapping[str, Any]) -> Any:
    return given.get(asked.body) if asked.body is not None else None


def _given(names: tuple[str, ...], given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, given[name]) for name in names if given.get(name) is not None)


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _text(value: Any) -> str:
    """Return a value as addresses and headers have it: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def unfit_input(skill: CallableSkill, given: Mapping[str, Any]) -> Iterator[str]:
    """Yield why *given* cannot be sent: a field that has no place in the request, or a path that would have a hole."""
    asked = skill.request
    if asked is None:
        return
    places = (*asked.path, *asked.query, *asked.header, *((asked.body,) if asked.body else ()))
    for name in given:
        if name not in places:
            yield f'the request has no place for "{name}"; it takes {", ".join(places) or "nothing"}'
    for name in asked.path:
        if given.get(name) is None or _text(given[name]) in {"", ".", ".."}:
            yield f'the address needs "{name}"'
    for name, value in _given(asked.header, given):
        text = _text(value)
        if not text.isprintable() or not text.isascii():
            yield f'"{name}" cannot be sent in a header: {shown(value)}'


def http_client(skill: CallableSkill, environ: Mapping[str, str]) -> httpx2.AsyncClient:
    """Return a client with the headers of the skill; it ignores proxies of the environment."""
    import httpx2  # noqa: PLC0415

    headers = {"X-Eval-Skills-Version": __version__, **skill.headers, **auth_headers(skill, environ)}
    return httpx2.AsyncClient(headers=headers, timeout=None, trust_env=False)


def broken(url: str, error: Exception) -> AgentError:
    """Return the error for an exchange that did not finish: no server, or one that does not speak HTTP."""
    import httpx2  # noqa: PLC0415

    said = f"{url}: {str(error) or type(error).__name__}"
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        return SkillUnreachable(said)
    return SkillFailed(f"the connection broke off: {said}")


def _usage(headers: Mapping[str, str]) -> Usage | None:
    taken, given = (token_count(headers.get(name)) for name in (_INPUT, _OUTPUT))
    return None if taken is None and given is None else Usage(input_tokens=taken, output_tokens=given)


def _body(data: bytes) -> str:
    return shorten(data.decode(errors="replace").strip(), _SHOWN) or "(nothing)"
