"""Notes of people on the trials of a run: a comment, and a verdict of their own.

Notes are in `notes.jsonl` in the run folder, one line for each note or removal. The record is not changed by them.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from msgspec import Struct

from whet.decide.scores import wilson
from whet.errors import StoreError, UsageError
from whet.model import codec
from whet.model.grade import PASSED, Rate, Status
from whet.reading.files import open_file
from whet.record.folder import PRIVATE, alone_in
from whet.record.read.rows import RowKey, file_problem

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


class _NoteLine(Struct, kw_only=True):
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
        notes_by_key: dict[RowKey, dict[str, Note]] = {}
        with open_file(path) as file:
            for number, raw in enumerate(file, start=1):
                if not raw.endswith(b"\n"):
                    # A line that a crash cut off.
                    break
                _take(notes_by_key, _read(raw, path, number))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    return {key: tuple(notes.values()) for key, notes in notes_by_key.items() if notes}


def _read(raw: bytes, path: Path, number: int) -> _NoteLine:
    try:
        return codec.decode(raw, _NoteLine)
    except codec.WireError as error:
        raise StoreError(f"{path}: line {number} is not a note: {error.message}") from error


def _take(notes_by_key: dict[RowKey, dict[str, Note]], line: _NoteLine) -> None:
    notes = notes_by_key.setdefault(line.key, {})
    if line.note is not None:
        notes[line.note.id] = line.note
    if line.removed is not None:
        notes.pop(line.removed, None)


def add_note(run_dir: Path, key: RowKey, note: Note) -> None:
    """Keep *note* on a trial."""
    if sum(map(len, read_notes(run_dir).values())) >= _MOST_NOTES:
        raise UsageError(f"{run_dir.name} has {_MOST_NOTES:,} notes, which is the most that a run may have")
    _append(run_dir, _NoteLine(key=key, note=note))


def remove_note(run_dir: Path, key: RowKey, note_id: str) -> bool:
    """Remove a note, and return whether there was one."""
    if not any(note.id == note_id for note in read_notes(run_dir).get(key, ())):
        return False
    _append(run_dir, _NoteLine(key=key, removed=note_id))
    return True


def _append(run_dir: Path, line: _NoteLine) -> None:
    """Add a line in one write, after a line that a crash cut off was ended; two people may write at once."""
    path = run_dir / NOTES_FILE
    try:
        with alone_in(run_dir):
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(path, flags, PRIVATE)
            try:
                _drop_half_a_line(descriptor)
                os.write(descriptor, codec.encode(line) + b"\n")
            finally:
                os.close(descriptor)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error


def _drop_half_a_line(descriptor: int) -> None:
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        end = os.pread(descriptor, size, 0).rfind(b"\n") + 1
        os.ftruncate(descriptor, end)


def agreement(notes: Notes, statuses: Mapping[RowKey, Status]) -> Rate | None:
    """Return how often the last verdict of people is that of whet; errored trials have none."""
    total = hits = 0
    for key, trial_notes in notes.items():
        verdict = last_verdict(trial_notes)
        status = statuses.get(key, "errored")
        if verdict is None or status == "errored":
            continue
        total += 1
        hits += (verdict == "passed") == (status in PASSED)
    return wilson(hits, total) if total else None


def last_verdict(notes: Iterable[Note]) -> Verdict | None:
    """Return the newest verdict of people on a trial."""
    verdicts = [note.verdict for note in notes if note.verdict is not None]
    return verdicts[-1] if verdicts else None
