"""Take a folder out of its git repository as it was at a commit."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path

from whet.errors import PackageError, UsageError
from whet.packages.settings import package_settings
from whet.packages.unpack import unpack
from whet.workspace.copy import remove_tree

# What git may be given as a commit: nothing that could be an option or a path.
_REF = re.compile(r"[A-Za-z0-9_@^~{}./+:-]+")
_LARGEST = 256 * 1024 * 1024
_TIMEOUT_S = 60


def folder_at_commit(folder: Path, ref: str, store: Path) -> tuple[Path, str]:
    """Return a copy of *folder* below *store* as it was at *ref*, and the full id of that commit.

    Raises `UsageError` if there is no such commit, or no such folder in it.
    """
    if ref.startswith("-") or not _REF.fullmatch(ref):
        raise UsageError(f'"{ref}" is not the name of a commit')
    existing = next(path for path in (folder, *folder.parents) if path.is_dir())
    commit = ask_git(existing, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    if commit is None:
        raise UsageError(
            f'{existing} has no commit "{ref}"', hint="is it in a git repository, and is the commit fetched?"
        )
    identifier = commit.decode().strip()
    top = ask_git(existing, "rev-parse", "--show-toplevel")
    assert top is not None
    root = Path(os.fsdecode(top.rstrip(b"\n")))
    inside = folder.relative_to(root)
    # From the top: below it, git would look for the folder inside of itself.
    archive = ask_git(root, "archive", "--format=tar", f"{identifier}:{inside.as_posix() if inside.parts else ''}")
    if archive is None:
        raise UsageError(f"{folder} was not there at {ref} ({identifier[:12]})")
    place = store / hashlib.sha256(f"{identifier}:{inside}".encode()).hexdigest()[:16]
    _unpack(archive, place, folder.name)
    return place / folder.name, identifier


def ask_git(folder: Path, *words: str) -> bytes | None:
    """Return what git prints, or None if it fails."""
    argv = ("git", "-C", str(folder), "-c", "core.fsmonitor=false", *words)
    try:
        process = subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, check=False, timeout=_TIMEOUT_S)
    except FileNotFoundError:
        raise UsageError("git is not installed, and a skill at a commit needs it") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"git did not answer within {_TIMEOUT_S} s in {folder}") from None
    if len(process.stdout) > _LARGEST:
        raise UsageError(f"what git has of {folder} is larger than {_LARGEST // 1024**2} MB")
    return process.stdout if process.returncode == 0 else None


def _unpack(archive: bytes, place: Path, name: str) -> None:
    """Unpack into *place* in one step; a copy that is there already is the same."""
    if place.is_dir():
        return
    draft = place.with_name(f"{place.name}-{os.getpid()}")
    try:
        draft.mkdir(parents=True)
        file = draft.with_suffix(".tar")
        file.write_bytes(archive)
        unpack(file, draft / name, package_settings({}).limits)
        if not place.exists():
            draft.rename(place)
    except (OSError, PackageError) as error:
        raise UsageError(f"the skill cannot be unpacked to {place}: {error}") from error
    finally:
        remove_tree(draft)
        draft.with_suffix(".tar").unlink(missing_ok=True)
