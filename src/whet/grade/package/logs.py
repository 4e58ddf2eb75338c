"""What a verifier left in its folder of logs, taken over into the record."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from whet.grade.base import Evidence

_FOLDER = "verifier"
_MOST_FILES = 200
_LARGEST = 4 * 1024 * 1024
_MOST_BYTES = 32 * 1024 * 1024


def keep_logs(folder: Path, evidence: Evidence) -> list[str]:
    """Keep the files of *folder* beside the other evidence, without secrets; what was left out, as sentences."""
    left_out: list[str] = []
    taken = total = 0
    for path, found in _files(folder):
        name = path.relative_to(folder).as_posix()
        if found.st_size > _LARGEST or taken == _MOST_FILES or total + found.st_size > _MOST_BYTES:
            left_out.append(f"{name} was not kept: the logs are too many or too large")
            continue
        taken, total = taken + 1, total + found.st_size
        try:
            text = path.read_bytes().decode("utf-8", "replace")
        except OSError as error:
            left_out.append(f"{name} was not kept: {error.strerror}")
            continue
        (evidence.artifact_dir / _FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
        evidence.keep(f"{_FOLDER}/{name}", text)
    return left_out[:3]


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The plain files below *folder*; no link is followed."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(place) / name
            found = path.lstat()
            if stat.S_ISREG(found.st_mode):
                yield path, found
