"""What the `[packages]` table of the settings says, over its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from whet.dataclass import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageLimits:
    """What is refused beyond; `ratio` is unpacked to packed size, and counts only from `ratio_floor_bytes` on."""

    download_bytes: int = 1024 * MIB
    unpacked_bytes: int = 4096 * MIB
    entries: int = 100_000
    # Text shrinks to a tenth, a log of repeated lines to a hundredth; what shrinks further is made to.
    ratio: int = 200
    ratio_floor_bytes: int = 64 * MIB
    fetch_timeout_s: float = 300.0

    def most_unpacked(self, packed_bytes: int) -> int:
        """How many bytes an archive of *packed_bytes* may become."""
        return min(self.unpacked_bytes, max(self.ratio_floor_bytes, packed_bytes * self.ratio))


Scheme = Literal["r2", "s3"]
SCHEMES: tuple[Scheme, ...] = ("r2", "s3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """Where the buckets of one scheme are, whose keys open them, and which of them may be read; no names mean all."""

    endpoint: str | None = None
    region: str | None = None
    key_variable: str = "AWS_ACCESS_KEY_ID"
    secret_variable: str = "AWS_SECRET_ACCESS_KEY"  # noqa: S105 - the name of a variable
    allowed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSettings:
    """From where packages may come, and how large they may be."""

    allow_private_addresses: bool = True
    allow_local_files: bool = True
    limits: PackageLimits = field(default_factory=PackageLimits)
    buckets: Mapping[Scheme, Buckets] = field(default_factory=dict)


def package_settings(given: Mapping[str, Any]) -> PackageSettings:
    """The `[packages]` table, checked by then, over the defaults."""
    usual = PackageLimits()
    return PackageSettings(
        allow_private_addresses=given.get("allow_private_addresses", True),
        allow_local_files=given.get("allow_local_files", True),
        limits=PackageLimits(
            download_bytes=given.get("max_download_mb", usual.download_bytes // MIB) * MIB,
            unpacked_bytes=given.get("max_unpacked_mb", usual.unpacked_bytes // MIB) * MIB,
            entries=given.get("max_entries", usual.entries),
            fetch_timeout_s=given.get("timeout_ms", usual.fetch_timeout_s * 1000) / 1000,
        ),
        buckets={scheme: Buckets(**given.get(scheme, {})) for scheme in SCHEMES},
    )


def bucket_keys(settings: PackageSettings, environ: Mapping[str, str]) -> tuple[str, ...]:
    """What opens buckets, whatever the variables are called that hold it."""
    names = [buckets.secret_variable for buckets in settings.buckets.values()]
    return tuple(environ[name] for name in names if environ.get(name))
