"""Following the journal of a run: each trial that ends becomes an event, once, also across restarts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from whet.errors import DiskFailed
from whet.record.folder import JOURNAL_FILE, RESULTS_FILE, write_atomically
from whet.record.recorded_run import journal_lines, run_folders
from whet.record.run_file import read_run_file
from whet.service.database import Database
from whet.service.stored_runs import NewEvent, add_events

_SUITE = "suite.json"
_LOG = "whet.log"
_REPORT = "report.md"
_RECORDS = "record"
_MOST_SAID = 4000


@dataclass(frozen=True, slots=True)
class RunPlace:
    """The folder of one run."""

    path: Path

    @property
    def suite(self) -> Path:
        """The document that is run."""
        return self.path / _SUITE

    @property
    def log(self) -> Path:
        """What the process printed."""
        return self.path / _LOG

    @property
    def report(self) -> Path:
        """The summary for people."""
        return self.path / _REPORT

    @property
    def records(self) -> Path:
        """Where `whet run` makes its run folder."""
        return self.path / _RECORDS

    @property
    def record(self) -> Path | None:
        """The run folder, once there is one that can be gone on with."""
        return next(iter(run_folders(self.records)), None)

    @property
    def journal(self) -> Path | None:
        """The journal, once there is one."""
        record = self.record
        path = record / JOURNAL_FILE if record is not None else None
        return path if path is not None and path.is_file() else None

    @property
    def results(self) -> Path | None:
        """The results, once there are any."""
        record = self.record
        path = record / RESULTS_FILE if record is not None else None
        return path if path is not None and path.is_file() else None

    def prepare(self, document: object) -> None:
        """Lay out what the process reads; a second time, what is there stays."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.suite.exists():
            write_atomically(self.suite, msgspec.json.encode(document))

    def last_words(self) -> str:
        """The end of what the process printed, for whoever wonders why there is nothing else."""
        try:
            said = self.log.read_bytes()[-_MOST_SAID:].decode(errors="replace")
        except OSError:
            return ""
        lines = [line for line in said.splitlines() if line.startswith(("error[", "  "))]
        return "\n".join(lines or said.splitlines()[-5:])


def place_of(data_dir: Path, run_id: str) -> RunPlace:
    """The folder of the run with this id."""
    return RunPlace(data_dir / "runs" / run_id)


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


def _planned(record: Path) -> NewEvent:
    return NewEvent("planned", "run_planned", msgspec.json.encode({"trials": read_run_file(record).trials}))


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
