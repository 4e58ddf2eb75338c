"""Where packages come from: the `[packages]` table of the settings, and references to packages."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from msgspec import Struct, convert, field

from whet.errors import PackageError
from whet.reading.text import printable, shorten

MIB = 1024 * 1024
_SHOWN = 120
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_READS = "use r2://, s3://, http://, https://, file:// or a path"


class PackageLimits(Struct, frozen=True, kw_only=True):
    """The most that a package may have; `ratio` is unpacked to packed size, above `ratio_floor_bytes` only."""

    download_bytes: int = 1024 * MIB
    unpacked_bytes: int = 4096 * MIB
    entries: int = 100_000
    # Text shrinks to a tenth, a log of repeated lines to a hundredth; an archive beyond that is made to swell.
    ratio: int = 200
    ratio_floor_bytes: int = 64 * MIB
    fetch_timeout_s: float = 300.0

    def most_unpacked(self, packed_bytes: int) -> int:
        """Return how many bytes an archive of *packed_bytes* may unpack to."""
        return min(self.unpacked_bytes, max(self.ratio_floor_bytes, packed_bytes * self.ratio))


Scheme = Literal["r2", "s3"]
SCHEMES: tuple[Scheme, ...] = ("r2", "s3")
Kind = Literal["local", "web", "bucket"]


class Buckets(Struct, frozen=True, kw_only=True):
    """Where the buckets of one scheme are, the variables with their keys, and which may be read.

    If none is named, all may be read, unless only those that are named may.
    """

    endpoint: str | None = None
    region: str | None = None
    key_variable: str = "AWS_ACCESS_KEY_ID"
    secret_variable: str = "AWS_SECRET_ACCESS_KEY"  # noqa: S105 - the name of a variable
    allowed: tuple[str, ...] = ()
    named_only: bool = False


class PackageSettings(Struct, frozen=True, kw_only=True):
    """Where packages may come from, and how large they may be."""

    allow_private_addresses: bool = True
    allow_local_files: bool = True
    limits: PackageLimits = field(default_factory=PackageLimits)
    buckets: Mapping[Scheme, Buckets] = field(default_factory=dict)


def package_settings(table: Mapping[str, Any]) -> PackageSettings:
    """Return the settings for a `[packages]` table that is already checked."""
    usual = PackageLimits()
    return PackageSettings(
        allow_private_addresses=table.get("allow_private_addresses", True),
        allow_local_files=table.get("allow_local_files", True),
        limits=PackageLimits(
            download_bytes=table.get("max_download_mb", usual.download_bytes // MIB) * MIB,
            unpacked_bytes=table.get("max_unpacked_mb", usual.unpacked_bytes // MIB) * MIB,
            entries=table.get("max_entries", usual.entries),
            fetch_timeout_s=table.get("timeout_ms", usual.fetch_timeout_s * 1000) / 1000,
        ),
        buckets={
            scheme: convert({**table.get(scheme, {}), "named_only": not table.get("allow_any_bucket", True)}, Buckets)
            for scheme in SCHEMES
        },
    )


def bucket_keys(settings: PackageSettings, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secret keys of buckets, from the variables that the settings name."""
    names = [buckets.secret_variable for buckets in settings.buckets.values()]
    return tuple(environ[name] for name in names if environ.get(name))


class FetchedFile(Struct, frozen=True):
    """A fetched file and its SHA-256."""

    path: Path
    digest: str


def kind_of(ref: str) -> Kind:
    """Return the kind of the reference *ref*; raises `PackageError` for other schemes."""
    hit = _SCHEME.match(ref)
    match hit[1].lower() if hit else "file":
        case "file":
            return "local"
        case "http" | "https":
            return "web"
        case "r2" | "s3":
            return "bucket"
        case other:
            raise PackageError(f"{printable_ref(ref)}: whet cannot fetch {other}://; {_READS}")


def local_path(ref: str, base_dir: Path) -> Path:
    """Return the path of a local reference; a relative one starts at *base_dir*."""
    if not ref.lower().startswith("file://"):
        try:
            return base_dir / Path(ref).expanduser()
        except RuntimeError as error:
            raise PackageError(f"{printable_ref(ref)}: {error}") from error
    parts = urlsplit(ref)
    if parts.netloc not in ("", "localhost"):
        raise PackageError(f"{printable_ref(ref)} names another machine; whet reads only files of this one")
    return Path(unquote(parts.path))


def take_local(path: Path, most_bytes: int) -> FetchedFile:
    """Return the archive at *path*, without copying it."""
    if path.stat().st_size > most_bytes:
        raise PackageError(f"{path} is larger than {most_bytes // MIB:,} MiB", hint="raise packages.max_download_mb")
    with path.open("rb") as file:
        return FetchedFile(path, hashlib.file_digest(file, "sha256").hexdigest())


def printable_name(name: str) -> str:
    """Return *name* for a message: shortened, and with escapes for unprintable characters."""
    return printable(shorten(name, _SHOWN))


def printable_ref(ref: str) -> str:
    """Return a reference for a message: without the query, which may have a signature, and without a password."""
    address = ref.partition("?")[0]
    scheme, separator, location = address.partition("://")
    host, slash, path = location.partition("/")
    return printable_name(f"{scheme}://{host.rpartition('@')[2]}{slash}{path}" if separator else address)
