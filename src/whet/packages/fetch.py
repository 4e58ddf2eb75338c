"""Fetch packages from the web and from buckets, within limits of size, time and addresses.

Import it only to fetch: most runs do not, and the HTTP library takes long to import.
"""

from __future__ import annotations

import hashlib
import re
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
import httpcore2
import httpx2

from whet.errors import PackageError, PackageUnreachable
from whet.ground.package_settings import MIB, Buckets, Fetched, PackageSettings, Scheme, kind_of, shown_ref
from whet.reading.addresses import is_public
from whet.version import __version__

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

_BUCKET_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_CHUNK = 1024 * 1024


async def fetch(ref: str, target: Path, settings: PackageSettings, environ: Mapping[str, str]) -> Fetched:
    """Fetch *ref* from the web or a bucket into the new file *target*."""
    limit_s = settings.limits.fetch_timeout_s
    try:
        with anyio.fail_after(limit_s):
            async with _opened(ref, settings, environ) as chunks:
                return await _kept(chunks, ref, target, settings.limits.download_bytes)
    except TimeoutError:
        raise PackageUnreachable(f"{shown_ref(ref)} was not fetched within {limit_s:g} s") from None


def _opened(
    ref: str, settings: PackageSettings, environ: Mapping[str, str]
) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
    if kind_of(ref) == "web":
        return open_http(ref, public_only=not settings.allow_private_addresses)

    scheme, _, place = ref.partition("://")
    known = cast(Scheme, scheme.lower())
    return open_object(known, place, settings.buckets.get(known, Buckets()), environ)


async def _kept(chunks: AsyncIterator[bytes], ref: str, target: Path, most_bytes: int) -> Fetched:
    digest, size = hashlib.sha256(), 0
    async with await anyio.open_file(target, "xb") as file:
        async for chunk in chunks:
            size += len(chunk)
            if size > most_bytes:
                raise PackageError(
                    f"{shown_ref(ref)} is larger than {most_bytes // MIB:,} MiB", hint="raise packages.max_download_mb"
                )
            digest.update(chunk)
            await file.write(chunk)
    return Fetched(target, digest.hexdigest())


@asynccontextmanager
async def open_http(url: str, *, public_only: bool) -> AsyncIterator[AsyncIterator[bytes]]:
    """Stream the bytes at *url*; with *public_only*, from public addresses only. Redirects are followed one by one."""
    # Do not use a proxy: it would look up names where whet cannot check their addresses.
    backend = PublicBackend() if public_only else httpcore2.AnyIOBackend()
    async with httpcore2.AsyncConnectionPool(
        ssl_context=httpx2.create_ssl_context(), network_backend=backend, max_connections=1
    ) as pool:
        try:
            here = _address(url)
            for _ in range(_MOST_REDIRECTS + 1):
                target = httpcore2.URL(scheme=here.raw_scheme, host=here.raw_host, port=here.port, target=here.raw_path)
                headers = {"Host": here.netloc.decode("ascii"), **_HEADERS}
                async with pool.stream("GET", target, headers=headers, extensions=_TIMEOUTS) as response:
                    if response.status == _SUCCESS:
                        yield response.aiter_stream()
                        return
                    if response.status not in _REDIRECTS:
                        kind = PackageUnreachable if response.status in _RETRIED else PackageError
                        raise kind(f"{shown_ref(url)} answered with HTTP {response.status}")
                    here = _next(here, response)
            raise PackageError(f"{shown_ref(url)} redirects too often")
        except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError) as error:
            raise PackageUnreachable(
                f"{shown_ref(url)} cannot be fetched: {str(error) or type(error).__name__}"
            ) from error


def _address(url: str) -> httpx2.URL:
    try:
        found = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError) as error:
        raise PackageError(f"{shown_ref(url)} is not an address: {error}") from error
    if found.scheme not in ("http", "https") or not found.host:
        raise PackageError(f"{shown_ref(url)} is not a web address")
    if found.port is not None and not 0 < found.port <= _LAST_PORT:
        raise PackageError(f"{shown_ref(url)} is not an address: there is no port {found.port}")
    if found.userinfo:
        raise PackageError("the address of a package contains a user name or password, which whet does not send")
    return found


def _next(here: httpx2.URL, response: httpcore2.Response) -> httpx2.URL:
    to = next((value for name, value in response.headers if name.lower() == b"location"), None)
    if to is None:
        raise PackageError(f"{shown_ref(str(here))} redirects without an address")
    try:
        found = here.join(to.decode("ascii"))
    except (httpx2.InvalidURL, ValueError) as error:
        raise PackageError(f"{shown_ref(str(here))} redirects to something that is not an address: {error}") from error
    if here.scheme == "https" and found.scheme != "https":
        raise PackageError(f"{shown_ref(str(here))} redirects from https to an address without encryption")
    return _address(str(found))


