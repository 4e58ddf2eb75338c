"""Archives of skills: the same bytes for the same files, whenever and wherever they are made."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

from whet.errors import UsageError

_MANIFEST = "SKILL.md"
_NOT_OF_IT = {".git", ".whet"}


def pack_skill(folder: Path, name: str = "skill") -> bytes:
    """Return an archive of a skill, whose folder has this *name* there."""
    if not (folder / _MANIFEST).is_file():
        raise UsageError(f"{folder} is not a skill: it has no {_MANIFEST}")
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as gzip_file,
        tarfile.open(fileobj=gzip_file, mode="w") as archive,
    ):
        for path in sorted(folder.rglob("*")):
            parts = path.relative_to(folder).parts
            if not _NOT_OF_IT & set(parts):
                entry = archive.gettarinfo(path, "/".join((name, *parts)))
                entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, 0, "", ""
                if entry.isreg():
                    with path.open("rb") as content:
                        archive.addfile(entry, content)
                else:
                    archive.addfile(entry)
    return buffer.getvalue()
