"""Skill bundles: archives that callers upload, and the one that a run uses."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from sqlalchemy import Connection, insert, select

from whet.errors import PackageError
from whet.ground.copying import remove_tree
from whet.ground.fetching import fetch
from whet.ground.package_settings import PackageLimits
from whet.ground.unpacking import unpack
from whet.reading.paths import REMOTE
from whet.reading.paths import reference_problem as remote_problem
from whet.service.database import bundles, now_us
from whet.service.run_folder import RunFolder
from whet.service.runs import Run
from whet.service.service import Service, in_thread

UPLOADED = "sha256:"
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_MAGIC = ((b"PK", ".zip"), (b"\x1f\x8b", ".tar.gz"), (b"\xfd7zXZ\x00", ".tar.xz"), (b"BZh", ".tar.bz2"))
_MAGIC_LENGTH = 8
_MANIFEST = "SKILL.md"
_DRAFT = ".upload-"


class SkillError(Exception):
    """A skill bundle that is not available, cannot be unpacked, or does not hold one skill."""


def uploaded_digest(reference: str) -> str | None:
    """Return the digest in a reference to an uploaded archive."""
    matched = _DIGEST.fullmatch(reference)
    return matched[1] if matched else None


def reference_problem(reference: str) -> str | None:
    """Return what is wrong with a reference to a skill bundle."""
    if uploaded_digest(reference) is not None:
        return None
    if not reference.lower().startswith(REMOTE):
        return f"must begin with one of {', '.join(REMOTE)}, or be sha256: and the digest of an uploaded archive"
    return remote_problem(reference, remote_only=True)


def has_bundle(connection: Connection, organisation_id: str, sha256: str) -> bool:
    """Return whether the organisation has uploaded this archive."""
    query = select(bundles.c.sha256).where(bundles.c.organisation_id == organisation_id, bundles.c.sha256 == sha256)
    return connection.execute(query).first() is not None


def add_bundle(connection: Connection, organisation_id: str, sha256: str, size: int) -> None:
    """Note that the organisation has uploaded this archive; raises IntegrityError if that is noted already."""
    connection.execute(
        insert(bundles).values(organisation_id=organisation_id, sha256=sha256, size=size, created_us=now_us())
    )


def bundles_dir(data_dir: Path, organisation_id: str) -> Path:
    """Return the folder with the archives of an organisation."""
    return data_dir / "bundles" / organisation_id


def keep_bundle(folder: Path, upload: BinaryIO, limits: PackageLimits) -> tuple[str, int]:
    """Store an archive in *folder* under its digest; returns digest and size."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=folder, prefix=_DRAFT))
    try:
        archive = draft / "archive"
        with archive.open("wb") as file:
            shutil.copyfileobj(upload, file)
        _check(archive, draft / "unpacked", limits)
        with archive.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = archive.stat().st_size
        archive.replace(folder / f"{digest}{_suffix(archive)}")
        return digest, size
    finally:
        remove_tree(draft)


def clear_drafts(data_dir: Path) -> None:
    """Remove unfinished uploads that a killed server has left."""
    for draft in data_dir.glob(f"bundles/*/{_DRAFT}*"):
        remove_tree(draft)


def _check(archive: Path, target: Path, limits: PackageLimits) -> None:
    """Unpack *archive* to *target*; raises SkillError if that fails, or if it does not hold one skill."""
    try:
        unpack(archive, target, limits)
    except PackageError as error:
        # Callers do not know our path of the archive.
        raise SkillError(error.message.replace(str(archive), "the archive")) from None
    inner = [path for path in target.iterdir() if (path / _MANIFEST).is_file()]
    # As in `whet run --skill`.
    if not (target / _MANIFEST).is_file() and len(inner) != 1:
        raise SkillError(f"the archive holds no skill: {_MANIFEST} must be at its top, or in exactly one folder")


def _suffix(archive: Path) -> str:
    with archive.open("rb") as file:
        head = file.read(_MAGIC_LENGTH)
    return next((suffix for magic, suffix in _MAGIC if head.startswith(magic)), ".tar")


async def fetch_skill(service: Service, run: Run, folder: RunFolder) -> Path | None:
    """Return the archive of the skill of *run*, the same one each time; None for a run without a skill."""
    if run.skill is None:
        return None
    present = await in_thread(lambda: next(folder.path.glob("skill.*"), None))
    if present is not None:
        return present
    draft = folder.path / ".skill"
    await in_thread(remove_tree, draft)
    draft.mkdir()
    archive = draft / "archive"
    digest = uploaded_digest(run.skill)
    if digest is not None:
        await in_thread(_copy, bundles_dir(service.data_dir, run.organisation_id), digest, archive)
    else:
        await _download(service, run.skill, archive)
    return await in_thread(_take, archive, folder)


async def _download(service: Service, reference: str, archive: Path) -> None:
    limits = service.bundle_limits
    try:
        await fetch(reference, archive, replace(service.packages, limits=limits), os.environ)
        await in_thread(_check, archive, archive.with_name("unpacked"), limits)
    except (PackageError, SkillError) as error:
        raise SkillError(f"the skill cannot be fetched: {error}") from None


def _copy(folder: Path, digest: str, target: Path) -> None:
    kept = next(folder.glob(f"{digest}.*"), None)
    if kept is None:
        raise SkillError(f"the skill bundle {UPLOADED}{digest} is gone; upload it again")
    shutil.copyfile(kept, target)


def _take(archive: Path, folder: RunFolder) -> Path:
    """Move the archive into the folder of the run, in one step."""
    own = folder.path / f"skill{_suffix(archive)}"
    archive.replace(own)
    remove_tree(archive.parent)
    return own
