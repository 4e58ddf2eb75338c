"""Decide claims about paths by looking at the workspace."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Literal

from msgspec import Struct

from whet.reading.claims.forms import Absent, Changed, Contains, Created, Exists, Matches, PathClaim
from whet.reading.patterns import Pattern, compiled
from whet.workspace.protected import Before, PathState, digest_of, find
from whet.workspace.walk import open_file

_SHOWN = 300


class Outcome(Struct, frozen=True, kw_only=True):
    """Whether the claim holds, the reason, and what was seen; `undecided` if that cannot be known."""

    state: Literal["passed", "failed", "undecided"]
    reason: str
    evidence: str | None = None


def passed(reason: str, evidence: str | None = None) -> Outcome:
    """Return that a claim holds."""
    return Outcome(state="passed", reason=reason, evidence=evidence)


def failed(reason: str, evidence: str | None = None) -> Outcome:
    """Return that a claim does not hold."""
    return Outcome(state="failed", reason=reason, evidence=evidence)


def undecided(reason: str, evidence: str | None = None) -> Outcome:
    """Return that a claim cannot be decided, and that the agent is not the reason."""
    return Outcome(state="undecided", reason=reason, evidence=evidence)


def abbreviate(text: str, most: int = _SHOWN) -> str:
    """Return the beginning of *text*."""
    return text if len(text) <= most else f"{text[:most]} ... ({len(text):,} characters)"


# More than this is searched piece by piece, which a pattern cannot be.
_LARGEST = 16 * 1024 * 1024
# A hole of any size takes no disk, and hours to be read.
_LARGEST_SEARCHED = 1024 * 1024 * 1024
_CHUNK = 1024 * 1024


def contains(path: str, entry: PathState, text: str) -> Outcome:
    """Return whether the file contains *text* exactly."""
    if entry.kind != "file" or entry.real is None:
        return failed(f"{path} is not a file")
    with open_file(entry.real) as source:
        size = os.fstat(source.fileno()).st_size
    if size > _LARGEST_SEARCHED:
        return undecided(f"{path} has more than {_LARGEST_SEARCHED // 1024**3} GiB, too much to be searched")
    needle = text.encode()
    line = _line_of(entry.real, needle)
    if line is not None:
        return passed(f"{path} contains it", f"line {line}")
    start, is_complete = _beginning(entry.real)
    return failed(
        f"{path} does not contain '{abbreviate(text)}'{_near(start, text) if is_complete else ''}", abbreviate(start)
    )


def matches(path: str, entry: PathState, pattern: Pattern) -> Outcome:
    """Return whether *pattern* matches anywhere in the file."""
    if entry.kind != "file" or entry.real is None:
        return failed(f"{path} is not a file")
    text, is_complete = _beginning(entry.real)
    if not is_complete:
        return undecided(f"{path} has more than {_LARGEST // 1024 // 1024} MiB, too much to be searched for a pattern")
    match = compiled(pattern).find(text)
    if match is None:
        return failed(f"{path} does not match {pattern}", abbreviate(text))
    data = text.encode()
    where = match.range()
    line = data.count(b"\n", 0, where.start) + 1
    return passed(f"{path} matches", f"line {line}: {abbreviate(data[where].decode('utf-8', 'replace'))}")


def _line_of(file: str, needle: bytes) -> int | None:
    """Return the line where *needle* first begins; only one piece of the file is in memory at a time."""
    with open_file(file) as source:
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
    """Return the beginning of a file, and whether that is all of it."""
    with io.BufferedReader(open_file(file)) as source:
        data = source.read(_LARGEST + 1)
    return data[:_LARGEST].decode("utf-8", "replace"), len(data) <= _LARGEST


def _near(content: str, text: str) -> str:
    """Say what keeps *text* from being found, if a person would see it there."""
    if text in content.replace("\r\n", "\n"):
        return "; it does if line ends are \\n instead of \\r\\n"
    if text.casefold() in content.casefold():
        return "; it does if letter case does not count"
    if " ".join(text.split()) in " ".join(content.split()):
        return "; it does if blank space does not count"
    return ""


_NOUNS = {"file": "a file", "folder": "a folder", "other": "neither a file nor a folder"}


def decide(claim: PathClaim, workspace: Path, before: Before) -> Outcome:
    """Return whether *claim* holds of the workspace now, given what was there before."""
    try:
        return _decide(claim, workspace, before)
    except OSError as error:
        return undecided(f"{claim.path} cannot be looked at: {error.strerror or error}")


def _decide(claim: PathClaim, workspace: Path, before: Before) -> Outcome:
    if isinstance(claim, Absent):
        return _absent(claim.path, workspace, before)
    entry = find(workspace, claim.path.rstrip("/"))
    problem = _problem(claim.path, entry)
    if problem is None:
        return _decide_existing(claim, entry, before)
    if isinstance(claim, Changed) and before.kind in ("file", "folder", "other"):
        problem = f"{claim.path} was deleted; to ask for that, use no-file:{claim.path}"
    return failed(problem)


def _decide_existing(
    claim: Exists | Created | Contains | Matches | Changed, entry: PathState, before: Before
) -> Outcome:
    """Decide a claim about a path that exists."""
    match claim:
        case Exists(path):
            evidence = None if before.kind == "absent" else "it existed before the agent started"
            return passed(f"{path} is {_NOUNS[entry.kind]}", evidence)
        case Created(path):
            return passed(f"{path} was created") if before.kind == "absent" else failed(f"{path} was there before")
        case Contains(path, text):
            return contains(path, entry, text)
        case Matches(path, pattern):
            return matches(path, entry, pattern)
        case Changed(path):
            return _decide_change(path, entry, before)


def _problem(path: str, entry: PathState) -> str | None:
    """Return why nothing can be said about *path*, if so."""
    if entry.kind == "outside":
        return f"{path} is a link that leads out of the workspace"
    if entry.kind == "absent":
        return f"{path} is a link to nothing" if entry.linked else f"{path} was not found"
    if path.endswith("/") and entry.kind != "folder":
        return f"{path} is not a folder"
    return None


def _absent(path: str, workspace: Path, before: Before) -> Outcome:
    """Return whether nothing is there, not even a link to nothing."""
    if os.path.lexists(workspace / path.rstrip("/")):
        return failed(f"{path} exists")
    was_there = before.kind != "absent"
    return passed(f"{path} does not exist", None if was_there else "it did not exist before the agent started either")


def _decide_change(path: str, entry: PathState, before: Before) -> Outcome:
    if before.kind == "absent":
        return passed(f"{path} was created")
    if before.changed is not None:
        differs = before.changed
    else:
        differs = before.kind != entry.kind or digest_of(entry) != before.digest
    return passed(f"{path} was changed") if differs else failed(f"{path} has the same content as before")
