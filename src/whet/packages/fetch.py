"""Fetch packages from the web and from buckets, within limits of size, time and addresses.

Import it only to fetch: most runs do not, and the HTTP library takes long to import.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
import httpcore2
import httpx2

from whet.errors import PackageError, PackageUnreachable
from whet.packages.settings import MIB, Buckets, FetchedFile, PackageSettings, Scheme, kind_of, printable_ref
from whet.reading.addresses import is_public
from whet.version import __version__, install_command

_PRIVATE_HINT = "set packages.allow_private_addresses to allow it"

_MOST_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
_SUCCESS = 200
_PATIENCE_S = 30.0
_LAST_PORT = 65_535
_HEADERS: dict[bytes | str, bytes | str] = {
    "Accept": "*/*",
    # The bytes of the archive itself, without compression for the transfer.
    "Accept-Encoding": "identity",
    "User-Agent": f"whet/{__version__}",
}

_TIMEOUTS = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), _PATIENCE_S)}


async def fetch(ref: str, target: Path, settings: PackageSettings, environ: Mapping[str, str]) -> FetchedFile:
    """Fetch *ref* from the web or a bucket into the new file *target*."""
    limit_s = settings.limits.fetch_timeout_s
    try:
        with anyio.fail_after(limit_s):
            async with _open_stream(ref, settings, environ) as chunks:
                return await _save_stream(chunks, ref, target, settings.limits.download_bytes)
    except TimeoutError:
        raise PackageUnreachable(f"{printable_ref(ref)} was not fetched within {limit_s:g} s") from None


def _open_stream(
    ref: str, settings: PackageSettings, environ: Mapping[str, str]
) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
    if kind_of(ref) == "web":
        return open_http(ref, public_only=not settings.allow_private_addresses)

    scheme, _, place = ref.partition("://")
    bucket_scheme = cast(Scheme, scheme.lower())
    try:
        from whet.packages._buckets import open_object
    except ImportError:
        raise PackageError("packages from buckets need obstore", hint=install_command("s3")) from None
    return open_object(bucket_scheme, place, settings.buckets.get(bucket_scheme, Buckets()), environ)


async def _save_stream(chunks: AsyncIterator[bytes], ref: str, target: Path, most_bytes: int) -> FetchedFile:
    digest, size = hashlib.sha256(), 0
    async with await anyio.open_file(target, "xb") as file:
        async for chunk in chunks:
            size += len(chunk)
            if size > most_bytes:
                raise PackageError(
                    f"{printable_ref(ref)} is larger than {most_bytes // MIB:,} MiB",
                    hint="raise packages.max_download_mb",
                )
            digest.update(chunk)
            await file.write(chunk)
    return FetchedFile(target, digest.hexdigest())


@asynccontextmanager
async def open_http(url: str, *, public_only: bool) -> AsyncIterator[AsyncIterator[bytes]]:
    """Stream the bytes at *url*; with *public_only*, from public addresses only. Redirects are followed one by one."""
    # Do not use a proxy: it would look up names where whet cannot check their addresses.
    backend = PublicBackend() if public_only else httpcore2.AnyIOBackend()
    async with httpcore2.AsyncConnectionPool(
        ssl_context=httpx2.create_ssl_context(), network_backend=backend, max_connections=1
    ) as pool:
        try:
            address = _address(url)
            for _ in range(_MOST_REDIRECTS + 1):
                target = httpcore2.URL(
                    scheme=address.raw_scheme, host=address.raw_host, port=address.port, target=address.raw_path
                )
                headers = {"Host": address.netloc.decode("ascii"), **_HEADERS}
                async with pool.stream("GET", target, headers=headers, extensions=_TIMEOUTS) as response:
                    if response.status == _SUCCESS:
                        yield response.aiter_stream()
                        return
                    if response.status not in _REDIRECTS:
                        kind = PackageUnreachable if response.status in _RETRIED else PackageError
                        raise kind(f"{printable_ref(url)} answered with HTTP {response.status}")
                    address = _next(address, response)
            raise PackageError(f"{printable_ref(url)} redirects too often")
        except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError) as error:
            raise PackageUnreachable(
                f"{printable_ref(url)} cannot be fetched: {str(error) or type(error).__name__}"
            ) from error


def _address(url: str) -> httpx2.URL:
    try:
        address = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError) as error:
        raise PackageError(f"{printable_ref(url)} is not an address: {error}") from error
    if address.scheme not in ("http", "https") or not address.host:
        raise PackageError(f"{printable_ref(url)} is not a web address")
    if address.port is not None and not 0 < address.port <= _LAST_PORT:
        raise PackageError(f"{printable_ref(url)} is not an address: there is no port {address.port}")
    if address.userinfo:
        raise PackageError("the address of a package contains a user name or password, which whet does not send")
    return address


def _next(address: httpx2.URL, response: httpcore2.Response) -> httpx2.URL:
    to = next((value for name, value in response.headers if name.lower() == b"location"), None)
    if to is None:
        raise PackageError(f"{printable_ref(str(address))} redirects without an address")
    try:
        target = address.join(to.decode("ascii"))
    except (httpx2.InvalidURL, ValueError) as error:
        raise PackageError(
            f"{printable_ref(str(address))} redirects to something that is not an address: {error}"
        ) from error
    if address.scheme == "https" and target.scheme != "https":
        raise PackageError(f"{printable_ref(str(address))} redirects from https to an address without encryption")
    return _address(str(target))


class PublicBackend(httpcore2.AnyIOBackend):
    """Connects to public addresses only, also after a redirect."""

    async def connect_tcp(self, host: str, port: int, *arguments: Any, **options: Any) -> httpcore2.AsyncNetworkStream:
        """Look up *host*, refuse it if any of its addresses is not public, and connect to the first that answers."""
        trouble: Exception | None = None
        for address in await _look_up(host, port):
            try:
                return await super().connect_tcp(address, port, *arguments, **options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                trouble = error
        raise trouble or httpcore2.ConnectError(f"{host} has no address")

    async def connect_unix_socket(self, path: str, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        """Refuse: a socket is not an address of the web."""
        raise AddressRefused(f"{path} is not an address")


async def _look_up(host: str, port: int) -> list[str]:
    try:
        records = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore2.ConnectError(f"{host} cannot be looked up: {error}") from error
    addresses = list(dict.fromkeys(str(where[0]) for *_, where in records))
    # One address that is not public is enough to refuse: a name with both kinds is suspicious.
    for address in addresses:
        if not is_public(address):
            raise AddressRefused(f"{host} leads to {address}, which is not a public address", hint=_PRIVATE_HINT)
    return addresses


class AddressRefused(PackageError):
    """The address is not a public one."""
