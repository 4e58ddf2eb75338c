"""The files of a run that callers may see: those of its run folder, and what its process printed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from whet.server.runs.folder import RunPlace

# The settings of whoever operates the service, and what is of no use to anybody.
_PRIVATE = ("run.json", ".lock")


def files_of(place: RunPlace, below: str, after: str | None, most: int) -> list[tuple[str, int]]:
    """Paths and sizes of files in order, at most so many, those after *after*; links are no files of ours."""
    folder = below.strip("/")
    found = sorted(
        (path, size)
        for path, size in _all_files(place)
        if (not folder or path.startswith(f"{folder}/")) and (after is None or path > after)
    )
    return found[:most]


def file_in(place: RunPlace, path: str) -> Path | None:
    """The file that callers call *path*; none where it is no file, or leads anywhere else."""
    if not _is_plain(path) or path in _PRIVATE:
        return None
    extra = {file.name: file for file in _extras(place)}
    record = place.record
    found = extra.get(path) or (record / path if record is not None else None)
    if found is None or _size(found) is None:
        return None
    # A folder on the way may be a link too: an agent made what is in a workspace.
    root = (record if path not in extra else place.path) or place.path
    return found if found.resolve().is_relative_to(root.resolve()) else None


def _is_plain(path: str) -> bool:
    parts = path.split("/")
    return "\0" not in path and all(part not in ("", ".", "..") for part in parts)


def _extras(place: RunPlace) -> list[Path]:
    return [file for file in (place.log, place.report) if _size(file) is not None]


def _size(file: Path) -> int | None:
    """The size of a file; none where it is anything else, is gone by now, or has a name that no file can have."""
    try:
        seen = file.lstat()
    except OSError:
        return None
    return seen.st_size if stat.S_ISREG(seen.st_mode) else None


def _all_files(place: RunPlace) -> Iterator[tuple[str, int]]:
    for file, shown in _named(place):
        # A name that is no text cannot be asked for.
        if shown not in _PRIVATE and shown.isprintable() and (size := _size(file)) is not None:
            yield shown, size


def _named(place: RunPlace) -> Iterator[tuple[Path, str]]:
    for file in _extras(place):
        yield file, file.name
    record = place.record
    if record is None:
        return
    for folder, _, names in os.walk(record):
        for name in names:
            file = Path(folder, name)
            yield file, str(file.relative_to(record))
