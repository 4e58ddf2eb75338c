"""The way from the gateway to providers: one HTTP client for a run, and one limit for each provider.

Import it only if an agent goes through the gateway: the HTTP library takes long to import.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from urllib.parse import unquote_plus

import httpx2
from msgspec import Struct

from whet.gateway.connection import AnswerCut, Headers, end_to_end
from whet.gateway.rate_limit import LocalRateLimiter, RateLimiter
from whet.gateway.routes import KEY_HEADERS

# So that whet finds out within 30 s that a provider cannot be reached (`refusals.py`).
_CONNECT_S = 10.0
_MOST_PER_CLIENT = 32
_READABLE = ("gzip", "deflate")
# What the gateway says itself; what would make another method or path of those that it counts by; what takes a part of
# an answer, which may hold a part of the key; and what sends the key on to a server that the agent names.
_OMITTED_HEADERS = re.compile(
    rb"host|accept-encoding|expect|(if-)?range|forwarded"
    rb"|x-(http-)?(method|host|path|url|uri)(-override)?|x-(original|rewrite|forwarded|envoy|accel)-.*"
    rb"|.*(custom-host|target-url|base-url|api-base|upstream.*)|x-goog-fieldmask"
)
# The same in a query: another method or body, and a part of the answer, which may leave out what it took.
_OMITTED_FIELDS = re.compile(r"\$.*|fields|callback|_?(x-)?(http-?)?method(-?override)?")
# Where a query has a key, as some providers take it.
_KEY_FIELD = "key"
_KEY_FIELDS = (_KEY_FIELD, "access_token", "oauth_token", "bearer_token", "api_key", "api-key")
# How a body that is written anew is described, whatever the agent said: a server may read it in another way otherwise.
_DESCRIPTION = (b"content-length", b"content-type", b"content-encoding")
_JSON = (b"content-type", b"application/json")


class Unreachable(Exception):
    """A provider could not be asked at all."""


class Unsendable(Exception):
    """A request of the agent cannot be sent as it is, which says nothing about the provider."""


class ProviderRequest(Struct, frozen=True, kw_only=True):
    """A request as it goes to a provider."""

    method: str
    url: str
    headers: Headers
    body: AsyncIterator[bytes] | bytes | None


class _PooledClient(Struct):
    """A client of the HTTP library, and its requests under way: it looks at all of them for each new one."""

    client: httpx2.AsyncClient
    busy: int = 0


class Upstream:
    """Asks providers; proxies are those of our own environment."""

    def __init__(self, make_rate_limiter: Callable[[str], RateLimiter] = lambda _: LocalRateLimiter(None)) -> None:
        self._certificates = httpx2.create_ssl_context()
        self._clients: list[_PooledClient] = []
        # Makes the limit of a provider, by its host.
        self._make_rate_limiter = make_rate_limiter
        self._rate_limiters: dict[str, RateLimiter] = {}

    @asynccontextmanager
    async def ask(self, provider_request: ProviderRequest) -> AsyncIterator[httpx2.Response]:
        """Ask, and give the answer as soon as it begins; raises `Unreachable`."""
        try:
            url = httpx2.URL(provider_request.url)
        except httpx2.InvalidURL as error:
            raise Unsendable(str(error)) from error
        rate_limiter = self.rate_limiter(url.host)
        await rate_limiter.enter()
        pooled = self._free_client()
        pooled.busy += 1
        try:
            request = pooled.client.build_request(
                provider_request.method, url, headers=list(provider_request.headers), content=provider_request.body
            )
            try:
                response = await pooled.client.send(request, stream=True)
            except httpx2.LocalProtocolError as error:
                raise Unsendable(str(error)) from error
            except (httpx2.HTTPError, OSError) as error:
                raise Unreachable(str(error) or type(error).__name__) from error
            rate_limiter.heard(response.status_code, response.headers.get("retry-after"))
            try:
                yield response
            finally:
                await response.aclose()
        finally:
            pooled.busy -= 1
            rate_limiter.leave()

    def _free_client(self) -> _PooledClient:
        """Return the first client that has room, or a new one."""
        pooled_client = next((pooled for pooled in self._clients if pooled.busy < _MOST_PER_CLIENT), None)
        if pooled_client is None:
            # Without limits of its own: how long an agent waits is up to the agent.
            client = httpx2.AsyncClient(
                verify=self._certificates,
                timeout=httpx2.Timeout(None, connect=_CONNECT_S),
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=_MOST_PER_CLIENT),
                follow_redirects=False,
                # Cookies are the agent's own business: kept here, they would go out with the requests of others.
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            )
            pooled_client = _PooledClient(client)
            self._clients.append(pooled_client)
        return pooled_client

    def rate_limiter(self, host: str) -> RateLimiter:
        """Return the limit of a provider."""
        if host not in self._rate_limiters:
            self._rate_limiters[host] = self._make_rate_limiter(host)
        return self._rate_limiters[host]

    async def close(self) -> None:
        """Close all connections."""
        for pooled in self._clients:
            await pooled.client.aclose()
        self._clients.clear()


def unreadable_coding(response: httpx2.Response) -> str | None:
    """Return how an answer is packed if that cannot be read: nobody could see a key in it, nor what it took."""
    return next((coding for coding in _codings(response) if coding not in _READABLE), None)


def _codings(response: httpx2.Response) -> list[str]:
    words = (word.strip().lower() for word in response.headers.get("content-encoding", "").split(","))
    return [word for word in words if word not in ("", "identity")]


async def pieces_of(response: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield the pieces of an answer, unpacked; raises `AnswerCut` if it breaks off."""
    is_packed = bool(_codings(response))
    try:
        async for piece in response.aiter_bytes() if is_packed else response.aiter_raw():
            yield piece
    except (httpx2.HTTPError, OSError) as error:
        raise AnswerCut(str(error) or type(error).__name__) from error


