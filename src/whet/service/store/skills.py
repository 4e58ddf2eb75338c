"""Skill bundles: archives that callers upload, and the one that a run uses."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from msgspec.structs import replace
from pydantic import Field
from sqlalchemy import Connection, delete, insert, select, update

from whet.errors import PackageError
from whet.packages.fetch import fetch
from whet.packages.settings import PackageLimits
from whet.packages.unpack import unpack
from whet.reading.documents import DocumentError, TooMuch
from whet.reading.paths import REMOTE
from whet.reading.paths import reference_problem as remote_problem
from whet.service.database import bundles, now_us
from whet.service.errors import Refused, not_found, worded
from whet.service.http import Moment, NextCursor, Strict
from whet.service.quotas import refuse_over_quota
from whet.service.service import Service, in_thread
from whet.service.store.run_folder import RunFolder
from whet.service.store.runs import Run, shown_time, waiting_with
from whet.workspace.copy import remove_tree
from whet.workspace.make import MANIFEST, read_manifest

UPLOADED = "sha256:"
LABELLED = "label:"
LABEL = worded(
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", "up to 100 letters, digits, dots, - and _, and begin with a letter or a digit"
)
WITHOUT = "none"
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_MAGIC = ((b"PK", ".zip"), (b"\x1f\x8b", ".tar.gz"), (b"\xfd7zXZ\x00", ".tar.xz"), (b"BZh", ".tar.bz2"))
_MAGIC_LENGTH = 8
_DRAFT = ".upload-"


class SkillError(Exception):
    """A skill bundle that is not available, cannot be unpacked, or does not hold one skill."""


class Skill(Strict):
    """An archive of a skill that was uploaded."""

    sha256: str
    size: int
    label: str | None = Field(description="Start runs with it by `label:NAME`.")
    created_at: Moment

    @classmethod
    def of(cls, row: Any) -> Skill:
        """Return the archive in a row of the table."""
        return cls.model_construct(
            sha256=row.sha256, size=row.size, label=row.label, created_at=shown_time(row.created_us)
        )


class SkillAnswer(Strict):
    """One archive."""

    skill: Skill


class SkillPage(Strict):
    """Archives, sorted by digest."""

    skills: list[Skill]
    next_cursor: NextCursor


def uploaded_digest(reference: str) -> str | None:
    """Return the digest in a reference to an uploaded archive."""
    match = _DIGEST.fullmatch(reference)
    return match[1] if match else None


def labelled(reference: str) -> str | None:
    """Return the label in a reference to an archive."""
    return reference.removeprefix(LABELLED) if reference.startswith(LABELLED) else None


def reference_problem(reference: str) -> str | None:
    """Return what is wrong with a reference to a skill bundle."""
    if uploaded_digest(reference) is not None or labelled(reference) is not None:
        return None
    if not reference.lower().startswith(REMOTE):
        prefixes = ", ".join(REMOTE)
        return f"must begin with one of {prefixes}, or be sha256:DIGEST or label:NAME of an uploaded archive"
    return remote_problem(reference, remote_only=True)


def _one(organisation_id: str, sha256: str) -> Any:
    return (bundles.c.organisation_id == organisation_id) & (bundles.c.sha256 == sha256)


def get_bundle(connection: Connection, organisation_id: str, sha256: str) -> Skill:
    """Return an archive of the organisation; raises Refused if there is none."""
    row = connection.execute(select(bundles).where(_one(organisation_id, sha256))).first()
    if row is None:
        raise not_found("skill")
    return Skill.of(row)


def list_bundles(connection: Connection, organisation_id: str, limit: int, after: str | None) -> list[Skill]:
    """Return archives of the organisation, sorted by digest, and one more than *limit* if there are more."""
    query = select(bundles).where(bundles.c.organisation_id == organisation_id)
    if after is not None:
        query = query.where(bundles.c.sha256 > after)
    return [Skill.of(row) for row in connection.execute(query.order_by(bundles.c.sha256).limit(limit + 1))]


def digest_of_label(connection: Connection, organisation_id: str, label: str) -> str | None:
    """Return the digest of the archive with this label."""
    query = select(bundles.c.sha256).where(bundles.c.organisation_id == organisation_id, bundles.c.label == label)
    return connection.execute(query).scalar()


def lock_bundle(connection: Connection, organisation_id: str, sha256: str) -> bool:
    """Return whether the organisation has this archive, and keep it from being deleted during this transaction."""
    query = select(bundles.c.sha256).where(_one(organisation_id, sha256)).with_for_update(read=True)
    return connection.execute(query).first() is not None


def add_bundle(connection: Connection, organisation_id: str, sha256: str, size: int) -> None:
    """Note that the organisation has uploaded this archive, unless that is noted already."""
    row = connection.execute(select(bundles.c.sha256).where(_one(organisation_id, sha256))).first()
    if row is None:
        connection.execute(
            insert(bundles).values(organisation_id=organisation_id, sha256=sha256, size=size, created_us=now_us())
        )


def label_bundle(connection: Connection, organisation_id: str, sha256: str, label: str | None) -> Skill:
    """Give an archive another label, or none. Another archive that has it loses it."""
    get_bundle(connection, organisation_id, sha256)
    if label is not None:
        holder = (bundles.c.organisation_id == organisation_id) & (bundles.c.label == label)
        connection.execute(update(bundles).where(holder).values(label=None))
    connection.execute(update(bundles).where(_one(organisation_id, sha256)).values(label=label))
    return get_bundle(connection, organisation_id, sha256)


def delete_bundle(service: Service, organisation_id: str, sha256: str) -> Skill:
    """Delete an archive; refuses if a run that has not ended may need it. Others have their own copy."""
    # With an upload of the same archive in between, there would be a row without a file.
    with service.bundle_lock:
        with service.database.writing() as connection:
            bundle = get_bundle(connection, organisation_id, sha256)
            # First, so that a request for a run with it waits until we have decided.
            connection.execute(delete(bundles).where(_one(organisation_id, sha256)))
            waiting = waiting_with(connection, organisation_id, f"{UPLOADED}{sha256}")
            if waiting is not None:
                raise Refused(409, f"the run {waiting} needs this skill, and has not ended")
        _remove_files(service.data_dir, organisation_id, sha256)
    return bundle


def _remove_files(data_dir: Path, organisation_id: str, sha256: str) -> None:
    for file in bundles_dir(data_dir, organisation_id).glob(f"{sha256}.*"):
        file.unlink(missing_ok=True)


def clear_bundles(data_dir: Path, known: Iterable[tuple[str, str]]) -> None:
    """Remove what a killed server has left: unfinished uploads, and archives that are not *known*, or not any more."""
    kept = set(known)
    for file in data_dir.glob("bundles/*/*"):
        if file.name.startswith(_DRAFT):
            remove_tree(file)
        elif (file.parent.name, file.name.partition(".")[0]) not in kept:
            file.unlink(missing_ok=True)


def known_bundles(connection: Connection) -> list[tuple[str, str]]:
    """Return organisation and digest of every archive."""
    rows = connection.execute(select(bundles.c.organisation_id, bundles.c.sha256))
    return [(row[0], row[1]) for row in rows]


def bundles_dir(data_dir: Path, organisation_id: str) -> Path:
    """Return the folder with the archives of an organisation."""
    return data_dir / "bundles" / organisation_id


def keep_bundle(service: Service, organisation_id: str, upload: BinaryIO) -> Skill:
    """Store an archive under its digest; raises SkillError if it does not hold one skill, and Refused over a quota."""
    folder = bundles_dir(service.data_dir, organisation_id)
    folder.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=folder, prefix=_DRAFT))
    try:
        archive = draft / "archive"
        with archive.open("wb") as file:
            shutil.copyfileobj(upload, file)
        _check(archive, draft / "unpacked", service.bundle_limits)
        with archive.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = archive.stat().st_size
        with service.bundle_lock, service.database.writing() as connection:
            if not lock_bundle(connection, organisation_id, digest):
                refuse_over_quota(connection, service.limits.quota, organisation_id, more_bytes=size)
            add_bundle(connection, organisation_id, digest, size)
            archive.replace(folder / f"{digest}{_suffix(archive)}")
            return get_bundle(connection, organisation_id, digest)
    finally:
        remove_tree(draft)


def _check(archive: Path, target: Path, limits: PackageLimits) -> None:
    """Unpack *archive* to *target*; raises SkillError if that fails, or if it does not hold one skill."""
    try:
        unpack(archive, target, limits)
    except PackageError as error:
        # Callers do not know our path of the archive.
        raise SkillError(error.message.replace(str(archive), "the archive")) from None
    inner = [path for path in target.iterdir() if (path / MANIFEST).is_file()]
    # As in `whet run --skill`.
    top = (target / MANIFEST).is_file()
    if not top and len(inner) != 1:
        raise SkillError(f"the archive holds no skill: {MANIFEST} must be at its top, or in exactly one folder")
    try:
        read_manifest(target if top else inner[0])
    except TooMuch as error:
        raise SkillError(f"{MANIFEST} {error}") from None
    except DocumentError:
        # Agents read more than YAML allows: what is merely broken is theirs to judge.
        pass


def _suffix(archive: Path) -> str:
    with archive.open("rb") as file:
        head = file.read(_MAGIC_LENGTH)
    return next((suffix for magic, suffix in _MAGIC if head.startswith(magic)), ".tar")


async def fetch_skills(service: Service, run: Run, folder: RunFolder) -> list[Path | None]:
    """Return the archive of the skill of *run*, then that of each arm; None if it names none. They never change."""
    arms = [None if arm.skill == WITHOUT else arm.skill for arm in run.arms or ()]
    stems = ["skill", *(f"skill-{number}" for number in range(1, len(arms) + 1))]
    references = zip([run.skill, *arms], stems, strict=True)
    return [await _fetch(service, run, folder, reference, stem) for reference, stem in references]


async def _fetch(service: Service, run: Run, folder: RunFolder, reference: str | None, stem: str) -> Path | None:
    if reference is None:
        return None
    present = await in_thread(lambda: next(folder.path.glob(f"{stem}.*"), None))
    if present is not None:
        return present
    draft = folder.path / ".skill"
    await in_thread(remove_tree, draft)
    draft.mkdir()
    archive = draft / "archive"
    digest = uploaded_digest(reference)
    if digest is not None:
        await in_thread(_copy, bundles_dir(service.data_dir, run.organisation_id), digest, archive)
    else:
        await _download(service, reference, archive)
    return await in_thread(_take, archive, folder, stem)


async def _download(service: Service, reference: str, archive: Path) -> None:
    limits = service.bundle_limits
    try:
        await fetch(reference, archive, replace(service.packages, limits=limits), os.environ)
        await in_thread(_check, archive, archive.with_name("unpacked"), limits)
    except (PackageError, SkillError) as error:
        raise SkillError(f"the skill cannot be fetched: {error}") from None


def _copy(folder: Path, digest: str, target: Path) -> None:
    archive = next(folder.glob(f"{digest}.*"), None)
    if archive is None:
        raise SkillError(f"the skill bundle {UPLOADED}{digest} is gone; upload it again")
    shutil.copyfile(archive, target)


def _take(archive: Path, folder: RunFolder, stem: str) -> Path:
    """Move the archive into the folder of the run, in one step."""
    target = folder.path / f"{stem}{_suffix(archive)}"
    archive.replace(target)
    remove_tree(archive.parent)
    return target
