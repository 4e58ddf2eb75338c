"""What lies in a folder, and how two such lists differ."""

from __future__ import annotations

import errno
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Literal, NamedTuple

from whet.dataclass import dataclass
from whet.errors import WorkspaceError
from whet.ground.tree import GIT, Descent, Folders, Tree, walk
from whet.model.grade import Changes
from whet.reading.text import escape_surrogates

# An agent can make a list of names that fills the memory; this many characters of paths are some million files.
_MAX_CHARACTERS = 256 * 1024 * 1024
_CHUNK = 1024 * 1024


class Entry(NamedTuple):
    """What tells one state of a file from another: ctime is there because mtime can be set back."""

    mode: int
    ino: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> Entry:
        """The entry for what was found."""
        return cls(found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@dataclass(slots=True)
class Inventory:
    """Everything in a folder that is no folder itself, by relative path; the `.git` folder at its top is left out."""

    files: dict[str, Entry] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)


def take_inventory(place: Descent, prefix: str = "", *, own: Folders = frozenset()) -> Inventory:
    """What lies below *place* and not in folders of our *own*; every path begins with *prefix*."""
    inventory = Inventory()
    names: list[str] = []
    here: str | None = prefix
    characters = 0
    for step in walk(place, skip=frozenset() if prefix else GIT, own=own):
        if step.kind == "enter":
            names.append(step.name)
            here = None
            continue
        if step.kind == "leave":
            names.pop()
            here = None
            continue
        if here is None:
            # Only where there is something to name: the paths of many nested folders are long.
            here = prefix + "".join(f"{name}/" for name in names)
        path = here + step.name
        characters += len(path)
        if characters > _MAX_CHARACTERS:
            raise OSError(errno.E2BIG, "it holds more files than can be listed")
        if step.kind == "item":
            inventory.files[path] = Entry.of(step.stat)
        else:
            inventory.unread.append(path)
    return inventory


class Differences(NamedTuple):
    """Paths, each list sorted."""

    created: list[str]
    modified: list[str]
    deleted: list[str]

    def __bool__(self) -> bool:
        return any(self)


def compare(old: Inventory, new: Inventory, same: Callable[[str, Entry, Entry], bool]) -> Differences:
    """How *new* differs from *old*; *same* decides for a path that is in both."""
    before, after = old.files, new.files
    deleted = sorted(path for path in before if path not in after)
    if new.unread:
        # What cannot be seen is not said to be gone.
        hidden = tuple(f"{path}/" for path in new.unread)
        deleted = [path for path in deleted if not f"{path}/".startswith(hidden)]
    return Differences(
        created=sorted(path for path in after if path not in before),
        modified=sorted(
            path for path, entry in after.items() if path in before and not same(path, before[path], entry)
        ),
        deleted=deleted,
    )


class Version(NamedTuple):
    """One side of a comparison: the entry, and the tree that its content can be read from, if any has it."""

    entry: Entry
    tree: Tree | None


def alike(path: str, old: Version, new: Version) -> bool:
    """Whether kind, permissions and content are the same on both sides; where that cannot be read, what stat tells."""
    if old.tree is None or new.tree is None:
        return old.entry == new.entry
    try:
        return _same(path, old, new, trees=(old.tree, new.tree))
    except OSError:
        return old.entry == new.entry


def _same(path: str, old: Version, new: Version, *, trees: tuple[Tree, Tree]) -> bool:
    if stat.S_ISLNK(old.entry.mode) and stat.S_ISLNK(new.entry.mode):
        return trees[0].link(path) == trees[1].link(path)
    if old.entry.mode != new.entry.mode:
        return False
    if not stat.S_ISREG(old.entry.mode):
        return True
    return old.entry.size == new.entry.size and _same_content(path, *trees)


def _same_content(path: str, old: Tree, new: Tree) -> bool:
    descriptors: list[int] = []
    try:
        descriptors.append(old.open(path))
        descriptors.append(new.open(path))
        return _same_bytes(*descriptors)
    finally:
        for fd in descriptors:
            os.close(fd)


def _same_bytes(one: int, other: int) -> bool:
    size = os.fstat(one).st_size
    if os.fstat(other).st_size != size:
        return False
    at = 0
    while at < size:
        # Holes on both sides are equal without reading them: a sparse file may seem to hold a terabyte.
        at = min(_next_data(one, at, size), _next_data(other, at, size))
        part = os.pread(one, _CHUNK, at)
        if part != os.pread(other, _CHUNK, at):
            return False
        if not part:
            return True
        at += len(part)
    return True


def _next_data(fd: int, at: int, size: int) -> int:
    if size <= _CHUNK:
        return at
    try:
        return os.lseek(fd, at, os.SEEK_DATA)
    except OSError as error:
        return size if error.errno == errno.ENXIO else at


Method = Literal["empty", "overlay", "copy", "given"]

# What a machine can run out of; everything else that keeps a workspace from being read or written is in it.
SHORTAGES = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE)

_HINTS = {
    errno.ENOSPC: "the disk is full: free some space, or let TMPDIR name a folder on a larger disk",
    errno.EDQUOT: "the disk quota is used up: free some space, or let TMPDIR name a folder on another disk",
    errno.EACCES: "check who owns the folder and its permissions",
    errno.EPERM: "check who owns the folder and its permissions",
    errno.EROFS: "the file system is read-only: choose another folder",
    errno.EMFILE: "too many files are open: raise `ulimit -n` or run fewer trials at a time",
    errno.ENOENT: "something removed it: see whether the agent or a process it left behind did",
    errno.ENOTDIR: "something put a file or link where a folder was: see whether the agent did",
    errno.ELOOP: "something put a link where a folder was: see whether the agent did",
    errno.ENOTEMPTY: "choose a destination that is not there yet",
    errno.EEXIST: "choose a destination that is not there yet",
}


@contextmanager
def explained(what: str, where: Path) -> Iterator[None]:
    """Turns what the system says into an error that names *what* failed, *where*, and what to do."""
    try:
        yield
    except OSError as error:
        raise trouble(what, where, error) from error


def trouble(what: str, where: Path | str, error: OSError) -> WorkspaceError:
    """The error for *what* failed *where*."""
    reason = error.strerror or str(error)
    return WorkspaceError(f"{what}: {escape_surrogates(str(where))}: {reason}", hint=_HINTS.get(error.errno or 0))


class Workspace(ABC):
    """A folder in which an agent works, and what became of it."""

    path: Path
    method: Method

    @abstractmethod
    def mark(self) -> None:
        """Everything from here on is the agent's doing."""

    @property
    def untouched(self) -> bool:
        """Whether a glance is enough to see that there are no changes."""
        return False

    @abstractmethod
    def changes(self) -> Changes:
        """What was created, modified and deleted since the mark."""

    @abstractmethod
    def keep(self, destination: Path) -> None:
        """Move what is there to *destination*, for a person to look at."""

    @abstractmethod
    def remove(self) -> list[str]:
        """Delete it; gives a sentence for each thing that could not be deleted."""
