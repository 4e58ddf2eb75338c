"""Write an accepted version into the skill, if nothing there would be lost, and the patch that does the same."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from whet.errors import StoreError, UsageError
from whet.improve.propose.versions import version_diff, version_digest
from whet.packages.git import ask_git
from whet.plan.skill_copies import tree_digest
from whet.reading.text import listed
from whet.record.improve.document import PATCH
from whet.record.improve.folder import ImproveFolder
from whet.suites.left_out import left_out

_PATIENCE = "commit or put away what you changed, or write over it with --force"


def refuse_unclean(skill: Path, *, force: bool) -> None:
    """Refuse to write into a skill whose changes Git does not have: what is written over could not be brought back."""
    if force:
        return
    status = _git_status(skill)
    if status is None:
        raise UsageError(
            f"--apply writes into {skill}, which is not in a Git repository, so you could not take it back",
            hint="leave out --apply and use the patch; or write over the files with --force",
        )
    out = left_out(skill)
    changes = [path for path in status if not any(path == other or path.startswith(f"{other}/") for other in out)]
    if changes:
        raise UsageError(
            f"--apply writes into {skill}, where {listed(changes)} has uncommitted changes", hint=_PATIENCE
        )


def _git_status(skill: Path) -> list[str] | None:
    """Return what has changed in *skill* since the last commit, as paths from there; None without a repository."""
    status = ask_git(skill, "status", "--porcelain=v1", "-z", "--untracked-files=all", "--", ".")
    place = ask_git(skill, "rev-parse", "--show-prefix")
    if status is None or place is None:
        return None
    prefix = os.fsdecode(place.strip())
    entries = [os.fsdecode(entry) for entry in status.split(b"\0") if entry]
    return [entry[3:].removeprefix(prefix) for entry in entries if len(entry) > len("XY ")]


def write_patch(folder: ImproveFolder, first: Path, last: Path) -> Path:
    """Write how the accepted version differs from the first one, as a patch for the folder of the skill."""
    patch = folder.path / PATCH
    patch.write_text(version_diff(first, last), encoding="utf-8", errors="surrogateescape")
    return patch


def apply_version(skill: Path, first: Path, last: Path) -> None:
    """Make *skill*, which is still as *first*, like *last*; suites and settings in it stay."""
    if version_digest_of(skill) != version_digest(first):
        raise UsageError(
            f"{skill} has changed since the run began, so the accepted version is not written over it",
            hint=f"apply {PATCH} of the run instead, and see whether it still fits",
        )
    try:
        for name in _files(first):
            if not os.path.lexists(last / name):
                (skill / name).unlink()
        for name in _files(last):
            _copy_file(last / name, skill / name)
    except OSError as error:
        raise StoreError(
            f"{error.filename or skill} cannot be written: {error.strerror}", hint=f"apply {PATCH} of the run instead"
        ) from error


def version_digest_of(skill: Path) -> str:
    """Return the digest of what agents are given of a skill that has its suites beside it."""
    return tree_digest(skill, left_out(skill))


def _files(version: Path) -> list[Path]:
    return [path.relative_to(version) for path in version.rglob("*") if path.is_symlink() or path.is_file()]


def _copy_file(source: Path, target: Path) -> None:
    """Put *source* in the place of *target* in one step."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}-whet")
    shutil.copy2(source, draft, follow_symlinks=False)
    draft.replace(target)
