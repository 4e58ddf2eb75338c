"""Fetching packages: from the web, from buckets and from the disk, as one file whose content is known by its digest."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast
from urllib.parse import unquote, urlsplit

import anyio
import anyio.to_thread

from whet.errors import PackageError, PackageUnreachable
from whet.packages.limits import MIB
from whet.packages.naming import shown_ref
from whet.packages.settings import Buckets, PackageSettings, Scheme

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_READS = "r2://, s3://, http://, https://, file:// and paths are"
Kind = Literal["local", "web", "bucket"]


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file as it was fetched, and its digest (SHA-256)."""

    path: Path
    digest: str


def kind_of(ref: str) -> Kind:
    """What sort of reference *ref* is; `PackageError` where it is none that is fetched."""
    found = _SCHEME.match(ref)
    match found[1].lower() if found else "file":
        case "file":
            return "local"
        case "http" | "https":
            return "web"
        case "r2" | "s3":
            return "bucket"
        case other:
            raise PackageError(f"{shown_ref(ref)}: {other}:// is not fetched; {_READS}")


def local_path(ref: str, base_dir: Path) -> Path:
    """Where a local reference leads, a relative path seen from *base_dir*."""
    if not ref.lower().startswith("file://"):
        try:
            return base_dir / Path(ref).expanduser()
        except RuntimeError as error:
            raise PackageError(f"{shown_ref(ref)}: {error}") from error
    parts = urlsplit(ref)
    if parts.netloc not in ("", "localhost"):
        raise PackageError(f"{shown_ref(ref)} names another machine, whose files cannot be read")
    return Path(unquote(parts.path))


async def fetch(ref: str, target: Path, settings: PackageSettings, environ: Mapping[str, str]) -> Fetched:
    """Fetch what is behind an address of the web or a bucket into the new file *target*."""
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
        from whet.packages.http import open_http  # noqa: PLC0415 - only those who fetch wait for these

        return open_http(ref, guarded=not settings.allow_private_addresses)
    from whet.packages.buckets import open_object  # noqa: PLC0415

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


def take_local(path: Path, most_bytes: int) -> Fetched:
    """The archive at *path*, which stays where it is."""
    if path.stat().st_size > most_bytes:
        raise PackageError(f"{path} is larger than {most_bytes // MIB:,} MiB", hint="raise packages.max_download_mb")
    with path.open("rb") as file:
        return Fetched(path, hashlib.file_digest(file, "sha256").hexdigest())