@asynccontextmanager
async def open_object(
    scheme: Scheme, place: str, buckets: Buckets, environ: Mapping[str, str]
) -> AsyncIterator[AsyncIterator[bytes]]:
    """Stream the bytes of the object at *place* (`bucket/key`), with the access keys in *environ*."""
    bucket, _, key = place.partition("/")
    ref = f"{scheme}://{place}"
    _check_bucket(scheme, bucket, key, buckets)
    obstore, store = _store(bucket, buckets, environ)
    try:
        found = await obstore.get_async(store, key)
    except FileNotFoundError:
        raise PackageError(f"{ref} does not exist, or you may not read it") from None
    except (obstore.exceptions.PermissionDeniedError, obstore.exceptions.UnauthenticatedError) as error:
        hint = f"check that {buckets.key_variable} and {buckets.secret_variable} contain keys that may read it"
        raise PackageError(f"you may not read {ref}", hint=hint) from error
    except (obstore.exceptions.BaseError, OSError) as error:
        raise _unreachable(ref, error) from error
    yield _explained_stream(found.stream(min_chunk_size=_CHUNK), ref)


async def _explained_stream(stream: Any, ref: str) -> AsyncIterator[bytes]:
    import obstore.exceptions  # noqa: PLC0415

    try:
        async for chunk in stream:
            yield bytes(chunk)
    except (obstore.exceptions.BaseError, OSError) as error:
        raise _unreachable(ref, error) from error


def _unreachable(ref: str, error: Exception) -> PackageUnreachable:
    # After the first line, the library prints its whole state, with signed addresses.
    said = str(error).split("\n")[0][:300]
    return PackageUnreachable(f"{ref} cannot be fetched: {said}")


def _check_bucket(scheme: Scheme, bucket: str, key: str, buckets: Buckets) -> None:
    if not _BUCKET_NAME.fullmatch(bucket) or not key or any(part in ("", ".", "..") for part in key.split("/")):
        raise PackageError(f"{scheme}://{bucket}/{key} is not of the form {scheme}://bucket/key")
    if (buckets.allowed or buckets.named_only) and bucket not in buckets.allowed:
        raise PackageError(f'bucket "{bucket}" is not among packages.{scheme}.allowed')
    if scheme == "r2" and buckets.endpoint is None:
        raise PackageError("the endpoint of r2:// is not set", hint="set packages.r2.endpoint")


def _store(bucket: str, buckets: Buckets, environ: Mapping[str, str]) -> tuple[Any, Any]:
    try:
        import obstore  # noqa: PLC0415 - a large library, for those who have packages in buckets
        import obstore.exceptions  # noqa: PLC0415
        from obstore.store import S3Store  # noqa: PLC0415
    except ImportError:
        raise PackageError("packages from buckets need obstore", hint="pip install 'whet[s3]'") from None
    key, secret = environ.get(buckets.key_variable), environ.get(buckets.secret_variable)
    # Without this, the library would ask the cloud provider of this machine for keys.
    access: dict[str, Any] = (
        {"access_key_id": key, "secret_access_key": secret} if key and secret else {"skip_signature": True}
    )
    if buckets.endpoint is not None:
        access["endpoint"] = buckets.endpoint
    store = S3Store(
        bucket,
        region=buckets.region or ("auto" if buckets.endpoint else "us-east-1"),
        client_options={"allow_http": True, "connect_timeout": "30s", "timeout": "1h"},
        retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=60)},
        **access,
    )
    return obstore, store


class PublicBackend(httpcore2.AnyIOBackend):
    """Connects to public addresses only, also after a redirect."""

    async def connect_tcp(self, host: str, port: int, *rest: Any, **more: Any) -> httpcore2.AsyncNetworkStream:
        """Look up *host*, refuse it if any of its addresses is not public, and connect to the first that answers."""
        trouble: Exception | None = None
        for address in await _looked_up(host, port):
            try:
                return await super().connect_tcp(address, port, *rest, **more)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                trouble = error
        raise trouble or httpcore2.ConnectError(f"{host} has no address")

    async def connect_unix_socket(self, path: str, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        """Refuse: a socket is not an address of the web."""
        raise AddressRefused(f"{path} is not an address")


async def _looked_up(host: str, port: int) -> list[str]:
    try:
        found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore2.ConnectError(f"{host} cannot be looked up: {error}") from error
    addresses = list(dict.fromkeys(str(where[0]) for *_, where in found))
    # One address that is not public is enough to refuse: a name with both kinds is suspicious.
    for address in addresses:
        if not is_public(address):
            raise AddressRefused(f"{host} leads to {address}, which is not a public address", hint=_PRIVATE_HINT)
    return addresses


class AddressRefused(PackageError):
    """The address is not a public one."""
