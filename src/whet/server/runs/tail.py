"""Following the journal of a run: each trial that ends becomes an event, once, also across restarts."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from whet.errors import DiskFailed
from whet.server.runs.folder import RunPlace
from whet.server.storage.database import Database
from whet.server.storage.events import NewEvent, add_events
from whet.store.folder import RUN_FILE

_TOGETHER = 500


class Tail:
    """Reads what the journal has gained since the last look; begins at its start, because telling twice is harmless."""

    def __init__(self, database: Database, run_id: str, place: RunPlace) -> None:
        self._database = database
        self._run_id = run_id
        self._place = place
        self._offset = 0
        self._planned = False

    def look(self) -> int:
        """Tell of trials that have ended since; how many were looked at, and 0 means all."""
        journal = self._place.journal
        if journal is None:
            return 0
        lines, offset = journal_lines(journal, self._offset, _TOGETHER)
        events = [] if self._planned else [_planned(journal.parent)]
        events += [_ended(line) for line in lines]
        if events:
            with self._database.writing() as connection:
                add_events(connection, self._run_id, events)
        # Only now: what could not be told is looked at again.
        self._offset, self._planned = offset, True
        return len(events)


def journal_lines(journal: Path, offset: int, most: int | None = None) -> tuple[list[bytes], int]:
    """The whole lines from *offset* on, at most so many, and where they end; a line being written is left alone."""
    lines: list[bytes] = []
    with journal.open("rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n") or len(lines) == most:
                break
            lines.append(line)
            offset += len(line)
    return lines, offset


def _planned(record: Path) -> NewEvent:
    facts = msgspec.json.decode((record / RUN_FILE).read_bytes())
    return NewEvent("planned", "run_planned", msgspec.json.encode({"trials": facts.get("trials")}))


def _ended(line: bytes) -> NewEvent:
    trial: dict[str, Any] = msgspec.json.decode(line)
    key, failure = trial["key"], trial.get("failure") or {}
    payload = {
        "case": key["case"],
        "runner": key["runner"],
        "variant": key["variant"],
        "trial": key["number"],
        "status": trial["status"],
        "score": trial.get("score"),
        "duration_s": trial.get("duration_s"),
        "failure": {"code": failure.get("code"), "message": failure.get("message")} if failure else None,
    }
    # A trial that a full disk stopped is done again, and told again.
    again = [trial.get("started_at")] if failure.get("code") == DiskFailed.code else []
    mark = hashlib.sha256(msgspec.json.encode([key, *again] if again else key)).hexdigest()
    return NewEvent(mark, "trial_ended", msgspec.json.encode(payload))
