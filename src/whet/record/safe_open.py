"""Open files of a record that anybody may have made: nothing outside of its folder, no link, no pipe."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opening a pipe waits for a writer.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
# Deeper folders are not looked into; an agent can make any number of them.
_DEEPEST = 50


def is_inside(path: str) -> bool:
    """Return whether *path*, which a record names, cannot lead out of its folder by its text alone."""
    return "\0" not in path and not any(part in ("", ".", "..") for part in path.split("/"))


class RecordFolder:
    """A folder of a record, held open, so that nothing on the way to it can be exchanged any more."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def open(self, name: str) -> BinaryIO | None:
        """Open a regular file of this folder; None if there is none of that name."""
        try:
            file = os.open(name, _FILE, dir_fd=self._descriptor)
        except (OSError, ValueError):
            return None
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            return None
        return os.fdopen(file, "rb")

    def read(self, name: str, most: int, *, end: bool = False) -> tuple[bytes, bool] | None:
        """Return at most so many bytes of a file, its first or last ones, and whether that is not all of it."""
        file = self.open(name)
        if file is None:
            return None
        with file:
            try:
                size = os.fstat(file.fileno()).st_size
                if end and size > most:
                    file.seek(size - most)
                return file.read(most), size > most
            except OSError:
                return None

    @contextmanager
    def inner(self, name: str) -> Iterator[RecordFolder | None]:
        """Open a folder in this one; None if there is none of that name."""
        try:
            place = os.open(name, _FOLDER, dir_fd=self._descriptor)
        except (OSError, ValueError):
            yield None
            return
        try:
            yield RecordFolder(place)
        finally:
            os.close(place)

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield all that is not a folder below this one, by its path, sorted; links are not followed."""
        return _files(self._descriptor, "", _DEEPEST)


def _files(descriptor: int, prefix: str, left: int) -> Iterator[tuple[str, os.stat_result]]:
    try:
        with os.scandir(descriptor) as entries:
            ordered_entries = sorted(entries, key=lambda entry: entry.name)
        for entry in ordered_entries:
            if not entry.is_dir(follow_symlinks=False):
                yield prefix + entry.name, entry.stat(follow_symlinks=False)
            elif left:
                inner = os.open(entry.name, _FOLDER, dir_fd=descriptor)
                try:
                    yield from _files(inner, f"{prefix}{entry.name}/", left - 1)
                finally:
                    os.close(inner)
    except OSError:
        return


def folder_inside(root: Path, path: str) -> AbstractContextManager[RecordFolder | None]:
    """Open the folder at *path*, with `/`, below *root*; None if there is none, or a link is on the way."""
    return _around(root, f"{path}/-")


def _descend(root: Path, parts: list[str]) -> int:
    place = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in parts:
        try:
            inner = os.open(part, _FOLDER, dir_fd=place)
        finally:
            os.close(place)
        place = inner
    return place


def open_inside(root: Path, path: str) -> BinaryIO | None:
    """Open the regular file at *path*, with `/`, below *root*; None if there is none, or a link is on the way."""
    with _around(root, path) as folder:
        return folder.open(path.rpartition("/")[2]) if folder else None


def read_inside(root: Path, path: str, most: int) -> tuple[bytes, bool] | None:
    """Return at most so many bytes of a file, and whether that is not all of it; None without it."""
    with _around(root, path) as folder:
        return folder.read(path.rpartition("/")[2], most) if folder else None


@contextmanager
def _around(root: Path, path: str) -> Iterator[RecordFolder | None]:
    """Open the folder that holds *path*; None if there is none, or a link is on the way."""
    folders = path.split("/")[:-1]
    place = None
    if is_inside(path):
        with suppress(OSError):
            place = _descend(root, folders)
    try:
        yield None if place is None else RecordFolder(place)
    finally:
        if place is not None:
            os.close(place)
