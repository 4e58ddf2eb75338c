"""The skill bundle of a run: an archive that was uploaded, kept once for each organisation."""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from pathlib import Path
from typing import BinaryIO

from whet.server.runs.folder import RunPlace
from whet.server.service import Service
from whet.server.storage.runs import StoredRun

UPLOADED = "sha256:"
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
# How archives begin, and the suffix that says so.
_BEGINNINGS = ((b"PK\x03\x04", ".zip"), (b"\x1f\x8b", ".tar.gz"), (b"\xfd7zXZ\x00", ".tar.xz"), (b"BZh", ".tar.bz2"))
_TAR_MARK = slice(257, 262)
_HEAD = 512


class SkillUnusable(Exception):
    """The skill bundle of a run cannot be had."""


def uploaded_digest(reference: str) -> str | None:
    """The digest in a reference to an uploaded archive."""
    matched = _DIGEST.fullmatch(reference)
    return matched[1] if matched else None


def archive_suffix(head: bytes) -> str | None:
    """The suffix of the archive that begins like this; none where it is no archive."""
    if head[_TAR_MARK] == b"ustar":
        return ".tar"
    return next((suffix for mark, suffix in _BEGINNINGS if head.startswith(mark)), None)


def keep_bundle(data_dir: Path, organisation_id: str, upload: BinaryIO) -> tuple[str, int] | None:
    """Keep an uploaded archive under its digest; gives digest and size, or nothing where it is no archive."""
    suffix = archive_suffix(upload.read(_HEAD))
    if suffix is None:
        return None
    upload.seek(0)
    folder = data_dir / "bundles" / organisation_id
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".upload-", delete=False) as file:
        fresh = Path(file.name)
        try:
            while piece := upload.read(1024 * 1024):
                digest.update(piece)
                file.write(piece)
            size = file.tell()
        except BaseException:
            fresh.unlink()
            raise
    fresh.replace(folder / f"{digest.hexdigest()}{suffix}")
    return digest.hexdigest(), size


async def fetch_skill(service: Service, run: StoredRun, place: RunPlace) -> Path | None:
    """The archive of the skill that *run* is about, beside what else it needs; none for a run without one."""
    if run.asked.skill is None:
        return None
    digest = uploaded_digest(run.asked.skill)
    assert digest is not None, "checked when the run was asked for"
    kept = next((service.data_dir / "bundles" / run.organisation_id).glob(f"{digest}.*"), None)
    if kept is None:
        raise SkillUnusable(f"the skill bundle {run.asked.skill} is gone; upload it again")
    own = place.path / f"skill{''.join(kept.suffixes)}"
    if not own.exists():
        shutil.copyfile(kept, own)
    return own
