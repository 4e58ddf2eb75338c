"""The files of a run that callers may see: those of its run folder, and what its process printed."""

from __future__ import annotations

import os
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
    if found is None or found.is_symlink() or not found.is_file():
        return None
    # A folder on the way may be a link too: an agent made what is in a workspace.
    root = (record if path not in extra else place.path) or place.path
    return found if found.resolve().is_relative_to(root.resolve()) else None


def _is_plain(path: str) -> bool:
    parts = path.split("/")
    return "\0" not in path and all(part not in ("", ".", "..") for part in parts)


def _extras(place: RunPlace) -> list[Path]:
    return [file for file in (place.log, place.report) if file.is_file()]


def _all_files(place: RunPlace) -> Iterator[tuple[str, int]]:
    for file in _extras(place):
        yield file.name, file.stat().st_size
    record = place.record
    if record is None:
        return
    for folder, _, names in os.walk(record):
        for name in names:
            file = Path(folder, name)
            shown = str(file.relative_to(record))
            # A name that is no text cannot be asked for.
            if shown not in _PRIVATE and shown.isprintable() and not file.is_symlink() and file.is_file():
                yield shown, file.stat().st_size
