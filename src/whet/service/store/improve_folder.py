"""The folder of an improve run: what `whet improve` reads and writes there, and events from its record."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from sqlalchemy import Connection

from whet.improve.apply import apply_version
from whet.model import codec
from whet.packages.settings import PackageLimits
from whet.plan.skill import unpacked_skill
from whet.record.folder import write_atomically
from whet.record.improve.document import FILE, PATCH, REPORT_HTML, REPORT_MD, ImproveDocument, Phase
from whet.record.improve.folder import IMPROVE_RUNS, ImproveFolder, improve_folders
from whet.service.database import Database
from whet.service.pack import pack_skill
from whet.service.store.improve_runs import ImprovePhase, enter_phase, keep_split
from whet.service.store.run_folder import RunFolder, file_size
from whet.service.store.runs import NewEvent, add_events
from whet.suites.split.lock import NAME as LOCK
from whet.suites.split.lock import SplitLock
from whet.workspace.make import MANIFEST

# Where `whet improve` keeps its records, from the folder that it starts in: beside the folder of runs.
_RUNS = Path(".whet", "runs")
_RECORDS = _RUNS.with_name(IMPROVE_RUNS)
_SKILL = "skill"
# The words of SelfTune for our phases.
_PHASES: dict[Phase, ImprovePhase] = {
    "ready": "validate",
    "split": "classify",
    "eval_current": "eval_current",
    "generating": "generating",
    "linting": "generating",
    "racing": "eval_candidates",
    "confirming": "confirm",
    "sealed": "confirm",
    "done": "persist",
}
_OF_ROUNDS: tuple[Phase, ...] = ("generating", "linting", "racing", "confirming")


class ImproveRunFolder(RunFolder):
    """The folder of one improve run; its record is that of `whet improve`, with whole runs in it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.lock = path / LOCK
        # The `--output-dir` of the process.
        self.runs_dir = _RUNS

    @property
    def record(self) -> Path | None:
        """The record, once there is one that can be resumed."""
        return next((folder.path for folder in improve_folders(self.path / _RECORDS)), None)

    @property
    def texts(self) -> tuple[Path, ...]:
        """What whet says itself, in which folders of the server may be named."""
        record = self.record
        reports = () if record is None else (record / REPORT_MD, record / REPORT_HTML)
        return (self.log, *reports)

    @property
    def document(self) -> ImproveDocument | None:
        """What the record says now; None while there is none."""
        record = self.record
        if record is None:
            return None
        return codec.decode_file(record / FILE, ImproveDocument)

    def shown(self, without_places: Callable[[str], str]) -> bytes | None:
        """Return what the record says as callers may read it; None while there is none."""
        record = self.record
        if record is None:
            return None
        return without_places((record / FILE).read_text("utf-8")).encode()

    def prepare_split(self, stored: bytes | None, suite_name: str) -> None:
        """Write the lock of the split that earlier improve runs of the suite have drawn, unless one is there."""
        if stored is None or self.lock.exists():
            return
        # The suite may have another name by now. It is the same: here suites are known by their ids.
        lock = msgspec.structs.replace(codec.decode(stored, SplitLock), suite=suite_name, file=self.suite.name)
        write_atomically(self.lock, codec.encode_pretty(lock))

    def unpack_skill(self, archive: Path, limits: PackageLimits) -> Path:
        """Return the folder of the skill in *archive*, which was checked when it came."""
        return unpacked_skill(archive, self.path / _SKILL, limits)

    @property
    def archive(self) -> Path | None:
        """The archive of the skill, once it was fetched."""
        return next(iter(self.path.glob(f"{_SKILL}.*")), None)

    @property
    def skill(self) -> Path | None:
        """The skill that is to be improved, once it is unpacked."""
        return next((file.parent for file in self.path.glob(f"{_SKILL}/*/*/{MANIFEST}")), None)

    def candidate(self, candidate_id: str) -> Path | None:
        """Return the folder of the skill of a candidate, without what agents are not given."""
        record = self.record
        place = ImproveFolder(record).candidate(candidate_id) if record is not None else None
        return place if place is not None and place.is_dir() and place.resolve().is_relative_to(self.path) else None

    def draft(self, candidate_id: str) -> bytes | None:
        """Return an archive of the skill with the changes of a candidate; None if the files are gone."""
        record, skill, candidate = self.record, self.skill, self.candidate(candidate_id)
        if record is None or skill is None or candidate is None:
            return None
        (first,) = ImproveFolder(record).start(1).iterdir()
        with TemporaryDirectory(prefix=".draft-", dir=self.path) as place:
            # Its suites and settings are no part of a candidate, and stay.
            copy = Path(place, skill.name)
            shutil.copytree(skill, copy, symlinks=True)
            apply_version(copy, first, candidate)
            return pack_skill(copy, skill.name)

    def _named(self) -> Iterator[tuple[str, Path]]:
        """Yield what callers may have: the settings of the operator are in the records of runs."""
        record = self.record
        for file in (self.log, self.lock):
            yield file.name, file
        if record is None:
            return
        for name in (REPORT_MD, REPORT_HTML, PATCH):
            yield name, record / name
        for file in sorted(record.glob("candidates/*/skill/**/*")):
            yield str(file.relative_to(record)), file

    def file(self, path: str) -> Path | None:
        """Return the file that callers call *path*; None if it is not a file, or a link leads out of the folder."""
        file = dict(self._named()).get(path)
        if file is None or file_size(file) is None:
            return None
        return file if file.resolve().is_relative_to(self.path.resolve()) else None


