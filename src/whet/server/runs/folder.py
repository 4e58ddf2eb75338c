"""Where a run of the service lies on disk: what goes into `whet run`, and the run folder that comes out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from whet.store.folder import JOURNAL_FILE, LATEST, RESULTS_FILE, RUN_FILE, write_atomically

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
        if not self.records.is_dir():
            return None
        found = (folder for folder in self.records.iterdir() if folder.name != LATEST and (folder / RUN_FILE).is_file())
        return min(found, default=None)

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
