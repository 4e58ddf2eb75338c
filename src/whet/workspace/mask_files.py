"""Remove secrets from files that are kept: contents, names, links, attributes and SQLite databases.

A file whose secrets cannot be removed is deleted.
"""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from msgspec import Struct

from whet.reading.text import escape_surrogates
from whet.secrets import HIDDEN, Masker
from whet.workspace.copy import extents, remove_tree
from whet.workspace.walk import DirectoryWalk, WalkStep, grant, walk

_SQLITE_HEADER = b"SQLite format 3\0"
_LOGIN_NAME = re.compile(r"credential|secret|passw|api_?key|(access|refresh|auth|id)_?token", re.IGNORECASE)
# An agent wrote the database, and a trigger in it must not run for ever.
_PATIENCE_S = 20.0
_STEPS = 100_000

_OPEN_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ_WRITE = stat.S_IRUSR | stat.S_IWUSR
# A larger file is searched in pieces, and not rewritten.
_LARGEST = 64 * 1024 * 1024
_PIECE = 8 * 1024 * 1024
# A secret with slashes may spread over this many folders.
_TOGETHER = 64


def mask_files(masker: Masker, root: Path) -> list[str]:
    """Replace secrets in everything below *root*; return a sentence for each thing that was deleted instead.

    Files keep their modes, but a file that we had to make readable is then readable only to its owner.
    """
    with DirectoryWalk(root, open_up=True) as place:
        return _MaskingWalk(masker, root, place).run()


class _Folder(Struct):
    name: str
    hide: bool = False


class _Unmaskable(Exception):
    """Why something cannot be kept."""


class _MaskingWalk:
    """One walk through the files; renames a folder when it leaves it, so that paths stay valid until then."""

    def __init__(self, masker: Masker, root: Path, place: DirectoryWalk) -> None:
        self._masker = masker
        self._root = root
        self._place = place
        self._above: list[_Folder] = []
        self._problems: list[str] = []

    def run(self) -> list[str]:
        self._attributes(self._place.fd)
        for step in walk(self._place):
            try:
                self._take(step)
            except FileNotFoundError:
                # A process that still runs here has removed it.
                continue
            except (_Unmaskable, OSError) as error:
                self._drop(step, error)
        return self._problems

    def _take(self, step: WalkStep) -> None:
        if step.kind == "enter":
            self._above.append(_Folder(step.name, hide=self._has_secret(step.name)))
            self._attributes(self._place.fd)
        elif step.kind == "leave":
            folder = self._above.pop()
            if folder.hide:
                self._rename(folder.name, self._place.fd)
        elif step.kind == "unread":
            raise _Unmaskable("the folder cannot be read")
        else:
            self._item(step)

    def _item(self, step: WalkStep) -> None:
        fd = self._place.fd
        if stat.S_ISLNK(step.stat.st_mode):
            self._link(step.name, fd)
        elif stat.S_ISREG(step.stat.st_mode):
            with _opened(step, fd) as file:
                self._attributes(file)
                self._content(file)
        if self._has_secret(step.name):
            self._rename(step.name, fd)

    def _content(self, file: int) -> None:
        if not self._finds(file):
            return
        size = os.fstat(file).st_size
        if size > _LARGEST:
            raise _Unmaskable(f"it contains a secret and has {size:,} bytes, which is too large to rewrite")
        data = self._masker.data(os.pread(file, size, 0))
        with open(os.dup(file), "r+b", buffering=0) as opened:
            opened.seek(0)
            while data:
                data = data[opened.write(data) :]
            opened.truncate()

    def _finds(self, file: int) -> bool:
        """Return whether there is a secret; the pieces overlap, so that none is missed between two."""
        overlap = self._masker.longest
        for start, end in extents(file, os.fstat(file)):
            for at in range(start, end, _PIECE):
                if self._masker.finds(os.pread(file, _PIECE + overlap, at)):
                    return True
        return False

    def _link(self, name: str, fd: int) -> None:
        self._attributes(f"/proc/self/fd/{fd}/{name}")
        target = os.readlink(name, dir_fd=fd)
        masked = self._masked(target)
        if masked != target:
            os.unlink(name, dir_fd=fd)
            os.symlink(masked, name, dir_fd=fd)

    def _attributes(self, what: int | str) -> None:
        """Remove every extended attribute that has a secret in its name or value."""
        follow = isinstance(what, int)
        for name in os.listxattr(what, follow_symlinks=follow):
            value = os.getxattr(what, name, follow_symlinks=follow)
            if self._masker.finds(os.fsencode(name)) or self._masker.finds(value):
                os.removexattr(what, name, follow_symlinks=follow)

    def _has_secret(self, name: str) -> bool:
        """Return whether a name has to change; also mark the folders above that a secret spreads over."""
        names = [*(os.fsencode(folder.name) for folder in self._above[-_TOGETHER:]), os.fsencode(name)]
        hide = [False] * len(names)
        for begin, end in self._masker.found(b"/".join(names)):
            at = 0
            for number, part in enumerate(names):
                hide[number] |= begin < at + len(part) and at < end
                at += len(part) + 1
        for folder, hidden in zip(self._above[-_TOGETHER:], hide, strict=False):
            folder.hide |= hidden
        return hide[-1]

    def _rename(self, name: str, fd: int) -> None:
        masked = self._masked(name)
        # The name has only a part of a secret, so masking did not change it.
        wanted = masked if masked != name else HIDDEN
        numbered = (wanted if number == 1 else f"{wanted}-{number}" for number in count(1))
        new = next(candidate for candidate in numbered if not _is_there(candidate, fd))
        os.rename(name, new, src_dir_fd=fd, dst_dir_fd=fd)

    def _masked(self, text: str) -> str:
        return os.fsdecode(self._masker.data(os.fsencode(text)))

    def _drop(self, step: WalkStep, error: _Unmaskable | OSError) -> None:
        path = "/".join((*(folder.name for folder in self._above), step.name))
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        shown = self._masker.text(escape_surrogates(path))
        self._problems.append(f"{shown} was not kept, because its secrets cannot be removed: {reason}")
        # By descriptor, because its path may be too long.
        left = remove_tree(Path(f"/proc/self/fd/{self._place.fd}/{step.name}"))
        self._problems += [f"{shown} could not be removed either" for _ in left[:1]]


