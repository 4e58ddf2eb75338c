"""References to packages: what kind each is, and where a local one is.

It is apart from `fetching`, because most runs fetch nothing, and the HTTP library takes long to import.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from whet.dataclass import dataclass
from whet.errors import PackageError
from whet.ground.growing import shown_ref
from whet.ground.package_settings import MIB

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


def take_local(path: Path, most_bytes: int) -> Fetched:
    """The archive at *path*, which stays where it is."""
    if path.stat().st_size > most_bytes:
        raise PackageError(f"{path} is larger than {most_bytes // MIB:,} MiB", hint="raise packages.max_download_mb")
    with path.open("rb") as file:
        return Fetched(path, hashlib.file_digest(file, "sha256").hexdigest())