def answer_headers(response: httpx2.Response) -> list[tuple[bytes, bytes]]:
    """Return the headers of an answer as the agent gets it: `pieces_of` unpacks it."""
    is_packed = bool(_codings(response))
    omitted_headers = (b"content-encoding", b"content-length") if is_packed else ()
    return [(name, value) for name, value in end_to_end(response.headers.raw) if name not in omitted_headers]


def request_headers(
    headers: Headers, keys: Mapping[bytes, bytes], *, anew: bool, is_confined: bool = False
) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request as the provider gets it: with the real keys, to be answered without packing.

    If its body is written *anew*, it is plain JSON, and has another length. An agent that is *confined* to its model
    has no other key there: what it asks with a key of its own, the owner of that key could read.
    """
    end_to_end_headers = [
        (name, _with_key(value, keys) if name in KEY_HEADERS else value)
        for name, value in end_to_end(headers)
        if not _OMITTED_HEADERS.fullmatch(name)
        and not (anew and name in _DESCRIPTION)
        and not (is_confined and keys and name in KEY_HEADERS and not _is_lent(value, keys))
    ]
    return [*end_to_end_headers, *([_JSON] if anew else ()), (b"accept-encoding", b"identity")]


def _with_key(value: bytes, keys: Mapping[bytes, bytes]) -> bytes:
    """Return a header with the real key in the place of the made-up one, if it is that key and nothing more.

    With more around it, a provider that repeats a part of a header could repeat a part of the key.
    """
    scheme, blank, key = value.rpartition(b" ")
    return scheme + blank + keys[key] if _is_lent(value, keys) else value


def _is_lent(value: bytes, keys: Mapping[bytes, bytes]) -> bool:
    scheme, _, key = value.rpartition(b" ")
    return key in keys and scheme.lower() in (b"", b"bearer")


def query_with_key(query: str, keys: Mapping[bytes, bytes], *, is_confined: bool = False) -> str:
    """Return a query with the real key where a made-up one is, as some agents send it.

    Without what makes another request of it, and without a key of the agent's own if it is *confined* to its model.
    """
    parts = []
    for part in query.split("&"):
        name, sign, value = part.partition("=")
        key = keys.get(value.encode()) if name == _KEY_FIELD else None
        if key is not None:
            parts.append(name + sign + key.decode())
        elif not any(_is_omitted(field, is_confined=is_confined and bool(keys)) for field in part.split(";")):
            parts.append(part)
    return "&".join(parts)


def _is_omitted(field: str, *, is_confined: bool) -> bool:
    """Return whether a field of a query is left out; some servers take a semicolon for the beginning of another one."""
    name = unquote_plus(field.partition("=")[0]).strip().lower()
    return _OMITTED_FIELDS.fullmatch(name) is not None or (is_confined and name in _KEY_FIELDS)
