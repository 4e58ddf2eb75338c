"""Fetching from buckets that speak the S3 interface: `r2://bucket/key` and `s3://bucket/key`."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from whet.errors import PackageError, PackageUnreachable
from whet.packages.settings import Buckets, Scheme

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_CHUNK = 1024 * 1024


@asynccontextmanager
async def open_object(
    scheme: Scheme, place: str, buckets: Buckets, environ: Mapping[str, str]
) -> AsyncIterator[AsyncIterator[bytes]]:
    """The bytes of the object at *place* (`bucket/key`) as they come; the keys are read from *environ*."""
    bucket, _, key = place.partition("/")
    ref = f"{scheme}://{place}"
    _check(scheme, bucket, key, buckets)
    obstore, store = _store(bucket, buckets, environ)
    try:
        found = await obstore.get_async(store, key)
    except FileNotFoundError:
        raise PackageError(f"{ref} is not there, or may not be read") from None
    except (obstore.exceptions.PermissionDeniedError, obstore.exceptions.UnauthenticatedError) as error:
        hint = f"see whether {buckets.key_variable} and {buckets.secret_variable} hold keys that open it"
        raise PackageError(f"{ref} may not be read", hint=hint) from error
    except (obstore.exceptions.BaseError, OSError) as error:
        raise _unreachable(ref, error) from error
    yield _told(found.stream(min_chunk_size=_CHUNK), ref)


async def _told(stream: Any, ref: str) -> AsyncIterator[bytes]:
    import obstore.exceptions  # noqa: PLC0415

    try:
        async for chunk in stream:
            yield bytes(chunk)
    except (obstore.exceptions.BaseError, OSError) as error:
        raise _unreachable(ref, error) from error


def _unreachable(ref: str, error: Exception) -> PackageUnreachable:
    # The library appends its whole state, addresses with signatures among it.
    said = str(error).split("\n")[0][:300]
    return PackageUnreachable(f"{ref} cannot be fetched: {said}")


def _check(scheme: Scheme, bucket: str, key: str, buckets: Buckets) -> None:
    if not _NAME.fullmatch(bucket) or not key or any(part in ("", ".", "..") for part in key.split("/")):
        raise PackageError(f"{scheme}://{bucket}/{key} does not read like {scheme}://bucket/key")
    if buckets.allowed and bucket not in buckets.allowed:
        raise PackageError(f'bucket "{bucket}" is not among packages.{scheme}.allowed')
    if scheme == "r2" and buckets.endpoint is None:
        raise PackageError("where r2:// is has not been said", hint="set packages.r2.endpoint")


def _store(bucket: str, buckets: Buckets, environ: Mapping[str, str]) -> tuple[Any, Any]:
    try:
        import obstore  # noqa: PLC0415 - a large library, for those who have packages in buckets
        import obstore.exceptions  # noqa: PLC0415
        from obstore.store import S3Store  # noqa: PLC0415
    except ImportError:
        raise PackageError("packages from buckets need obstore", hint="pip install 'whet[s3]'") from None
    key, secret = environ.get(buckets.key_variable), environ.get(buckets.secret_variable)
    # Without keys the library would ask whoever runs this machine for some.
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
