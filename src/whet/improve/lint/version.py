"""A version of a skill as the lint reads it: its manifest in parts, and its files by their paths."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from whet.reading.documents import Node
from whet.reading.files import read_start
from whet.reading.skill_manifest import manifest_text, take_apart
from whet.suites.skills.files import agent_files
from whet.workspace.make import MANIFEST

# A file may have more than that in no version: nobody reads it.
LARGEST_FILE = 1024 * 1024
_BYTES_OF_TOKEN = 4


class SkillVersion(Struct, frozen=True, kw_only=True):
    """The files that agents are given of a skill, with whether each can be run, and what its manifest says."""

    folder: Path
    front: Node | None
    fields: Mapping[str, Any]
    body: str
    files: Mapping[str, bool]

    def data(self, path: str) -> bytes:
        """Return what a file holds, not more than whet looks at; nothing of one that cannot be read."""
        try:
            return read_start(self.folder / path, LARGEST_FILE + 1)
        except OSError:
            return b""

    def files_unlike(self, other: SkillVersion) -> list[str]:
        """Return the files beside the manifest that *other* has not, has otherwise, or has alone."""
        paths = (self.files.keys() | other.files.keys()) - {MANIFEST}
        return sorted(path for path in paths if not self.is_like(other, path))

    def is_like(self, other: SkillVersion, path: str) -> bool:
        """Return whether both have the same file at *path*."""
        return self.files.get(path) == other.files.get(path) and self.data(path) == other.data(path)

    @property
    def tokens(self) -> int:
        """How many tokens its files have, roughly."""
        return sum(map(len, map(self.data, self.files))) // _BYTES_OF_TOKEN


def read_version(folder: Path) -> SkillVersion:
    """Read the skill in *folder*; one whose manifest cannot be read has no front matter."""
    try:
        text = manifest_text(folder / MANIFEST)
    except OSError:
        text = ""
    skill = take_apart(text)
    values = skill.front.plain() if skill.front is not None else {}
    return SkillVersion(
        folder=folder,
        front=skill.front,
        fields=values if isinstance(values, dict) else {},
        body=skill.body,
        files={
            path.relative_to(folder).as_posix(): bool(path.stat().st_mode & stat.S_IXUSR)
            for path in agent_files(folder)
            if path.is_file()
        },
    )


def token_growth(old: Path, new: Path) -> int:
    """Return how many tokens the skill in *new* is longer than the one in *old*, roughly."""
    return read_version(new).tokens - read_version(old).tokens
