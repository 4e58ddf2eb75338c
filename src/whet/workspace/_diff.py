"""Compare a folder before and after: which paths were created, modified and deleted, and a bounded unified diff."""

from __future__ import annotations

import difflib
import errno
import json
import math
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct, field

from whet.model.grade import Changes
from whet.reading.text import escape_surrogates
from whet.workspace.walk import GIT, DirectoryWalk, Folders, Tree, WalkStep, walk

MAX_FILE_BYTES = 256 * 1024
MAX_DIFF_CHARACTERS = 1024 * 1024

# An agent can make a list of names that fills the memory; this many characters of paths are some million files.
_MAX_CHARACTERS = 256 * 1024 * 1024
_CHUNK = 1024 * 1024
# difflib compares each line with each; beyond this many pairs, the diff removes all old lines and adds all new ones.
_MAX_PAIRS = 25_000_000
_MAX_PAIRS_TOGETHER = 100_000_000
_CONTEXT = 3
_NO_NEWLINE = "\\ No newline at end of file"
_FIRST_PRINTABLE = 32
_DELETE = 127

_KINDS = {
    stat.S_IFIFO: "a fifo",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFREG: "a file",
}


class FileState(NamedTuple):
    """The state of a file, to compare with another; has ctime because a program can set mtime back."""

    mode: int
    ino: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileState:
        """Return the entry for a stat result."""
        return cls(status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class Inventory(Struct):
    """Everything in a folder that is not a folder, by relative path; without the `.git` folder at the top."""

    files: dict[str, FileState] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    _characters: int = 0

    def add(self, step: WalkStep, path: str) -> None:
        """Add an item, or a folder that cannot be read."""
        self._characters += len(path)
        if self._characters > _MAX_CHARACTERS:
            raise OSError(errno.E2BIG, "it has more files than can be listed")
        if step.kind == "item":
            self.files[path] = FileState.of(step.stat)
        else:
            self.unread.append(path)


def take_inventory(place: DirectoryWalk, *, own: Folders = frozenset(), most: float = math.inf) -> Inventory:
    """List what is below *place*, by path from the root of its walk; leave out whet's *own* folders.

    Raises `TooManyFiles` if there are more than *most* files, or as many folders.
    """
    inventory, folders = Inventory(), 0
    for step in walk(place, skip=frozenset() if place.top else GIT, own=own):
        if step.kind in {"item", "unread"}:
            inventory.add(step, place.path(step))
        folders += step.kind == "enter"
        if max(len(inventory.files), folders) > most:
            raise TooManyFiles
    return inventory


class TooManyFiles(Exception):
    """There are more files than we look at."""


class Differences(NamedTuple):
    """The paths that differ between two inventories, each list sorted."""

    created: list[str]
    modified: list[str]
    deleted: list[str]

    def __bool__(self) -> bool:
        return any(self)


def compare(old: Inventory, new: Inventory, same: Callable[[str, FileState, FileState], bool]) -> Differences:
    """Return how *new* differs from *old*; *same* decides for a path that is in both."""
    before, after = old.files, new.files
    deleted = sorted(path for path in before if path not in after)
    if new.unread:
        # A file that we cannot see may still be there.
        hidden = tuple(f"{path}/" for path in new.unread)
        deleted = [path for path in deleted if not f"{path}/".startswith(hidden)]
    return Differences(
        created=sorted(path for path in after if path not in before),
        modified=sorted(
            path for path, entry in after.items() if path in before and not same(path, before[path], entry)
        ),
        deleted=deleted,
    )


class FileVersion(NamedTuple):
    """One side of a comparison: the entry, and the tree to read its content from, if there is one."""

    entry: FileState
    tree: Tree | None


def alike(path: str, old: FileVersion, new: FileVersion) -> bool:
    """Return whether kind, permissions and content are equal; compare stat results if the content cannot be read."""
    if old.tree is None or new.tree is None:
        return old.entry == new.entry
    was, now = old.entry, new.entry
    try:
        if stat.S_ISLNK(was.mode) and stat.S_ISLNK(now.mode):
            return old.tree.link(path) == new.tree.link(path)
        if was.mode != now.mode:
            return False
        if not stat.S_ISREG(was.mode):
            return True
        return was.size == now.size and _same_content(path, old.tree, new.tree)
    except OSError:
        return was == now


def _same_content(path: str, old: Tree, new: Tree) -> bool:
    with old.open(path) as one, new.open(path) as other:
        return _same_bytes(one.fileno(), other.fileno())


def _same_bytes(one: int, other: int) -> bool:
    size = os.fstat(one).st_size
    if os.fstat(other).st_size != size:
        return False
    at = 0
    while at < size:
        # Skip holes on both sides without reading them: a sparse file may claim to be a terabyte.
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


def describe_changes(
    differences: Differences, old: Inventory, new: Inventory, *, before: Callable[[str], Tree | None], after: Tree
) -> Changes:
    """Return the changes in *differences*, with a diff; *before* returns the tree with the old content of a path."""
    if not differences and not new.unread:
        return Changes()
    budget = _Budget(_MAX_PAIRS_TOGETHER)
    parts: list[str] = []
    room = MAX_DIFF_CHARACTERS
    hidden = 0
    for path in sorted((*differences.created, *differences.modified, *differences.deleted)):
        was, now = old.files.get(path), new.files.get(path)
        versions = was and FileVersion(was, before(path)), now and FileVersion(now, after)
        part = "" if hidden else "".join(f"{line}\n" for line in _shown(path, *versions, budget))
        if hidden or len(part) > room:
            hidden += 1
            continue
        room -= len(part)
        parts.append(part)
    if hidden:
        parts.append(f"{hidden} more changed {'file is' if hidden == 1 else 'files are'} not shown\n")
    parts += [f"Folder {path!r} cannot be read\n" for path in _escaped(new.unread)]
    return Changes(
        created=_escaped(differences.created),
        modified=_escaped(differences.modified),
        deleted=_escaped(differences.deleted),
        diff="".join(parts),
    )


def _escaped(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(map(escape_surrogates, paths)))


class _Budget(Struct):
    pairs: int

    def allows(self, pairs: int) -> bool:
        if pairs > min(_MAX_PAIRS, self.pairs):
            return False
        self.pairs -= pairs
        return True


def _shown(path: str, old: FileVersion | None, new: FileVersion | None, budget: _Budget) -> Iterator[str]:
    name = _quoted(path)
    if old and new:
        verb = "Modified"
    elif new:
        verb = "Created"
    else:
        verb = "Deleted"
    if old and new:
        yield from _mode_line(name, old, new)
    for version, tense in ((old, "was"), (new, "is")):
        if version and (why := _unshown(version, tense)):
            yield f"{verb} file {name} {why}"
            return
    try:
        before, after = _content(path, old), _content(path, new)
    except OSError as error:
        yield f"File {name} is not shown: {error.strerror or error}"
        return
    if isinstance(before, bytes) or isinstance(after, bytes):
        yield f"Binary file {name} differs"
    elif before != after:
        yield f"--- a/{name}" if old else "--- /dev/null"
        yield f"+++ b/{name}" if new else "+++ /dev/null"
        yield from _hunks(_lines(before), _lines(after), budget)
    elif not (old and new):
        yield f"{verb} empty file {name}"


def _mode_line(name: str, old: FileVersion, new: FileVersion) -> Iterator[str]:
    if stat.S_IFMT(old.entry.mode) != stat.S_IFMT(new.entry.mode):
        yield f"File {name} is {_kind(new.entry.mode)}, was {_kind(old.entry.mode)}"
        return
    before, after = stat.S_IMODE(old.entry.mode), stat.S_IMODE(new.entry.mode)
    if before != after and not stat.S_ISLNK(new.entry.mode):
        yield f"File {name} has mode {after:o}, was {before:o}"


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "something unusual")


