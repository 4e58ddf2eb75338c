"""Record what an agent changed, as a list and an archive, so that a later run can restore it in another folder."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from whet.dataclass import dataclass
from whet.errors import WorkspaceError
from whet.ground.secrets import Masker
from whet.ground.tree import GIT, Tree, explained
from whet.model import wire
from whet.model.grade import Changes

if TYPE_CHECKING:
    import tarfile

LIST_FILE = "changes.json"
ARCHIVE_FILE = "changes.tar"
FOLDERS_FILE = "folders.json"
_DIFF_FILE = "diff.patch"
_Recorded = TypeVar("_Recorded")
_LARGEST_FILE = 32 * 1024 * 1024
_LARGEST_ARCHIVE = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedChanges:
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
    archive = _Archive(Tree(root), masker)
    with explained("cannot record changes", folder):
        paths = (*changes.created, *changes.modified)
        if paths:
            # Only here and below: most trials of some suites change nothing.
            import tarfile  # noqa: PLC0415

            with tarfile.open(folder / ARCHIVE_FILE, "w", format=tarfile.PAX_FORMAT) as file:
                archive.fill(file, paths)
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
        (folder / LIST_FILE).write_bytes(wire.encode_pretty(listed))
    return [f"{path} was not recorded: {reason}" for path, reason in archive.missing.items()]


def note_folders(folder: Path, paths: tuple[str, ...]) -> None:
    """Write to *folder* which *paths* were folders before the agent started."""
    with explained("cannot record what was there before", folder):
        (folder / FOLDERS_FILE).write_bytes(wire.encode_pretty(paths))


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
        return wire.decode_file(file, kind)
    except (OSError, wire.WireError) as error:
        raise WorkspaceError(f"{file} cannot be read: {error}") from error


class _Archive:
    """Adds files and links to an archive without their secrets, and notes what it cannot add."""

    def __init__(self, tree: Tree, masker: Masker) -> None:
        self._tree = tree
        self._masker = masker
        self._left = _LARGEST_ARCHIVE
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()
        self.missing: dict[str, str] = {}
        self.masked: list[str] = []

    def named(self, path: str) -> str:
        """Return *path* without secrets; different paths stay different."""
        if path not in self._names:
            masked = self._masker.text(path)
            numbered = (masked if number == 1 else f"{masked}-{number}" for number in count(1))
            self._names[path] = next(name for name in numbered if name not in self._taken)
            self._taken.add(self._names[path])
        return self._names[path]

    def fill(self, file: tarfile.TarFile, paths: tuple[str, ...]) -> None:
        """Add all of *paths*."""
        for path in paths:
            try:
                reason = self._take(file, path)
            except OSError as error:
                reason = error.strerror or str(error)
            if reason:
                self.missing[self.named(path)] = reason

    def _take(self, file: tarfile.TarFile, path: str) -> str | None:
        """Add one path; return why if it cannot be added."""
        found = self._tree.stat(path)
        if found is None:
            return "there is nothing at this path"
        import tarfile  # noqa: PLC0415

        entry = tarfile.TarInfo(self.named(path))
        entry.mode = stat.S_IMODE(found.st_mode)
        data = b""
        if stat.S_ISLNK(found.st_mode):
            target = self._tree.link(path)
            entry.type, entry.linkname = tarfile.SYMTYPE, self._masker.text(target)
            masked = entry.linkname != target
        elif not stat.S_ISREG(found.st_mode):
            return "it is neither a file nor a link"
        elif found.st_size > min(_LARGEST_FILE, self._left):
            return f"it has {found.st_size:,} bytes, which is too large to record"
        else:
            content = self._tree.read(path, found.st_size)
            data = self._masker.data(content)
            masked = data != content
        if masked or entry.name != path:
            self.masked.append(entry.name)
        self._left -= len(data)
        entry.size = len(data)
        file.addfile(entry, io.BytesIO(data))
        return None


def _gone(root: Path, deleted: tuple[str, ...]) -> Iterator[str]:
    """Yield the folders of deleted files that were deleted as well."""
    for path in deleted:
        *parents, _ = path.split("/")
        for depth in range(len(parents), 0, -1):
            folder = "/".join(parents[:depth])
            if os.path.lexists(root / folder):
                break
            yield folder
