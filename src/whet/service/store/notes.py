"""Notes of people on the trials of runs, in the database."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Connection, delete, func, insert, select

from whet.record.notes import Note, Notes
from whet.record.read.rows import RowKey
from whet.service.database import notes, now_us
from whet.service.errors import Refused, not_found

# More than people write by hand.
_MOST_NOTES = 10_000


def notes_of(connection: Connection, run_id: str) -> Notes:
    """Return the notes on the trials of a run, oldest first."""
    notes_by_trial: dict[RowKey, tuple[Note, ...]] = {}
    for row in connection.execute(select(notes).where(notes.c.run_id == run_id).order_by(notes.c.created_us)):
        key = msgspec.json.decode(row.trial, type=RowKey)
        notes_by_trial[key] = (*notes_by_trial.get(key, ()), _note(row))
    return notes_by_trial


def _note(row: Any) -> Note:
    by = None if row.author is None else row.author.decode()
    return Note(id=row.id, at=row.at, by=by, text=row.text.decode(), verdict=row.verdict)


def add_note(connection: Connection, run_id: str, key: RowKey, note: Note) -> None:
    """Keep *note* on a trial of a run."""
    count = connection.execute(select(func.count()).where(notes.c.run_id == run_id)).scalar_one()
    if count >= _MOST_NOTES:
        raise Refused(409, f"the run has {_MOST_NOTES} notes, which is the most that a run may have")
    connection.execute(
        insert(notes).values(
            id=note.id,
            run_id=run_id,
            trial=msgspec.json.encode(key),
            # Bytes, because PostgreSQL takes no text with a zero in it.
            author=None if note.by is None else note.by.encode(errors="replace"),
            text=note.text.encode(errors="replace"),
            verdict=note.verdict,
            at=note.at,
            created_us=now_us(),
        )
    )


def remove_note(connection: Connection, run_id: str, key: RowKey, note_id: str) -> None:
    """Remove a note; refuses one that is not there."""
    result = connection.execute(
        delete(notes).where(notes.c.run_id == run_id, notes.c.id == note_id, notes.c.trial == msgspec.json.encode(key))
    )
    if result.rowcount != 1:
        raise not_found("note")
