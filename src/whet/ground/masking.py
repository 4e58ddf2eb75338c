"""Keeping secrets out of a workspace that is kept: content, names, links and attributes; what resists is not kept."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.dataclass import dataclass
from whet.ground.copying import extents, remove_tree
from whet.ground.secrets import HIDDEN, Masker
from whet.ground.tree import Descent, Step, grant, walk
from whet.reading.text import escape_surrogates

if TYPE_CHECKING:
    import sqlite3

_HEADER = b"SQLite format 3\0"
_LOGIN = re.compile(r"credential|secret|passw|api_?key|(access|refresh|auth|id)_?token", re.IGNORECASE)
# An agent wrote it: a trigger of its own may not keep us for ever.
_PATIENCE_S = 20.0
_STEPS = 100_000


def is_database(path: Path) -> bool:
    """Whether *path* is an SQLite file."""
    with path.open("rb") as file:
        return file.read(len(_HEADER)) == _HEADER


def mask_database(masker: Masker, path: Path) -> None:
    """Replace secrets in every value, empty what is named after a login, and leave no trace of either in the file.

    Raises `sqlite3.Error` where the file cannot be read or rewritten.
    """
    # Only here: few agents keep a database.
    import sqlite3  # noqa: PLC0415

    deadline = time.monotonic() + _PATIENCE_S
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
        database.create_function("masked", 1, lambda value: _masked(masker, value), deterministic=True)
        database.execute("PRAGMA trusted_schema = OFF")
        # What was written last may still lie in a file beside it.
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
        if _LOGIN.search(table):
            yield f"DELETE FROM {_quoted(table)}"  # noqa: S608
            continue
        for _, column, *_ in database.execute(f"PRAGMA table_info({_quoted(table)})"):
            place, name = _quoted(table), _quoted(column)
            if _LOGIN.search(column):
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


_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ_WRITE = stat.S_IRUSR | stat.S_IWUSR
# What is larger is looked through piece by piece, and not rewritten.
_LARGEST = 64 * 1024 * 1024
_PIECE = 8 * 1024 * 1024
# A secret with a slash in it may lie across so many folders.
_TOGETHER = 64


def mask_files(masker: Masker, root: Path) -> list[str]:
    """Replace secrets in everything below *root*; gives a sentence for each thing that was not kept because of them.

    Files keep their modes, but one that had to be opened for this is closed to everybody but its owner.
    """
    with Descent(root, open_up=True) as place:
        return _Masking(masker, root, place).run()


@dataclass(slots=True)
class _Folder:
    name: str
    hide: bool = False


class _Unmaskable(Exception):
    """Why something may not be kept."""


class _Masking:
    """One walk; a folder gets its new name when we leave it, so that every path leads somewhere until then."""

    def __init__(self, masker: Masker, root: Path, place: Descent) -> None:
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
                # A process still works here.
                continue
            except (_Unmaskable, OSError) as error:
                self._drop(step, error)
        return self._problems

    def _take(self, step: Step) -> None:
        if step.kind == "enter":
            self._above.append(_Folder(step.name, hide=self._is_telling(step.name)))
            self._attributes(self._place.fd)
        elif step.kind == "leave":
            folder = self._above.pop()
            if folder.hide:
                with _opened("..", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, self._place.fd) as parent:
                    self._rename(folder.name, parent)
        elif step.kind == "unread":
            raise _Unmaskable("it may not be looked into")
        else:
            self._item(step)

    def _item(self, step: Step) -> None:
        fd = self._place.fd
        if stat.S_ISLNK(step.stat.st_mode):
            self._link(step.name, fd)
        elif stat.S_ISREG(step.stat.st_mode):
            with _writable(step, fd) as file:
                self._attributes(file)
                self._content(file)
        if self._is_telling(step.name):
            self._rename(step.name, fd)

    def _content(self, file: int) -> None:
        if not self._finds(file):
            return
        size = os.fstat(file).st_size
        if size > _LARGEST:
            raise _Unmaskable(f"it holds a secret and has {size:,} bytes, more than are rewritten")
        data = self._masker.data(os.pread(file, size, 0))
        with open(os.dup(file), "r+b", buffering=0) as opened:  # noqa: PTH123 - a descriptor, not a path
            opened.seek(0)
            while data:
                data = data[opened.write(data) :]
            opened.truncate()

    def _finds(self, file: int) -> bool:
        """Whether there is a secret; pieces overlap, so that none lies across two of them unseen."""
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
        """Take away every extended attribute that holds a secret; the name of one may be it."""
        follow = isinstance(what, int)
        for name in os.listxattr(what, follow_symlinks=follow):
            value = os.getxattr(what, name, follow_symlinks=follow)
            if self._masker.finds(os.fsencode(name)) or self._masker.finds(value):
                os.removexattr(what, name, follow_symlinks=follow)

    def _is_telling(self, name: str) -> bool:
        """Whether a name is to go; the folders that a secret lies across are marked too."""
        names = [*(os.fsencode(folder.name) for folder in self._above[-_TOGETHER:]), os.fsencode(name)]
        hide = [False] * len(names)
        for begin, end in self._masker.found(b"/".join(names)):
            at = 0
            for number, each in enumerate(names):
                hide[number] |= begin < at + len(each) and at < end
                at += len(each) + 1
        for folder, hidden in zip(self._above[-_TOGETHER:], hide, strict=False):
            folder.hide |= hidden
        return hide[-1]

    def _rename(self, name: str, fd: int) -> None:
        masked = self._masked(name)
        # Only a part of it lies in this name, which is then no secret by itself.
        wanted = masked if masked != name else HIDDEN
        numbered = (wanted if number == 1 else f"{wanted}-{number}" for number in count(1))
        new = next(each for each in numbered if not _is_there(each, fd))
        os.rename(name, new, src_dir_fd=fd, dst_dir_fd=fd)

    def _masked(self, text: str) -> str:
        return os.fsdecode(self._masker.data(os.fsencode(text)))

    def _drop(self, step: Step, error: _Unmaskable | OSError) -> None:
        path = "/".join((*(folder.name for folder in self._above), step.name))
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        shown = self._masker.text(escape_surrogates(path))
        self._problems.append(f"{shown} was not kept, since secrets cannot be taken out of it: {reason}")
        # By descriptor, since its path may be longer than paths may be.
        here = f"/proc/self/fd/{self._place.fd}"
        left = remove_tree(Path(f"{here}/../{step.name}" if step.kind == "leave" else f"{here}/{step.name}"))
        self._problems += [f"{shown} could not be removed either" for _ in left[:1]]


@contextmanager
def _opened(name: str, flags: int, fd: int) -> Iterator[int]:
    opened = os.open(name, flags, dir_fd=fd)
    try:
        yield opened
    finally:
        os.close(opened)


@contextmanager
def _writable(step: Step, fd: int) -> Iterator[int]:
    """A file to be read and written, also where its owner may not; then nobody else may either."""
    mode = stat.S_IMODE(step.stat.st_mode)
    if mode & _READ_WRITE == _READ_WRITE:
        with _opened(step.name, _FLAGS, fd) as file:
            yield file
        return
    grant(step.name, _READ_WRITE, dir_fd=fd)
    with _opened(step.name, _FLAGS, fd) as file:
        try:
            yield file
        finally:
            with suppress(OSError):
                os.fchmod(file, mode & stat.S_IRWXU)


def _is_there(name: str, fd: int) -> bool:
    try:
        os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
