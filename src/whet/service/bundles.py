"""The skill bundle that a run is about, laid beside its suite: copied from what was uploaded, or fetched."""

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
from whet.reading.paths import REMOTE, reference_problem
from whet.service.database import bundles, now_us
from whet.service.run_folder import RunPlace
from whet.service.service import Service, in_thread
from whet.service.stored_runs import StoredRun


def has_bundle(connection: Connection, organisation_id: str, sha256: str) -> bool:
    """Whether the organisation has uploaded this archive."""
    query = select(bundles.c.sha256).where(bundles.c.organisation_id == organisation_id, bundles.c.sha256 == sha256)
    return connection.execute(query).first() is not None


def add_bundle(connection: Connection, organisation_id: str, sha256: str, size: int) -> None:
    """Note an archive; one that is known already stays as it is."""
    if not has_bundle(connection, organisation_id, sha256):
        connection.execute(
            insert(bundles).values(organisation_id=organisation_id, sha256=sha256, size=size, created_us=now_us())
        )


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


UPLOADED = "sha256:"
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


class SkillUnusable(Exception):
    """The skill bundle of a run cannot be had."""


def uploaded_digest(reference: str) -> str | None:
    """The digest in a reference to an uploaded archive."""
    matched = _DIGEST.fullmatch(reference)
    return matched[1] if matched else None


def skill_problem(reference: str) -> str | None:
    """Why *reference* names no skill bundle, if it names none."""
    if uploaded_digest(reference) is not None:
        return None
    if not reference.lower().startswith(REMOTE):
        return f"must begin with one of {', '.join(REMOTE)}, or be sha256: and the digest of an uploaded archive"
    return reference_problem(reference, remote_only=True)


async def fetch_skill(service: Service, run: StoredRun, place: RunPlace) -> Path | None:
    """The archive of the skill that *run* is about; the same one each time, and none for a run without one."""
    if run.asked.skill is None:
        return None
    there = await in_thread(_there, place)
    if there is not None:
        return there
    digest = uploaded_digest(run.asked.skill)
    draft = place.path / ".skill"
    await in_thread(remove_tree, draft)
    draft.mkdir()
    if digest is not None:
        kept = bundles_dir(service.data_dir, run.organisation_id)
        await in_thread(_copy, kept, digest, draft / "archive")
    else:
        await _download(service, run.asked.skill, draft)
    return await in_thread(_take, draft, place)


async def _download(service: Service, reference: str, draft: Path) -> None:
    limits = service.bundle_limits
    settings = replace(service.packages, limits=limits)
    try:
        await fetch(reference, draft / "archive", settings, os.environ)
        await in_thread(check_bundle, draft / "archive", draft / "unpacked", limits)
    except (PackageError, BundleRefused) as error:
        raise SkillUnusable(f"the skill cannot be had: {error}") from None


def _copy(folder: Path, digest: str, target: Path) -> None:
    kept = next(folder.glob(f"{digest}.*"), None)
    if kept is None:
        raise SkillUnusable(f"the skill bundle {UPLOADED}{digest} is gone; upload it again")
    shutil.copyfile(kept, target)


def _there(place: RunPlace) -> Path | None:
    return next(place.path.glob("skill.*"), None)


def _take(draft: Path, place: RunPlace) -> Path:
    """Let the archive be the run's, in one step."""
    archive = draft / "archive"
    own = place.path / f"skill{archive_suffix(archive)}"
    archive.replace(own)
    remove_tree(draft)
    return own
