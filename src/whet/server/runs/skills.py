"""The skill bundle that a run is about, laid beside its suite: copied from what was uploaded, or fetched."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

from whet.errors import PackageError
from whet.evals.paths import REMOTE, reference_problem
from whet.packages.fetch import fetch
from whet.server.runs.bundles import BundleRefused, archive_suffix, bundles_dir, check_bundle
from whet.server.runs.folder import RunPlace
from whet.server.service import Service
from whet.server.storage.runs import StoredRun
from whet.server.threads import in_thread
from whet.workspace import remove_tree

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
