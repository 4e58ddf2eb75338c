"""The folder of a run: what `whet run` reads and writes there, its files for callers, and events from its journal."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import msgspec

from whet.record.folder import JOURNAL_FILE, RESULTS_FILE, write_atomically
from whet.record.journal.chain import is_tried_again
from whet.record.read.run import journal_lines, run_folders
from whet.record.run_file import read_run_file
from whet.service.database import Database
from whet.service.store.runs import NewEvent, add_events

# The settings of the operator, and a file that is of no use to callers.
_PRIVATE = ("run.json", ".lock")
_MOST_PRINTED = 4000
_LINES_AT_ONCE = 500


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.suite = path / "suite.json"
        # What the process prints.
        self.log = path / "whet.log"
        self.report = path / "report.md"
        # The `--output-dir` of the process.
        self.records = path / "record"

    @classmethod
    def of(cls, data_dir: Path, run_id: str) -> Self:
        """Return the folder of the run with this id."""
        return cls(data_dir / "runs" / run_id)

    @property
    def texts(self) -> tuple[Path, ...]:
        """What whet prints and says itself, in which folders of the server may be named."""
        return (self.log,)

    @property
    def record(self) -> Path | None:
        """The record, once there is one that can be resumed."""
        return next(iter(run_folders(self.records)), None)

    @property
    def journal(self) -> Path | None:
        """The journal, once there is one."""
        return self._recorded(JOURNAL_FILE)

    @property
    def results(self) -> Path | None:
        """The results, once there are any."""
        return self._recorded(RESULTS_FILE)

    def _recorded(self, name: str) -> Path | None:
        record = self.record
        return record / name if record is not None and (record / name).is_file() else None

    def prepare(self, document: object) -> None:
        """Write the suite, unless it is there already."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.suite.exists():
            write_atomically(self.suite, msgspec.json.encode(document))

    def last_words(self) -> str:
        """Return the errors at the end of what the process printed, or its last lines."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _MOST_PRINTED))
                output = file.read(_MOST_PRINTED).decode(errors="replace")
        except OSError:
            return ""
        lines = [line for line in output.splitlines() if line.startswith(("error[", "  "))]
        return "\n".join(lines or output.splitlines()[-5:])

    def files(self) -> Iterator[tuple[str, int]]:
        """Yield the path, as callers call it, and the size of each file."""
        for path, file in self._named():
            # Callers cannot ask for a name that is not text.
            if path not in _PRIVATE and path.isprintable() and (size := file_size(file)) is not None:
                yield path, size

    def file(self, path: str) -> Path | None:
        """Return the file that callers call *path*; None if it is not a file, or a link leads out of the folder."""
        if "\0" in path or path in _PRIVATE or any(part in ("", ".", "..") for part in path.split("/")):
            return None
        root = self.path if path in (self.log.name, self.report.name) else self.record
        if root is None or file_size(root / path) is None:
            return None
        # A parent folder may be a link too: agents write into workspaces.
        return root / path if (root / path).resolve().is_relative_to(root.resolve()) else None

    def _named(self) -> Iterator[tuple[str, Path]]:
        for file in (self.log, self.report):
            yield file.name, file
        record = self.record
        if record is None:
            return
        for folder, _, names in os.walk(record):
            for name in names:
                file = Path(folder, name)
                yield str(file.relative_to(record)), file


def file_size(file: Path) -> int | None:
    """Return the size of a file; None if it is missing, not a regular file, or has an impossible name."""
    try:
        status = file.lstat()
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


class Tail:
    """Adds an event for each trial that the journal gains. It begins at the start: known events are not added again."""

    def __init__(self, database: Database, run_id: str, folder: RunFolder) -> None:
        self._database = database
        self._run_id = run_id
        self._folder = folder
        self._offset = 0
        self._planned = False

    def look(self) -> int:
        """Add events for what is new, and return how many; 0 means that there is nothing more for now."""
        journal = self._folder.journal
        if journal is None:
            return 0
        lines, offset = journal_lines(journal, self._offset, _LINES_AT_ONCE)
        events = [] if self._planned else [_planned(journal.parent)]
        events += [_trial_ended(line) for line in lines]
        if events:
            with self._database.writing() as connection:
                add_events(connection, self._run_id, events)
        # Only now, so that events that could not be added are tried again.
        self._offset, self._planned = offset, True
        return len(events)


def _planned(record: Path) -> NewEvent:
    return NewEvent("planned", "run_planned", msgspec.json.encode({"trials": read_run_file(record).trials}))


def _trial_ended(line: bytes) -> NewEvent:
    trial: dict[str, Any] = msgspec.json.decode(line)
    key, failure = trial["key"], trial.get("failure") or {}
    payload = {
        "case": key["case"],
        "runner": key["runner"],
        "arm": key["arm"],
        "trial": key["number"],
        "status": trial["status"],
        "score": trial.get("score"),
        "duration_s": trial.get("duration_s"),
        "failure": {"code": failure.get("code"), "message": failure.get("message")} if failure else None,
    }
    # A trial that was stopped is run again, and then it is another event.
    identity = [key, trial.get("started_at")] if is_tried_again(failure.get("code")) else key
    mark = hashlib.sha256(msgspec.json.encode(identity)).hexdigest()
    return NewEvent(mark, "trial_ended", msgspec.json.encode(payload))
