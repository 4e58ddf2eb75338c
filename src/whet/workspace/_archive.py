"""The archive of what an agent wrote: files and links, without their secrets."""

from __future__ import annotations

import io
import stat
import tarfile
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from whet.secrets import Masker
from whet.workspace.walk import Tree

_LARGEST_FILE = 32 * 1024 * 1024
_LARGEST_ARCHIVE = 64 * 1024 * 1024


class Archive:
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

    def write(self, archive_file: Path, paths: Iterable[str]) -> None:
        """Write all of *paths* that can be recorded to *archive_file*."""
        with tarfile.open(archive_file, "w", format=tarfile.PAX_FORMAT) as file:
            for path in paths:
                try:
                    reason = self._take(file, path)
                except OSError as error:
                    reason = error.strerror or str(error)
                if reason:
                    self.missing[self.named(path)] = reason

    def _take(self, file: tarfile.TarFile, path: str) -> str | None:
        """Add one path; return why if it cannot be added."""
        status = self._tree.stat(path)
        if status is None:
            return "there is nothing at this path"
        entry = tarfile.TarInfo(self.named(path))
        entry.mode = stat.S_IMODE(status.st_mode)
        data = b""
        if stat.S_ISLNK(status.st_mode):
            target = self._tree.link(path)
            entry.type, entry.linkname = tarfile.SYMTYPE, self._masker.text(target)
            masked = entry.linkname != target
        elif not stat.S_ISREG(status.st_mode):
            return "it is neither a file nor a link"
        elif status.st_size > min(_LARGEST_FILE, self._left):
            return f"it has {status.st_size:,} bytes, which is too large to record"
        else:
            content = self._tree.read(path, status.st_size)
            data = self._masker.data(content)
            masked = data != content
        if masked or entry.name != path:
            self.masked.append(entry.name)
        self._left -= len(data)
        entry.size = len(data)
        file.addfile(entry, io.BytesIO(data))
        return None
