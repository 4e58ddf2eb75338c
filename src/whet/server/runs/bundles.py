"""Uploaded skill bundles: looked into before they are kept, once for each organisation and content."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import BinaryIO

from whet.errors import PackageError
from whet.packages.limits import PackageLimits
from whet.packages.unpack import unpack
from whet.workspace import remove_tree

_BEGINNINGS = ((b"PK", ".zip"), (b"\x1f\x8b", ".tar.gz"), (b"\xfd7zXZ\x00", ".tar.xz"), (b"BZh", ".tar.bz2"))
_HEAD = 8
_MANIFEST = "SKILL.md"
_DRAFT = ".upload-"


class BundleRefused(Exception):
    """An archive that is no skill, or that nobody should unpack."""


def bundles_dir(data_dir: Path, organisation_id: str) -> Path:
    """Where the archives of an organisation lie."""
    return data_dir / "bundles" / organisation_id


def keep_bundle(folder: Path, upload: BinaryIO, limits: PackageLimits) -> tuple[str, int]:
    """Keep an archive in *folder* under its digest; gives digest and size, or is `BundleRefused`."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=folder, prefix=_DRAFT))
    try:
        archive = draft / "archive"
        with archive.open("wb") as file:
            shutil.copyfileobj(upload, file)
        check_bundle(archive, draft / "unpacked", limits)
        with archive.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = archive.stat().st_size
        archive.replace(folder / f"{digest}{archive_suffix(archive)}")
        return digest, size
    finally:
        remove_tree(draft)


def clear_drafts(data_dir: Path) -> None:
    """Remove what a server that was killed left of uploads."""
    for draft in data_dir.glob(f"bundles/*/{_DRAFT}*"):
        remove_tree(draft)


def check_bundle(archive: Path, target: Path, limits: PackageLimits) -> None:
    """Unpack *archive* to *target* to see that it can be, and that a skill is in it; `BundleRefused` otherwise."""
    try:
        unpack(archive, target, limits)
    except PackageError as error:
        # Without our own path: callers know the archive by another name.
        said = error.message.replace(str(archive), "the archive")
        raise BundleRefused(said) from None
    inner = [path for path in target.iterdir() if (path / _MANIFEST).is_file()]
    # As `whet run --skill` takes it.
    if not (target / _MANIFEST).is_file() and len(inner) != 1:
        raise BundleRefused(f"the archive holds no skill: {_MANIFEST} must lie at its top, or in one folder")


def archive_suffix(archive: Path) -> str:
    """The suffix that says how *archive* is packed."""
    with archive.open("rb") as file:
        head = file.read(_HEAD)
    return next((suffix for mark, suffix in _BEGINNINGS if head.startswith(mark)), ".tar")
