"""A skill that comes as an archive: unpacked once, under the digest of the archive and the name of the skill."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from whet.config import Settings
from whet.errors import PackageError, UsageError
from whet.packages.settings import package_settings
from whet.packages.unpack import unpack
from whet.workspace import remove_tree
from whet.workspace.skill_text import MANIFEST, described

_WHOLE = ".whole"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ENDINGS = re.compile(r"(\.tar)?\.(gz|bz2|xz|tgz|tar|zip)$", re.IGNORECASE)


def unpacked_skill(archive: Path, store: Path, settings: Settings) -> Path:
    """The folder of the skill in *archive*, below *store*."""
    with archive.open("rb") as file:
        kept = store / hashlib.file_digest(file, "sha256").hexdigest()[:16]
    if (found := _skill_in(kept)) is not None:
        return found
    draft = kept.with_name(f"{kept.name}-{os.getpid()}")
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        unpack(archive, draft / _WHOLE, package_settings(settings.packages).limits)
        _name_folder(draft, archive)
        if not kept.exists():
            draft.rename(kept)
    except PackageError as error:
        raise UsageError(f"--skill: {archive}: {error.message}", hint=error.hint) from error
    except OSError as error:
        raise UsageError(f"--skill: {archive} cannot be unpacked to {kept}: {error.strerror}") from error
    finally:
        remove_tree(draft)
    found = _skill_in(kept)
    if found is None:
        raise UsageError(f"--skill: {archive} holds no skill", hint=f"{MANIFEST} must lie at its top, or in one folder")
    return found


def _name_folder(draft: Path, archive: Path) -> None:
    """Agents know a skill by its folder: an archive of its contents alone has none, and goes by what it says."""
    whole = draft / _WHOLE
    inner = [path for path in whole.iterdir() if (path / MANIFEST).is_file()]
    if (whole / MANIFEST).is_file():
        names = (described(whole).name, _ENDINGS.sub("", archive.name), "skill")
        whole.rename(draft / next(name for name in names if _NAME.fullmatch(name)))
    elif len(inner) == 1:
        inner[0].rename(draft / inner[0].name)
        remove_tree(whole)


def _skill_in(folder: Path) -> Path | None:
    places = sorted(folder.iterdir()) if folder.is_dir() else []
    return next((place for place in places if (place / MANIFEST).is_file()), None)
