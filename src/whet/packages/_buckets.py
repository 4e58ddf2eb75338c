"""Read objects in buckets. It imports a large library that may be missing, so `fetch` imports it for buckets only."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import obstore
import obstore.exceptions
from obstore.store import S3Store

from whet.errors import PackageError, PackageUnreachable
from whet.packages.settings import Buckets, Scheme

_BUCKET_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_CHUNK = 1024 * 1024


@asynccontextmanager
async def open_object(
    scheme: Scheme, place: str, buckets: Buckets, environ: Mapping[str, str]
) -> AsyncIterator[AsyncIterator[bytes]]:
    """Stream the bytes of the object at *place* (`bucket/key`), with the access keys in *environ*."""
    bucket, _, key = place.partition("/")
    ref = f"{scheme}://{place}"
    _check_bucket(scheme, bucket, key, buckets)
    store = _store(bucket, buckets, environ)
    try:
        response = await obstore.get_async(store, key)
    except FileNotFoundError:
        raise PackageError(f"{ref} does not exist, or you may not read it") from None
    except (obstore.exceptions.PermissionDeniedError, obstore.exceptions.UnauthenticatedError) as error:
        hint = f"check that {buckets.key_variable} and {buckets.secret_variable} contain keys that may read it"
        raise PackageError(f"you may not read {ref}", hint=hint) from error
    except (obstore.exceptions.BaseError, OSError) as error:
        raise _unreachable(ref, error) from error
    yield _explained_stream(response.stream(min_chunk_size=_CHUNK), ref)


async def _explained_stream(stream: Any, ref: str) -> AsyncIterator[bytes]:
    try:
        async for chunk in stream:
            yield bytes(chunk)
    except (obstore.exceptions.BaseError, OSError) as error:
        raise _unreachable(ref, error) from error


def _unreachable(ref: str, error: Exception) -> PackageUnreachable:
    # After the first line, the library prints its whole state, with signed addresses.
    reason = str(error).split("\n")[0][:300]
    return PackageUnreachable(f"{ref} cannot be fetched: {reason}")


def _check_bucket(scheme: Scheme, bucket: str, key: str, buckets: Buckets) -> None:
    if not _BUCKET_NAME.fullmatch(bucket) or not key or any(part in ("", ".", "..") for part in key.split("/")):
        raise PackageError(f"{scheme}://{bucket}/{key} is not of the form {scheme}://bucket/key")
    if (buckets.allowed or buckets.named_only) and bucket not in buckets.allowed:
        raise PackageError(f'bucket "{bucket}" is not among packages.{scheme}.allowed')
    if scheme == "r2" and buckets.endpoint is None:
        raise PackageError("the endpoint of r2:// is not set", hint="set packages.r2.endpoint")


def _store(bucket: str, buckets: Buckets, environ: Mapping[str, str]) -> S3Store:
    key, secret = environ.get(buckets.key_variable), environ.get(buckets.secret_variable)
    # Without this, the library would ask the cloud provider of this machine for keys.
    access: dict[str, Any] = (
        {"access_key_id": key, "secret_access_key": secret} if key and secret else {"skip_signature": True}
    )
    if buckets.endpoint is not None:
        access["endpoint"] = buckets.endpoint
    return S3Store(
        bucket,
        region=buckets.region or ("auto" if buckets.endpoint else "us-east-1"),
        client_options={"allow_http": True, "connect_timeout": "30s", "timeout": "1h"},
        retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=60)},
        **access,
    )