def _unshown(version: FileVersion, tense: str) -> str | None:
    """Return why a version has no text to show, or None."""
    mode, size = version.entry.mode, version.entry.size
    if version.tree is None:
        return "is not shown: the old content of a shared workspace is not kept"
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        return f"{tense} {_kind(mode)}"
    if stat.S_ISREG(mode) and size > MAX_FILE_BYTES:
        return f"is not shown: it has {size:,} bytes"
    return None


def _content(path: str, version: FileVersion | None) -> str | bytes:
    """Return the text of a version, or its bytes if they are not text."""
    if version is None:
        return ""
    assert version.tree is not None
    if stat.S_ISLNK(version.entry.mode):
        return escape_surrogates(version.tree.link(path))
    content = version.tree.read(path, MAX_FILE_BYTES)
    if b"\0" in content:
        return content
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content


def _quoted(path: str) -> str:
    """Return the path on one line, quoted if it has control characters."""
    shown = escape_surrogates(path)
    if any(ord(character) < _FIRST_PRINTABLE or ord(character) == _DELETE for character in shown):
        return json.dumps(shown, ensure_ascii=False)
    return shown


def _lines(text: str) -> list[str]:
    """Split into lines without newlines; mark a last line without a newline as unified diffs do."""
    if not text:
        return []
    lines = text.split("\n")
    if lines[-1]:
        return [*lines[:-1], f"{lines[-1]}\n{_NO_NEWLINE}"]
    return lines[:-1]


_Opcode = tuple[str, int, int, int, int]


def _opcodes(old: list[str], new: list[str], budget: _Budget) -> list[_Opcode]:
    shorter = min(len(old), len(new))
    head = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    rest = shorter - head
    tail = next((at for at in range(rest) if old[-1 - at] != new[-1 - at]), rest)
    old_end, new_end = len(old) - tail, len(new) - tail
    codes: list[_Opcode] = [("equal", 0, head, 0, head)] if head else []
    if budget.allows((old_end - head) * (new_end - head)):
        matcher = difflib.SequenceMatcher(None, old[head:old_end], new[head:new_end])
        codes += [(tag, a + head, b + head, c + head, d + head) for tag, a, b, c, d in matcher.get_opcodes()]
    else:
        codes.append(("replace", head, old_end, head, new_end))
    if tail:
        codes.append(("equal", old_end, len(old), new_end, len(new)))
    return codes


class _Grouping(difflib.SequenceMatcher[str]):
    """Groups operations that are already known."""

    def __init__(self, codes: list[_Opcode]) -> None:
        super().__init__(None, [], [])
        self._codes = codes

    def get_opcodes(self) -> list[_Opcode]:  # type: ignore[override]
        return self._codes


def _hunks(old: list[str], new: list[str], budget: _Budget) -> Iterator[str]:
    for group in _Grouping(_opcodes(old, new, budget)).get_grouped_opcodes(_CONTEXT):
        _, first_old, _, first_new, _ = group[0]
        _, _, last_old, _, last_new = group[-1]
        yield f"@@ -{_range(first_old, last_old)} +{_range(first_new, last_new)} @@"
        for tag, a, b, c, d in group:
            if tag == "equal":
                yield from (f" {line}" for line in old[a:b])
            else:
                yield from (f"-{line}" for line in old[a:b])
                yield from (f"+{line}" for line in new[c:d])


def _range(start: int, stop: int) -> str:
    length = stop - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"
