"""Keep the text of the skills that a run tests, so that two runs can be shown with what changed between them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from whet.model import wire
from whet.model.run import Plan
from whet.reading.files import read_file
from whet.record.folder import PRIVATE, SKILLS_FILE, write_atomically
from whet.record.inside import read_inside

# A skill is text for a model; what is larger is left out.
_LARGEST_FILE, _MOST_BYTES, _MOST_FILES = 256 * 1024, 4 * 1024 * 1024, 500
_LARGEST_KEPT = 64 * 1024 * 1024
_SKIPPED = frozenset((".git", "__pycache__", "node_modules"))
# The text of each file, by arm and by its path in the skill.
KeptSkills = dict[str, dict[str, str]]


def keep_skills(run_dir: Path, plan: Plan, mask: Callable[[str], str]) -> str | None:
    """Write the skills of the arms to the record, masked, and return the hash for run.json; None if there are none."""
    kept: KeptSkills = {
        arm.name: {path: mask(text) for path, text in _texts(arm.skill.path)}
        for arm in plan.arms
        if arm.skill is not None
    }
    if not kept:
        return None
    data = wire.encode_pretty(kept)
    write_atomically(run_dir / SKILLS_FILE, data, mode=PRIVATE)
    return hashlib.sha256(data).hexdigest()


def _texts(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the path and text of each file of a skill, as far as they are text and not too large."""
    left, files = _MOST_BYTES, _MOST_FILES
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED)
        for name in sorted(names):
            path = Path(place, name)
            try:
                if path.is_symlink() or not files:
                    continue
                text = read_file(path, min(_LARGEST_FILE, left)).decode()
            except (OSError, UnicodeDecodeError):
                continue
            left, files = left - len(text), files - 1
            yield path.relative_to(folder).as_posix(), text


def read_kept_skills(run_dir: Path) -> KeptSkills:
    """Return the skills that a run tested, as far as its record holds them."""
    found = read_inside(run_dir, SKILLS_FILE, _LARGEST_KEPT)
    if found is None or found[1]:
        return {}
    try:
        return wire.decode(found[0], KeptSkills)
    except wire.WireError:
        return {}
