"""Fetching over HTTP: redirects are followed one by one, and nothing is taken beyond what is allowed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpcore2
import httpx2

from whet.errors import PackageError, PackageUnreachable
from whet.packages.addresses import GuardedBackend
from whet.packages.naming import shown_ref
from whet.version import __version__

_MOST_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_WORTH_ANOTHER = frozenset({408, 425, 429, 500, 502, 503, 504})
_SUCCESS = 200
_PATIENCE_S = 30.0
_LAST_PORT = 65_535
_HEADERS: dict[bytes | str, bytes | str] = {
    "Accept": "*/*",
    # The very bytes of the archive, not a packing of them for the way.
    "Accept-Encoding": "identity",
    "User-Agent": f"whet/{__version__}",
}


@asynccontextmanager
async def open_http(url: str, *, guarded: bool) -> AsyncIterator[AsyncIterator[bytes]]:
    """The bytes at *url* as they come; *guarded* lets them come from public addresses only."""
    # A proxy of the environment would look names up where the guard does not see it: none is used.
    backend = GuardedBackend() if guarded else httpcore2.AnyIOBackend()
    async with httpcore2.AsyncConnectionPool(
        ssl_context=httpx2.create_ssl_context(), network_backend=backend, max_connections=1
    ) as pool:
        try:
            here = _address(url)
            for _ in range(_MOST_REDIRECTS + 1):
                async with pool.stream("GET", _target(here), headers=_headers(here), extensions=_TIMEOUTS) as response:
                    if response.status not in _REDIRECTS:
                        _check_status(response.status, url)
                        yield response.aiter_stream()
                        return
                    here = _next(here, response)
            raise PackageError(f"{shown_ref(url)} leads from one address to the next without end")
        except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError) as error:
            raise PackageUnreachable(
                f"{shown_ref(url)} cannot be fetched: {str(error) or type(error).__name__}"
            ) from error


_TIMEOUTS = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), _PATIENCE_S)}


def _address(url: str) -> httpx2.URL:
    try:
        found = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError) as error:
        raise PackageError(f"{shown_ref(url)} is not an address: {error}") from error
    if found.scheme not in ("http", "https") or not found.host:
        raise PackageError(f"{shown_ref(url)} is not an address of the web")
    if found.port is not None and not 0 < found.port <= _LAST_PORT:
        raise PackageError(f"{shown_ref(url)} is not an address: there is no port {found.port}")
    if found.userinfo:
        raise PackageError("the address of a package holds a name or password, which is not sent")
    return found


def _target(url: httpx2.URL) -> httpcore2.URL:
    return httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


def _headers(url: httpx2.URL) -> dict[bytes | str, bytes | str]:
    return {"Host": url.netloc.decode("ascii"), **_HEADERS}


def _next(here: httpx2.URL, response: httpcore2.Response) -> httpx2.URL:
    to = next((value for name, value in response.headers if name.lower() == b"location"), None)
    if to is None:
        raise PackageError(f"{shown_ref(str(here))} leads elsewhere and does not say where")
    try:
        found = here.join(to.decode("ascii"))
    except (httpx2.InvalidURL, ValueError) as error:
        raise PackageError(f"{shown_ref(str(here))} leads to no address: {error}") from error
    if here.scheme == "https" and found.scheme != "https":
        raise PackageError(f"{shown_ref(str(here))} leads to an address without encryption")
    return _address(str(found))


def _check_status(status: int, url: str) -> None:
    if status == _SUCCESS:
        return
    kind = PackageUnreachable if status in _WORTH_ANOTHER else PackageError
    raise kind(f"{shown_ref(url)} answered with HTTP {status}")
