"""The regrading of one trial: its record is taken over, its checks are asked again, and the verdict follows."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import anyio.to_thread

from whet.engine.grading import evidence_of, grade
from whet.engine.ground import SharedGround
from whet.engine.parts import Parts, trial_folder
from whet.engine.record import AttemptRecord
from whet.engine.trial import classified, result_of
from whet.errors import AttemptError
from whet.grade.recorded import RecordedEvidence
from whet.model.grade import Failure, FailureClass
from whet.model.run import Trial, TrialResult
from whet.model.session import SessionSummary
from whet.regrade.ground import lay_ground
from whet.regrade.record import Record
from whet.store.sealing import WORKSPACE_FILE
from whet.workspace import mask_files, remove_tree
from whet.workspace.copying import copy_tree
from whet.workspace.recording import read_folders

_BEGAN_AS_PACKAGE = "it began as a package, and is kept only where a trial does not go as expected"
# What the earlier checks left; what the checks leave now takes its place.
_OF_CHECKS = ("grades.json", "check.log", "explain.json", WORKSPACE_FILE)


@dataclass(slots=True)
class Regrading:
    """Brings trials to their results from a record; remembers each with what it was before."""

    record: Record
    seen: list[tuple[TrialResult, TrialResult]] = field(default_factory=list)
    _numbers: count[int] = field(default_factory=lambda: count(1))

    async def __call__(self, parts: Parts, shared: SharedGround, trial: Trial) -> TrialResult:
        """The result of one trial."""
        del shared
        old = self.record.result(trial.key)
        if old is None:
            return _never_ended(trial, self.record)
        await anyio.to_thread.run_sync(_take_over, self.record, old, parts.run_dir)
        session = self.record.session(old)
        if session is None:
            new = replace(old, key=trial.key)
        else:
            ground = parts.scratch / f"r{next(self._numbers)}"
            new = await _regraded(parts, trial, _Earlier(self.record, old, session), ground)
        self.seen.append((old, new))
        return new


@dataclass(frozen=True, slots=True)
class _Earlier:
    record: Record
    result: TrialResult
    session: SessionSummary

    @property
    def attempt(self) -> int:
        """The number of the attempt that decided."""
        return self.result.attempts[-1].number if self.result.attempts else 1


async def _regraded(parts: Parts, trial: Trial, earlier: _Earlier, ground: Path) -> TrialResult:
    old = earlier.result
    record = AttemptRecord(runner=trial.key.runner, number=earlier.attempt, artifact_dir=old.artifact_dir)
    record.started_at, record.duration_s = old.started_at, old.duration_s
    record.session, record.usage, record.steps = earlier.session, old.usage, old.steps
    record.detected_skills = old.detected_skills
    try:
        await _check(parts, trial, earlier, record, ground)
    except AttemptError as error:
        record.fail(parts, error)
    finally:
        await anyio.to_thread.run_sync(remove_tree, ground)
    new = await classified(parts, trial, result_of(trial, [record]))
    attempts = old.attempts[:-1] + tuple(
        replace(attempt, duration_s=old.attempts[-1].duration_s if old.attempts else attempt.duration_s)
        for attempt in new.attempts
    )
    return replace(new, attempts=attempts, changed_files=old.changed_files, notes=(*old.notes, *new.notes))


async def _check(parts: Parts, trial: Trial, earlier: _Earlier, record: AttemptRecord, ground: Path) -> None:
    """Ask the graders, check by check."""
    gaps, record.changes = await anyio.to_thread.run_sync(lay_ground, earlier.record, earlier.result, ground)
    if trial.execution.workspace.package is not None and earlier.result.workspace_dir is None:
        gaps = replace(gaps, workspace=_BEGAN_AS_PACKAGE)
    whole = await evidence_of(parts, trial, record, ground)
    folders = read_folders(whole.artifact_dir)
    known = {item.name: getattr(whole, item.name) for item in fields(whole)}
    evidence = RecordedEvidence(**known, gaps=gaps, folders=folders)
    try:
        await grade(parts, trial, record, evidence)
    except AttemptError as error:
        record.fail(parts, error)
    if not record.passed and gaps.workspace is None:
        record.workspace_dir = f"workspaces/{trial_folder(trial.key)}/{record.number}"
        record.notes += await anyio.to_thread.run_sync(_keep, parts, ground, parts.run_dir / record.workspace_dir)


def _take_over(record: Record, old: TrialResult, run_dir: Path) -> None:
    """Copy what was recorded of a trial, so that the new run folder stands on its own."""
    regraded = record.session(old) is not None
    _copy(record.run_dir, run_dir, f"trials/{trial_folder(old.key)}")
    for attempt in old.attempts:
        if attempt.workspace_dir and not (regraded and attempt is old.attempts[-1]):
            _copy(record.run_dir, run_dir, attempt.workspace_dir)
    if regraded:
        for name in _OF_CHECKS:
            (run_dir / old.artifact_dir / name).unlink(missing_ok=True)


def _copy(source: Path, destination: Path, folder: str) -> None:
    if (source / folder).is_dir():
        (destination / folder).mkdir(parents=True, exist_ok=True)
        copy_tree(source / folder, destination / folder, force=True)


def _keep(parts: Parts, ground: Path, destination: Path) -> list[str]:
    destination.mkdir(parents=True)
    copy_tree(ground, destination, force=True)
    return mask_files(parts.masker, destination) if parts.masker else []


def _never_ended(trial: Trial, record: Record) -> TrialResult:
    failure = Failure(
        phase="start",
        code="not-recorded",
        cause="infrastructure",
        message=f"{record.run_dir.name} was interrupted before this trial ended",
    )
    return TrialResult(
        key=trial.key,
        status="errored",
        score=None,
        duration_s=0.0,
        started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        artifact_dir=f"trials/{trial_folder(trial.key)}/1",
        failure=failure,
        failure_class=FailureClass(id="not-recorded", label="Not recorded"),
    )
