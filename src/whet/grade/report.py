"""Reading a session back from the record of a run."""

from __future__ import annotations

from pathlib import Path

from whet import wire
from whet.errors import StoreError
from whet.grade.events import EventLog
from whet.model.session import Session, SessionSummary

_FILE = "session.json"
_HINT = "name the folder of an attempt, such as trials/case/runner/default/1/1"


def load_report(path: str | Path) -> Session:
    """The session that a trial's folder, or its session.json, holds; its events are read when they are used."""
    folder = Path(path)
    file = folder / _FILE if folder.is_dir() else folder
    try:
        summary = wire.decode(file.read_bytes(), SessionSummary)
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror}; {_HINT}") from error
    except wire.WireError as error:
        raise StoreError(f"{file}: is no session: {error}; {_HINT}") from error
    return Session.of(summary, EventLog(events_path(file.parent)))


def events_path(folder: Path) -> Path | None:
    """Where the events of a session lie: as they were normalized, or as an agent of our own kind printed them."""
    names = (folder / name for name in ("events.jsonl", "transcript.jsonl"))
    return next((path for path in names if path.exists()), None)