class ImproveTail:
    """Adds an event for each phase and each candidate, and keeps the split as soon as it is drawn."""

    def __init__(self, database: Database, run_id: str, suite_id: str, folder: ImproveRunFolder) -> None:
        self._database = database
        self._run_id = run_id
        self._suite_id = suite_id
        self._folder = folder
        # None before the first look.
        self._seen: tuple[object, object] | None = None

    def look(self) -> int:
        """Add what is new, and return how many events that is; 0 means that there is nothing more for now."""
        record = self._folder.record
        seen = _stamp(record / FILE if record is not None else None), _stamp(self._folder.lock)
        if seen == self._seen:
            return 0
        with self._database.writing() as connection:
            added = self._add(connection)
        # Only now, so that what could not be stored is tried again.
        self._seen = seen
        return added

    def _add(self, connection: Connection) -> int:
        keep_lock(connection, self._suite_id, self._folder)
        events = [phase_event("materialize", 0)]
        phase: ImprovePhase = "materialize"
        improvement = self._folder.document
        if improvement is not None:
            events += news_of(improvement)
            phase = _PHASES[improvement.phase] if improvement.phase is not None else "persist"
        enter_phase(connection, self._run_id, phase)
        return add_events(connection, self._run_id, events)


def _stamp(file: Path | None) -> object:
    """Return what is another value after a file was written anew; None if it is missing."""
    try:
        status = file.stat() if file is not None else None
    except FileNotFoundError:
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size) if status is not None else None


def keep_lock(connection: Connection, suite_id: str, folder: ImproveRunFolder) -> None:
    """Keep the lock of the split that is in *folder*, if it is there, for later improve runs of the suite."""
    if folder.lock.exists():
        keep_split(connection, suite_id, folder.lock.read_bytes())


def phase_event(phase: ImprovePhase, round_number: int) -> NewEvent:
    """Return the event that a phase begins; those of no round have the number 0."""
    payload = {"round": round_number} if round_number else {}
    return NewEvent(
        f"phase:{round_number}:{phase}",
        "phase_changed",
        msgspec.json.encode({"status": "running", "phase": phase, "payload": payload}),
    )


def news_of(improvement: ImproveDocument) -> list[NewEvent]:
    """Return the events that a record tells of, in order: phases that were done, candidates, and the phase now."""
    events = []
    last_round = 0
    for step in improvement.steps:
        last_round = max(last_round, step.round or 0)
        events.append(phase_event(_PHASES[step.phase], step.round or 0))
        if step.phase == "generating":
            events += _candidate_events(improvement, step.round or 0)
    if improvement.phase is not None:
        events.append(phase_event(_PHASES[improvement.phase], _round_now(improvement, last_round)))
    return events


def _round_now(improvement: ImproveDocument, last_round: int) -> int:
    """Return the round of the phase that is under way; 0 if it is of none."""
    if improvement.phase not in _OF_ROUNDS:
        return 0
    done = [step.phase for step in improvement.steps if step.round == last_round and step.phase in _OF_ROUNDS]
    position = _OF_ROUNDS.index(improvement.phase)
    # A phase is still the current one when its step is there, until the next one begins.
    is_next = not done or _OF_ROUNDS.index(done[-1]) > position
    return last_round + is_next


def _candidate_events(improvement: ImproveDocument, round_number: int) -> list[NewEvent]:
    return [
        NewEvent(
            f"candidate:{round_.number}:{candidate.id}",
            "candidate_persisted",
            msgspec.json.encode(
                {
                    "candidate_id": candidate.id,
                    "payload": {
                        "round": round_.number,
                        "is_dud": candidate.fate == "dud",
                        "token_growth": candidate.token_growth,
                    },
                }
            ),
        )
        for round_ in improvement.rounds
        if round_.number == round_number
        for candidate in round_.candidates
    ]
