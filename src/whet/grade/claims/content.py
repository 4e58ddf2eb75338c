"""What a file contains: searched as bytes for a text, and as text for a pattern."""

from __future__ import annotations

from whet.claims.forms import Pattern
from whet.claims.patterns import compiled
from whet.grade.claims.outcome import Outcome, failed, passed, shortened, undecided
from whet.workspace.baseline import Found
from whet.workspace.tree import open_file

# More than this is searched piece by piece, which a pattern cannot be.
_LARGEST = 16 * 1024 * 1024
_CHUNK = 1024 * 1024


def contains(path: str, found: Found, text: str) -> Outcome:
    """Whether the file holds *text*, letter for letter."""
    if found.kind != "file" or found.real is None:
        return failed(f"{path} is not a file")
    needle = text.encode()
    line = _line_of(found.real, needle)
    if line is not None:
        return passed(f"{path} contains it", f"line {line}")
    start, whole = _beginning(found.real)
    return failed(f"{path} does not contain '{shortened(text)}'{_near(start, text) if whole else ''}", shortened(start))


def matches(path: str, found: Found, pattern: Pattern) -> Outcome:
    """Whether *pattern* is found anywhere in the file."""
    if found.kind != "file" or found.real is None:
        return failed(f"{path} is not a file")
    text, whole = _beginning(found.real)
    if not whole:
        return undecided(f"{path} has more than {_LARGEST // 1024 // 1024} MiB, too much to be searched for a pattern")
    match = compiled(pattern).find(text)
    if match is None:
        return failed(f"{path} does not match {pattern}", shortened(text))
    data = text.encode()
    where = match.range()
    line = data.count(b"\n", 0, where.start) + 1
    return passed(f"{path} matches", f"line {line}: {shortened(data[where].decode('utf-8', 'replace'))}")


def _line_of(file: str, needle: bytes) -> int | None:
    """The line where *needle* first begins; one piece of the file in memory at a time."""
    with open(open_file(file), "rb", buffering=0) as source:  # noqa: PTH123 - a descriptor, not a path
        lines, tail = 1, b""
        while part := source.read(_CHUNK):
            window = tail + part
            at = window.find(needle)
            if at >= 0:
                return lines + window.count(b"\n", 0, at)
            keep = min(len(window), len(needle) - 1)
            lines += window.count(b"\n", 0, len(window) - keep)
            tail = window[len(window) - keep :]
    return None


def _beginning(file: str) -> tuple[str, bool]:
    """The text of a file, as far as it is read, and whether that is all of it."""
    with open(open_file(file), "rb") as source:  # noqa: PTH123 - a descriptor, not a path
        data = source.read(_LARGEST + 1)
    return data[:_LARGEST].decode("utf-8", "replace"), len(data) <= _LARGEST


def _near(content: str, text: str) -> str:
    """What keeps a text from being found that a person would see there."""
    if text in content.replace("\r\n", "\n"):
        return "; it does if line ends are \\n instead of \\r\\n"
    if text.casefold() in content.casefold():
        return "; it does if letter case does not count"
    if " ".join(text.split()) in " ".join(content.split()):
        return "; it does if blank space does not count"
    return ""