@contextmanager
def _opened(step: WalkStep, fd: int) -> Iterator[int]:
    """Open a file to read and write; if its owner may not, grant it, and remove the rights of others."""
    mode = stat.S_IMODE(step.stat.st_mode)
    granted = mode & _READ_WRITE != _READ_WRITE
    if granted:
        grant(step.name, _READ_WRITE, dir_fd=fd)
    file = os.open(step.name, _OPEN_FLAGS, dir_fd=fd)
    try:
        yield file
    finally:
        if granted:
            with suppress(OSError):
                os.fchmod(file, mode & stat.S_IRWXU)
        os.close(file)


def _is_there(name: str, fd: int) -> bool:
    try:
        os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


_LARGEST_STATE = 64 * 1024 * 1024


def drop_unmaskable(masker: Masker, folder: Path) -> Iterator[tuple[Path, str]]:
    """Mask the databases in *folder*; remove what is too large or cannot be read, because it might hold anything.

    Yield each file that was removed, and why.
    """
    for path in _files(folder):
        try:
            problem = "it is larger than 64 MiB" if path.stat().st_size > _LARGEST_STATE else None
            if problem is None and is_database(path):
                mask_database(masker, path)
        except FileNotFoundError:
            # A log that its database has taken in.
            continue
        except (OSError, sqlite3.Error) as error:
            problem = str(error)
        if problem is not None:
            for part in ("", "-wal", "-journal"):
                remove_tree(path.with_name(path.name + part))
            yield path, problem


def _files(folder: Path) -> list[Path]:
    """Return every regular file; raises if one cannot be reached, because it would not be masked."""
    paths = (Path(place, name) for place, _, names in os.walk(folder, onerror=_give_up) for name in names)
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())


def _give_up(error: OSError) -> None:
    raise error


def is_database(path: Path) -> bool:
    """Return whether *path* is an SQLite file."""
    with path.open("rb") as file:
        return file.read(len(_SQLITE_HEADER)) == _SQLITE_HEADER


def mask_database(masker: Masker, path: Path) -> None:
    """Replace secrets in every value, and empty tables and columns that are named after a login.

    Nothing of them stays in the file. Raises `sqlite3.Error` if the file cannot be read or rewritten.
    """
    deadline = time.monotonic() + _PATIENCE_S
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
        database.create_function("masked", 1, lambda value: _masked(masker, value), deterministic=True)
        database.execute("PRAGMA trusted_schema = OFF")
        # The latest changes may still be in a separate file.
        database.execute("PRAGMA journal_mode = DELETE")
        database.execute("BEGIN")
        for statement in list(_statements(database)):
            database.execute(statement)
        database.execute("COMMIT")
        database.execute("VACUUM")


def _statements(database: sqlite3.Connection) -> Iterator[str]:
    tables = database.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"
    )
    for (table,) in tables:
        if _LOGIN_NAME.search(table):
            yield f"DELETE FROM {_quoted(table)}"  # noqa: S608
            continue
        for _, column, *_ in database.execute(f"PRAGMA table_info({_quoted(table)})"):
            place, name = _quoted(table), _quoted(column)
            if _LOGIN_NAME.search(column):
                yield f"UPDATE {place} SET {name} = '{HIDDEN}' WHERE typeof({name}) IN ('text', 'blob')"  # noqa: S608
            else:
                yield f"UPDATE {place} SET {name} = masked({name}) WHERE {name} IS NOT masked({name})"  # noqa: S608


def _masked(masker: Masker, value: Any) -> Any:
    match value:
        case str():
            return masker.text(value)
        case bytes():
            return masker.data(value)
        case _:
            return value


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
