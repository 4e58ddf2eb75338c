"""The way from the gateway to providers: one HTTP client for a run, and one limit for each provider.

Import it only if an agent goes through the gateway: the HTTP library takes long to import.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx2

from whet.agents.gateway_http import Cut, Headers, end_to_end
from whet.agents.gateway_routes import KEY_HEADERS
from whet.agents.turnstile import Passing, Turnstile
from whet.dataclass import dataclass

# So that whet can tell within 30 s that nobody can reach a provider (`gateway_refusals.py`).
_CONNECT_S = 10.0
_MOST_ON_LINE = 32
_READABLE = ("gzip", "deflate")
# What the gateway says itself, and what would make another method of the one that it counts by.
_OWN_HEADERS = (
    b"host",
    b"accept-encoding",
    b"expect",
    b"x-http-method-override",
    b"x-http-method",
    b"x-method-override",
)


class Unreachable(Exception):
    """A provider could not be asked at all."""


class Unsendable(Exception):
    """A request of the agent cannot be sent as it is, which says nothing about the provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request as it goes to a provider."""

    method: str
    url: str
    headers: Headers
    body: AsyncIterator[bytes] | bytes | None


@dataclass(slots=True)
class _Line:
    """A client of the HTTP library, and its requests under way: it looks at all of them for each new one."""

    client: httpx2.AsyncClient
    busy: int = 0


class Upstream:
    """Asks providers; proxies are those of our own environment."""

    def __init__(self, turnstile: Callable[[str], Passing] = lambda _: Turnstile(None)) -> None:
        self._certificates = httpx2.create_ssl_context()
        self._lines: list[_Line] = []
        # Makes the limit of a provider, by its host.
        self._new_turnstile = turnstile
        self._turnstiles: dict[str, Passing] = {}

    @asynccontextmanager
    async def ask(self, question: Question) -> AsyncIterator[httpx2.Response]:
        """Ask, and give the answer as soon as it begins; raises `Unreachable`."""
        try:
            url = httpx2.URL(question.url)
        except httpx2.InvalidURL as error:
            raise Unsendable(str(error)) from error
        turnstile = self.turnstile(url.host)
        await turnstile.enter()
        line = self._free_line()
        line.busy += 1
        try:
            request = line.client.build_request(
                question.method, url, headers=list(question.headers), content=question.body
            )
            try:
                response = await line.client.send(request, stream=True)
            except httpx2.LocalProtocolError as error:
                raise Unsendable(str(error)) from error
            except (httpx2.HTTPError, OSError) as error:
                raise Unreachable(str(error) or type(error).__name__) from error
            turnstile.heard(response.status_code, response.headers.get("retry-after"))
            try:
                yield response
            finally:
                await response.aclose()
        finally:
            line.busy -= 1
            turnstile.leave()

    def _free_line(self) -> _Line:
        """Return the first client that has room, or a new one."""
        found = next((line for line in self._lines if line.busy < _MOST_ON_LINE), None)
        if found is None:
            # Without limits of its own: how long an agent waits is up to the agent.
            client = httpx2.AsyncClient(
                verify=self._certificates,
                timeout=httpx2.Timeout(None, connect=_CONNECT_S),
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=_MOST_ON_LINE),
                follow_redirects=False,
                # Cookies are the agent's own business: kept here, they would go out with the requests of others.
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            )
            found = _Line(client)
            self._lines.append(found)
        return found

    def turnstile(self, host: str) -> Passing:
        """Return the limit of a provider."""
        if host not in self._turnstiles:
            self._turnstiles[host] = self._new_turnstile(host)
        return self._turnstiles[host]

    async def close(self) -> None:
        """Close all connections."""
        for line in self._lines:
            await line.client.aclose()
        self._lines.clear()


async def pieces_of(response: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield the pieces of an answer, unpacked; raises `Cut` if it breaks off."""
    packed = response.headers.get("content-encoding", "").lower() in _READABLE
    try:
        async for piece in response.aiter_bytes() if packed else response.aiter_raw():
            yield piece
    except (httpx2.HTTPError, OSError) as error:
        raise Cut(str(error) or type(error).__name__) from error


def answer_headers(response: httpx2.Response) -> list[tuple[bytes, bytes]]:
    """Return the headers of an answer as the agent gets it: `pieces_of` unpacks it."""
    packed = response.headers.get("content-encoding", "").lower() in _READABLE
    dropped = (b"content-encoding", b"content-length") if packed else ()
    return [(name, value) for name, value in end_to_end(response.headers.raw) if name not in dropped]


def question_headers(headers: Headers, keys: Mapping[bytes, bytes], *, anew: bool) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request as the provider gets it: with the real keys, to be answered without packing.

    If its body is written *anew*, it has another length.
    """
    dropped = (*_OWN_HEADERS, b"content-length") if anew else _OWN_HEADERS
    kept = [
        (name, _with_key(value, keys) if name in KEY_HEADERS else value)
        for name, value in end_to_end(headers)
        if name not in dropped
    ]
    return [*kept, (b"accept-encoding", b"identity")]


def _with_key(value: bytes, keys: Mapping[bytes, bytes]) -> bytes:
    """Return a header with the real key in the place of the made-up one, if it is that key and nothing more.

    With more around it, a provider that repeats a part of a header could repeat a part of the key.
    """
    scheme, blank, key = value.rpartition(b" ")
    return scheme + blank + keys[key] if key in keys and scheme.lower() in (b"", b"bearer") else value


def query_with_key(query: str, keys: Mapping[bytes, bytes]) -> str:
    """Return a query with the real key where a made-up one is: some agents send it there."""
    parts = (part.partition("=") for part in query.split("&"))
    found = ((name, sign, keys.get(value.encode()) if name == "key" else None, value) for name, sign, value in parts)
    return "&".join(name + sign + (real.decode() if real else value) for name, sign, real, value in found)
