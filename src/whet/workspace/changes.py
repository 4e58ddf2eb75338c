"""Record what an agent changed, as a list and an archive, so that a later run can restore it in another folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, field

from whet.errors import WorkspaceError
from whet.model import codec
from whet.model.grade import Changes
from whet.secrets import Masker
from whet.workspace.walk import GIT, Tree, explained

LIST_FILE = "changes.json"
ARCHIVE_FILE = "changes.tar"
FOLDERS_FILE = "folders.json"
_DIFF_FILE = "diff.patch"
_Recorded = TypeVar("_Recorded")


class RecordedChanges(Struct, frozen=True, kw_only=True):
    """What changed, and what of it is not in the archive.

    `gone` are folders that were deleted with their contents. `missing` says for a path why it is not in the archive.
    `masked` are files and links that contained a secret or had one in their name. `git` says that there was a `.git`
    at the top, which is never recorded.
    """

    created: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    masked: tuple[str, ...] = ()
    git: bool = False

    @property
    def kept(self) -> tuple[str, ...]:
        """The paths whose state is known: those in the archive, and those that were deleted."""
        return tuple(path for path in (*self.created, *self.modified, *self.deleted) if path not in self.missing)


def record_changes(root: Path, changes: Changes, folder: Path, masker: Masker) -> list[str]:
    """Write *changes* of the workspace *root* to *folder*; return a sentence for each thing that was not recorded.

    Call it while the workspace still exists. Writes nothing if nothing changed.
    """
    git = any(os.path.lexists(root / name) for name in GIT)
    if not changes and not git:
        return []
    # Only here: most trials of some suites change nothing, and archives take a moment to import.
    from whet.workspace._archive import Archive

    archive = Archive(Tree(root), masker)
    with explained("cannot record changes", folder):
        paths = (*changes.created, *changes.modified)
        if paths:
            archive.write(folder / ARCHIVE_FILE, paths)
        named = archive.named
        listed = RecordedChanges(
            created=tuple(map(named, changes.created)),
            modified=tuple(map(named, changes.modified)),
            deleted=tuple(map(named, changes.deleted)),
            gone=tuple(sorted(set(map(masker.text, _gone(root, changes.deleted))))),
            missing=archive.missing,
            masked=tuple(archive.masked),
            git=git,
        )
        (folder / LIST_FILE).write_bytes(codec.encode_pretty(listed))
    return [f"{path} was not recorded: {reason}" for path, reason in archive.missing.items()]


def note_folders(folder: Path, paths: tuple[str, ...]) -> None:
    """Write to *folder* which *paths* were folders before the agent started."""
    with explained("cannot record what was there before", folder):
        (folder / FOLDERS_FILE).write_bytes(codec.encode_pretty(paths))


def read_folders(folder: Path) -> tuple[str, ...]:
    """Return what `note_folders` wrote, or nothing."""
    file = folder / FOLDERS_FILE
    return _read(file, tuple[str, ...]) if file.is_file() else ()


def read_changes(folder: Path) -> RecordedChanges | None:
    """Return the changes recorded in *folder*; None if there were changes that were not recorded."""
    file = folder / LIST_FILE
    if not file.is_file():
        return None if (folder / _DIFF_FILE).exists() else RecordedChanges()
    return _read(file, RecordedChanges)


def _read(file: Path, kind: type[_Recorded]) -> _Recorded:
    try:
        return codec.decode_file(file, kind)
    except (OSError, codec.WireError) as error:
        raise WorkspaceError(f"{file} cannot be read: {error}") from error


def _gone(root: Path, deleted: tuple[str, ...]) -> Iterator[str]:
    """Yield the folders of deleted files that were deleted as well."""
    for path in deleted:
        *parents, _ = path.split("/")
        for depth in range(len(parents), 0, -1):
            folder = "/".join(parents[:depth])
            if os.path.lexists(root / folder):
                break
            yield folder
