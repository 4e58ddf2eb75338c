"""One attempt: prepare the ground, run the agent, see what it changed, grade, keep, clean up."""

from __future__ import annotations

import os
from functools import partial

import anyio
import anyio.to_thread

from whet.errors import AttemptError, ModelRejected, Vacuous, WorkspaceError, WorkspaceSpoiled
from whet.grade.evidence import QUESTIONS_FILE
from whet.ground.changes import note_folders, record_changes
from whet.ground.tree import SHORTAGES
from whet.model.run import Trial
from whet.run.agent_session import run_agent
from whet.run.attempt_record import AttemptRecord, recording
from whet.run.ending import refuse_contaminated
from whet.run.grading import evidence_of, grade, grade_for_information, survey
from whet.run.ground import Ground, changes_of, clean_up, keep_workspace, prepare_ground
from whet.run.parts import RunParts
from whet.run.session_state import keep_state


async def run_attempt(parts: RunParts, trial: Trial, number: int) -> AttemptRecord:
    """Make one attempt; every failure of it is data in the record."""
    with recording(parts, trial, number) as record:
        _refuse_rejected(parts, trial)
        artifact_dir = parts.run_dir / record.artifact_dir
        os.makedirs(artifact_dir, exist_ok=True)  # noqa: PTH103 - twice as fast as Path.mkdir
        ground = await prepare_ground(parts, trial, artifact_dir)
        try:
            try:
                await _survey(parts, ground, trial, record)
                await run_agent(parts, ground, trial, record)
                refuse_contaminated(parts, trial, record)
                await _look(parts, ground, record)
                await grade(parts, trial, record, await evidence_of(parts, trial, record, ground.workspace.path))
            except AttemptError as error:
                record.fail(parts, error)
                await _look_after_failure(parts, ground, record)
                await _grade_for_information(parts, ground, trial, record)
            await _keep(parts, ground, trial, record)
        finally:
            with anyio.CancelScope(shield=True):
                record.notes += await clean_up(ground)
    return record


def _refuse_rejected(parts: RunParts, trial: Trial) -> None:
    """Raise if the provider rejected the model of this runner before."""
    if trial.key.runner in parts.rejected:
        raise ModelRejected(parts.rejected[trial.key.runner])


async def _survey(parts: RunParts, ground: Ground, trial: Trial, record: AttemptRecord) -> None:
    """Let graders look at the workspace before the agent starts."""
    record.baseline = await survey(parts, trial, ground.workspace.path, ground.aside)
    if record.baseline is not None and record.baseline.folders:
        note_folders(parts.run_dir / record.artifact_dir, record.baseline.folders)
    if not record.vacuous:
        return
    if parts.plan.strict:
        raise Vacuous("every expectation held before the agent began", hint="expect something that the agent must do")
    record.notes.append("every expectation held before the agent began: the case is vacuous")


async def _look(parts: RunParts, ground: Ground, record: AttemptRecord) -> None:
    """Record what the agent changed in the workspace."""
    try:
        record.changes = await changes_of(ground)
    except WorkspaceError as error:
        raise _spoiled(error) from error
    keep = partial(
        record_changes, ground.workspace.path, record.changes, parts.run_dir / record.artifact_dir, parts.masker
    )
    record.notes += await anyio.to_thread.run_sync(keep) if record.changes else keep()
    if record.changes.diff:
        parts.keep_text(parts.run_dir / record.artifact_dir / "diff.patch", record.changes.diff)


def _spoiled(error: WorkspaceError) -> WorkspaceError:
    """Blame the agent if its workspace cannot be read, unless the machine ran out of something: it could be before."""
    if isinstance(error.__cause__, OSError) and error.__cause__.errno in SHORTAGES:
        return error
    return WorkspaceSpoiled(error.message, hint=error.hint)


async def _look_after_failure(parts: RunParts, ground: Ground, record: AttemptRecord) -> None:
    """Record the changes of an attempt that failed; an error here must not hide the first one."""
    if record.changes:
        return
    try:
        await _look(parts, ground, record)
    except AttemptError as error:
        record.notes.append(f"what changed could not be seen: {error.message}")


async def _grade_for_information(parts: RunParts, ground: Ground, trial: Trial, record: AttemptRecord) -> None:
    """Grade what the agent left although it did not finish; an error here must not hide the first one."""
    checks = [check for check in trial.execution.case.checks if parts.graders[check.grader].informs]
    if record.unfinished is None or record.grades or not checks:
        return
    try:
        evidence = await evidence_of(parts, trial, record, ground.workspace.path)
        await grade_for_information(parts, checks, record, evidence)
    except AttemptError as error:
        record.notes.append(f"what holds nevertheless could not be seen: {error.message}")


async def _keep(parts: RunParts, ground: Ground, trial: Trial, record: AttemptRecord) -> None:
    """Keep session and workspace of an attempt that people may want to look at; an error here changes no verdict."""
    artifact_dir = parts.run_dir / record.artifact_dir
    as_expected = _went_as_expected(trial, record)
    if record.resumable is not None and (not as_expected or (artifact_dir / QUESTIONS_FILE).exists()):
        record.notes += await anyio.to_thread.run_sync(keep_state, ground, record.resumable, artifact_dir, parts.masker)
    if as_expected or (record.failure is not None and record.failure.phase == "start"):
        return
    try:
        record.workspace_dir, not_kept = await keep_workspace(parts, ground, trial, record.number)
        record.notes += not_kept
    except (AttemptError, OSError, RecursionError, ValueError) as error:
        # An agent may leave anything there.
        record.notes.append(f"the workspace could not be kept: {error}")


def _went_as_expected(trial: Trial, record: AttemptRecord) -> bool:
    if trial.execution.case.expected_fail:
        return record.failure is not None and record.failure.code == "assertion"
    return record.passed
