"""Notes of people on the trials of a run: a comment, and a verdict of their own.

They are in `notes.jsonl` in the run folder, one line for each note or removal. The record is not changed by them.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from msgspec import Struct

from whet.errors import StoreError, UsageError
from whet.model import wire
from whet.model.grade import PASSED, Rate, Status
from whet.reading.files import open_file
from whet.record.folder import PRIVATE, alone_in
from whet.record.rows import RowKey, file_problem

NOTES_FILE = "notes.jsonl"
Verdict = Literal["passed", "failed"]
LONGEST_NOTE, LONGEST_NAME = 20_000, 200
_MOST_BYTES = 64 * 1024 * 1024
_MOST_NOTES = 100_000


class Note(Struct, frozen=True, kw_only=True):
    """What a person says of a trial."""

    id: str
    at: str
    by: str | None
    text: str
    verdict: Verdict | None


class _Line(Struct, kw_only=True):
    key: RowKey
    note: Note | None = None
    removed: str | None = None


Notes = dict[RowKey, tuple[Note, ...]]


def new_note(text: str, verdict: Verdict | None, by: str | None) -> Note:
    """Return a note of this moment; refuses one that says nothing or too much."""
    if not text.strip() and verdict is None:
        raise UsageError("a note needs a text or a verdict")
    if len(text) > LONGEST_NOTE or len(by or "") > LONGEST_NAME:
        raise UsageError(f"a note has at most {LONGEST_NOTE:,} characters, and a name {LONGEST_NAME}")
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    return Note(id=secrets.token_hex(8), at=at, by=by or None, text=text, verdict=verdict)


def read_notes(run_dir: Path) -> Notes:
    """Return the notes of each trial, oldest first; raises `StoreError` if they cannot be read."""
    path = run_dir / NOTES_FILE
    if problem := file_problem(path, _MOST_BYTES):
        raise StoreError(problem)
    try:
        found: dict[RowKey, dict[str, Note]] = {}
        with open_file(path) as file:
            for number, raw in enumerate(file, start=1):
                if not raw.endswith(b"\n"):
                    # A line that a crash cut off.
                    break
                _take(found, _read(raw, path, number))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    return {key: tuple(notes.values()) for key, notes in found.items() if notes}


def _read(raw: bytes, path: Path, number: int) -> _Line:
    try:
        return wire.decode(raw, _Line)
    except wire.WireError as error:
        raise StoreError(f"{path}: line {number} is not a note: {error.message}") from error


def _take(found: dict[RowKey, dict[str, Note]], line: _Line) -> None:
    own = found.setdefault(line.key, {})
    if line.note is not None:
        own[line.note.id] = line.note
    if line.removed is not None:
        own.pop(line.removed, None)


def add_note(run_dir: Path, key: RowKey, note: Note) -> None:
    """Keep *note* on a trial."""
    if sum(map(len, read_notes(run_dir).values())) >= _MOST_NOTES:
        raise UsageError(f"{run_dir.name} has {_MOST_NOTES:,} notes, which is the most that a run may have")
    _append(run_dir, _Line(key=key, note=note))


def remove_note(run_dir: Path, key: RowKey, note_id: str) -> bool:
    """Remove a note, and return whether there was one."""
    if not any(note.id == note_id for note in read_notes(run_dir).get(key, ())):
        return False
    _append(run_dir, _Line(key=key, removed=note_id))
    return True


def _append(run_dir: Path, line: _Line) -> None:
    """Add a line in one write, after a line that a crash cut off was ended; two people may write at once."""
    path = run_dir / NOTES_FILE
    try:
        with alone_in(run_dir):
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(path, flags, PRIVATE)
            try:
                _drop_half_a_line(descriptor)
                os.write(descriptor, wire.encode(line) + b"\n")
            finally:
                os.close(descriptor)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error


def _drop_half_a_line(descriptor: int) -> None:
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        whole = os.pread(descriptor, size, 0).rfind(b"\n") + 1
        os.ftruncate(descriptor, whole)


def agreement(notes: Notes, statuses: Mapping[RowKey, Status]) -> Rate | None:
    """Return how often the last verdict of people is that of whet; errored trials have none."""
    from whet.grade.scores import wilson  # noqa: PLC0415 - few runs have notes

    judged = [
        (given, statuses[key] in PASSED)
        for key, own in notes.items()
        if (given := last_verdict(own)) and statuses.get(key, "errored") != "errored"
    ]
    agreed = sum((verdict == "passed") == passed for verdict, passed in judged)
    return wilson(agreed, len(judged)) if judged else None


def last_verdict(notes: Iterable[Note]) -> Verdict | None:
    """Return the newest verdict of people on a trial."""
    given = [note.verdict for note in notes if note.verdict is not None]
    return given[-1] if given else None
