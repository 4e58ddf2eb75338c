"""What changed, as a unified diff that stays readable and bounded whatever the agent wrote."""

from __future__ import annotations

import difflib
import json
import stat
from collections.abc import Callable, Iterable, Iterator

from whet.dataclass import dataclass
from whet.ground.tree import Tree
from whet.ground.workspace import Differences, Inventory, Version
from whet.model.grade import Changes
from whet.reading.text import escape_surrogates

MAX_FILE_BYTES = 256 * 1024
MAX_DIFF_CHARACTERS = 1024 * 1024

# difflib compares each line with each: beyond so many pairs, old lines are all taken away and new ones all added.
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


@dataclass(frozen=True, slots=True)
class Pair:
    """A path that changed, as it was and as it is."""

    path: str
    old: Version | None
    new: Version | None


def unified(pairs: Iterable[Pair]) -> str:
    """The diff of all *pairs*; what is left out says so in a line."""
    budget = _Budget(_MAX_PAIRS_TOGETHER)
    parts: list[str] = []
    room = MAX_DIFF_CHARACTERS
    hidden = 0
    for pair in pairs:
        part = "" if hidden else "".join(f"{line}\n" for line in _shown(pair, budget))
        if hidden or len(part) > room:
            hidden += 1
            continue
        room -= len(part)
        parts.append(part)
    if hidden:
        parts.append(f"{hidden} more changed {'file is' if hidden == 1 else 'files are'} not shown\n")
    return "".join(parts)


@dataclass(slots=True)
class _Budget:
    pairs: int

    def allows(self, pairs: int) -> bool:
        if pairs > min(_MAX_PAIRS, self.pairs):
            return False
        self.pairs -= pairs
        return True


def _shown(pair: Pair, budget: _Budget) -> Iterator[str]:
    name = _quoted(pair.path)
    if pair.old and pair.new:
        yield from _mode_line(name, pair.old, pair.new)
    for note in (_note(name, version, pair) for version in (pair.old, pair.new) if version):
        if note:
            yield note
            return
    try:
        old, new = (_content(pair.path, version) for version in (pair.old, pair.new))
    except OSError as error:
        yield f"File {name} is not shown: {error.strerror or error}"
        return
    if isinstance(old, bytes) or isinstance(new, bytes):
        yield f"Binary file {name} differs"
    elif old != new:
        yield f"--- a/{name}" if pair.old else "--- /dev/null"
        yield f"+++ b/{name}" if pair.new else "+++ /dev/null"
        yield from _hunks(_lines(old), _lines(new), budget)
    elif not (pair.old and pair.new):
        yield f"{'Deleted' if pair.old else 'Created'} empty file {name}"


def _mode_line(name: str, old: Version, new: Version) -> Iterator[str]:
    if stat.S_IFMT(old.entry.mode) != stat.S_IFMT(new.entry.mode):
        yield f"File {name} is {_kind(new.entry.mode)}, was {_kind(old.entry.mode)}"
        return
    before, after = stat.S_IMODE(old.entry.mode), stat.S_IMODE(new.entry.mode)
    if before != after and not stat.S_ISLNK(new.entry.mode):
        yield f"File {name} has mode {after:o}, was {before:o}"


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "something unusual")


def _note(name: str, version: Version, pair: Pair) -> str | None:
    """Why a version has no text to show, if so."""
    verb = "Modified" if pair.old and pair.new else "Created" if pair.new else "Deleted"
    if version.tree is None:
        return f"{verb} file {name} is not shown: the old content of a shared workspace is not kept"
    mode = version.entry.mode
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        tense = "is" if version is pair.new else "was"
        return f"{verb} file {name} {tense} {_kind(mode)}"
    if stat.S_ISREG(mode) and version.entry.size > MAX_FILE_BYTES:
        return f"{verb} file {name} is not shown: it has {version.entry.size:,} bytes"
    return None


def _content(path: str, version: Version | None) -> str | bytes:
    """The text of a version, or its bytes where they are no text."""
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
    """The path on one line, whatever is in its name."""
    shown = escape_surrogates(path)
    if any(ord(character) < _FIRST_PRINTABLE or ord(character) == _DELETE for character in shown):
        return json.dumps(shown, ensure_ascii=False)
    return shown


def _lines(text: str) -> list[str]:
    """Lines without their newlines; a last one without a newline carries the remark that unified diffs have for it."""
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


class _Ready(difflib.SequenceMatcher[str]):
    """Groups operations that are known already."""

    def __init__(self, codes: list[_Opcode]) -> None:
        super().__init__(None, [], [])
        self._codes = codes

    def get_opcodes(self) -> list[_Opcode]:  # type: ignore[override]
        return self._codes


def _hunks(old: list[str], new: list[str], budget: _Budget) -> Iterator[str]:
    for group in _Ready(_opcodes(old, new, budget)).get_grouped_opcodes(_CONTEXT):
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


def told(
    found: Differences, old: Inventory, new: Inventory, *, before: Callable[[str], Tree | None], after: Tree
) -> Changes:
    """The changes for what was *found*; *before* gives the tree that has the old content of a path."""
    if not found and not new.unread:
        return Changes()

    def pair(path: str) -> Pair:
        was, now = old.files.get(path), new.files.get(path)
        return Pair(
            path,
            old=None if was is None else Version(was, before(path)),
            new=None if now is None else Version(now, after),
        )

    paths = sorted((*found.created, *found.modified, *found.deleted))
    unread = "".join(f"Folder {path!r} may not be looked into\n" for path in _escaped(new.unread))
    return Changes(
        created=_escaped(found.created),
        modified=_escaped(found.modified),
        deleted=_escaped(found.deleted),
        diff=unified(map(pair, paths)) + unread,
    )


def _escaped(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(map(escape_surrogates, paths)))
