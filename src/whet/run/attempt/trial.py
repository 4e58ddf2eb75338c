"""Run one trial: attempt it as often as its retries allow, each from ground to grade, and decide on the verdict."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.to_thread

from whet.errors import AttemptError, GraderError, Vacuous, WorkspaceError, WorkspaceSpoiled
from whet.grade.evidence import QUESTIONS_FILE
from whet.grade.scores import score_of
from whet.ground.changes import note_folders, record_changes
from whet.ground.tree import SHORTAGES
from whet.model.grade import Changes, Failure, FailureClass, Status
from whet.model.run import Attempt, Trial, TrialResult, turn_folder
from whet.model.spending import Spender
from whet.model.suite import Case
from whet.run.agent_session import run_agent
from whet.run.attempt_record import AttemptRecord, recording
from whet.run.grading import evidence_of, goes_on, grade, grade_for_information, survey
from whet.run.ground import Ground, changes_of, clean_up, keep_workspace, prepare_ground
from whet.run.homes import trial_folder
from whet.run.parts import RunParts
from whet.run.session_state import keep_state

OUTPUT_KEPT = 2000
# Makes the attempt with that number.
Attempting: TypeAlias = Callable[[int], Awaitable[AttemptRecord]]


async def run_trial(parts: RunParts, trial: Trial) -> TrialResult:
    """Run an agent on the trial; the last attempt decides, and all of them are kept."""
    return await attempt_with_retries(parts, trial, partial(run_attempt, parts, trial), retries=parts.plan.retries)


async def attempt_with_retries(
    parts: RunParts, trial: Trial, attempt: Attempting, *, retries: int, first: int = 1
) -> TrialResult:
    """Attempt a trial, with up to *retries* further attempts, and return its result; *first* is a number."""
    records: list[AttemptRecord] = []
    for number in range(first, first + retries + 1):
        try:
            record = await attempt(number)
        except BaseException:
            for earlier in records:
                parts.cut_short(trial.key, earlier.paid_usage)
            raise
        records.append(record)
        if not _worth_another(record, trial):
            break
    return await classified(parts, trial, result_of(trial, records))


async def not_started(parts: RunParts, trial: Trial, why: AttemptError) -> TrialResult:
    """Return the result of a trial that has no sense, which nothing is started for."""

    async def attempt(number: int) -> AttemptRecord:
        with recording(parts, trial, number) as record:
            record.fail(parts, why)
        return record

    return await attempt_with_retries(parts, trial, attempt, retries=0)


async def run_attempt(parts: RunParts, trial: Trial, number: int) -> AttemptRecord:
    """Make one attempt; every failure of it is data in the record."""
    # Before the clock starts: an image may have to be built.
    attempt = f"{trial_folder(trial.key)}/{number}"
    sandbox = parts.sandbox if parts.housing is None else await parts.housing.sandbox(trial, attempt)
    with recording(parts, trial, number) as record:
        if isinstance(sandbox, AttemptError):
            raise sandbox
        parts = replace(parts, sandbox=sandbox)
        artifact_dir = _made(parts.run_dir, record.artifact_dir)
        given = await parts.skill_copies.given_to(trial)
        ground = await prepare_ground(parts, given, artifact_dir)
        try:
            try:
                await _survey(parts, ground, trial, record)
                whole = await _observe(parts, ground, given, record)
                if parts.housing is not None:
                    parts.housing.prepare_next(trial, sandbox, (ground.home, ground.temporary))
                if whole:
                    evidence = await evidence_of(parts, trial, record, ground.workspace.path)
                    await grade(parts, trial, record, evidence)
            except AttemptError as error:
                record.fail(parts, error)
                await _grade_for_information(parts, ground, trial, record)
            await _keep(parts, ground, trial, record)
        finally:
            with anyio.CancelScope(shield=True):
                if parts.housing is not None:
                    await parts.housing.leave(sandbox)
                record.notes += await clean_up(ground)
    return record


def _made(run_dir: Path, place: str) -> Path:
    """Make the folder of an attempt; from the top, because most often all but the first are missing."""
    folder = str(run_dir)
    for name in place.split("/"):
        folder = f"{folder}/{name}"
        with suppress(FileExistsError):
            os.mkdir(folder)  # noqa: PTH102 - thrice as fast as Path.mkdir
    return Path(folder)


async def _survey(parts: RunParts, ground: Ground, trial: Trial, record: AttemptRecord) -> None:
    """Let graders look at the workspace before the agent starts."""
    record.surveyed = await survey(parts, trial, ground.workspace.path, ground.aside)
    if record.surveyed is not None and record.surveyed.folders:
        note_folders(parts.run_dir / record.artifact_dir, record.surveyed.folders)
    if not record.vacuous:
        return
    if parts.plan.strict:
        raise Vacuous("every expectation held before the agent began", hint="expect something that the agent must do")
    record.notes.append("every expectation held before the agent began: the case is vacuous")


async def _observe(parts: RunParts, ground: Ground, trial: Trial, record: AttemptRecord) -> bool:
    """Run the agent, and look at what it changed; that it met a skill of another arm outranks how it ended.

    Return whether it was asked all that it should be, which the check of a turn can end before.
    """
    try:
        whole = await _run_session(parts, ground, trial, record)
        await _look(parts, ground, record)
    except AttemptError:
        await _look_after_failure(parts, ground, trial, record)
        await _look_for_skills(parts, trial, record)
        raise
    await _look_for_skills(parts, trial, record)
    return whole


async def _look_for_skills(parts: RunParts, trial: Trial, record: AttemptRecord) -> None:
    if parts.suite.skill is None:
        return
    # Only here: most suites have no skill.
    from whet.run.contamination import look_for_skills  # noqa: PLC0415

    await anyio.to_thread.run_sync(look_for_skills, parts, trial, record)


async def _run_session(parts: RunParts, ground: Ground, trial: Trial, record: AttemptRecord) -> bool:
    if not trial.execution.case.converses:
        await run_agent(parts, ground, trial, record)
        return True
    # Only here: most cases are no conversations.
    from whet.run.conversation import converse  # noqa: PLC0415

    return await converse(parts, ground, trial, record, partial(_after_turn, parts, ground, trial, record))


async def _after_turn(parts: RunParts, ground: Ground, trial: Trial, record: AttemptRecord, turn: int) -> bool:
    """Decide the checks of a turn; return whether the conversation goes on."""
    checks = [check for check in trial.execution.case.checks if check.turn == turn]
    if not checks:
        return True
    await _look(parts, ground, record, turn)
    seen = record.changes
    await grade(parts, trial, record, await evidence_of(parts, trial, record, ground.workspace.path), checks)
    if (await _changes(ground)) != seen:
        record.notes.append(f"the workspace changed during the checks of turn {turn}, and the agent went on in it")
    return goes_on(checks, record.grades) and getattr(parts.sandbox, "goes_on", True)


async def _look(parts: RunParts, ground: Ground, record: AttemptRecord, turn: int | None = None) -> None:
    """Record what the agent changed in the workspace, at the end or until the end of a turn."""
    folder = parts.run_dir / record.artifact_dir / turn_folder(turn)
    record.changes = await _changes(ground)
    keep = partial(record_changes, ground.workspace.path, record.changes, folder, parts.masker)
    record.notes += await anyio.to_thread.run_sync(keep) if record.changes else keep()
    if record.changes.diff:
        parts.keep_text(folder / "diff.patch", record.changes.diff)
    if turn is not None and record.session is not None:
        *earlier, last = record.session.turns
        turns = (*earlier, replace(last, changed_files=len(record.changes)))
        record.session = replace(record.session, turns=turns)


async def _changes(ground: Ground) -> Changes:
    """Blame the agent if its workspace cannot be read, unless the machine ran out of something: it could be before."""
    try:
        return await changes_of(ground)
    except WorkspaceError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in SHORTAGES:
            raise
        raise WorkspaceSpoiled(error.message, hint=error.hint) from error


async def _look_after_failure(parts: RunParts, ground: Ground, trial: Trial, record: AttemptRecord) -> None:
    """Record the changes of an attempt that failed; an error here must not hide the first one."""
    if record.changes and not trial.execution.case.converses:
        return
    try:
        await _look(parts, ground, record)
    except AttemptError as error:
        record.notes.append(f"the changes could not be read: {error.message}")


async def _grade_for_information(parts: RunParts, ground: Ground, trial: Trial, record: AttemptRecord) -> None:
    """Grade what the agent left although it did not finish; an error here must not hide the first one."""
    checks = [check for check in trial.execution.case.checks if parts.graders[check.grader].informs]
    if record.unfinished is None or record.grades or not checks:
        return
    try:
        evidence = await evidence_of(parts, trial, record, ground.workspace.path)
        await grade_for_information(parts, checks, record, evidence)
    except AttemptError as error:
        record.notes.append(f"the checks could not run for information: {error.message}")


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


def verdict(record: AttemptRecord, *, expected_fail: bool) -> Status:
    """Return whether it went as expected; only an assertion can be expected to fail."""
    if record.failure is None:
        return "unexpected-passed" if expected_fail else "passed"
    if record.failure.code == "assertion":
        return "expected-failed" if expected_fail else "failed"
    # A check that raises fails its case, also by its author's mistake; everything else that the agent did not cause
    # says nothing about the agent.
    if record.failure.cause == "agent" or record.failure.code == "check-mistake":
        return "failed"
    return "errored"


def _worth_another(record: AttemptRecord, trial: Trial) -> bool:
    """Return whether another attempt could end differently; an expected failure is not retried."""
    return record.retry and verdict(record, expected_fail=trial.execution.case.expected_fail) in {"failed", "errored"}


def result_of(trial: Trial, records: list[AttemptRecord]) -> TrialResult:
    """Return the result of a trial; its last attempt decides."""
    last = records[-1]
    expected_fail = trial.execution.case.expected_fail
    status = verdict(last, expected_fail=expected_fail)
    if trial.execution.baseline and status == "failed":
        # It only serves for comparison, and may fail.
        status = "expected-failed"
    output = last.session.final_output if last.session else ""
    session = last.session or last.unfinished
    failure, failure_class = last.failure, last.failure_class
    if status == "unexpected-passed":
        failure = Failure(
            phase="check", code="unexpected-passed", cause="suite", message="was expected to fail, and passed"
        )
        failure_class = FailureClass(id="unexpected-passed", label="Unexpected pass")
    return TrialResult(
        key=trial.key,
        status=status,
        score=None if status == "errored" else _score(last),
        duration_s=sum(record.duration_s for record in records),
        started_at=records[0].started_at,
        artifact_dir=last.artifact_dir,
        grades=tuple(last.grades),
        failure=failure,
        failure_class=failure_class,
        usage=last.usage,
        steps=last.steps,
        detected_skills=last.detected_skills,
        skill_shown=last.skill_shown,
        skill_loaded=last.skill_loaded,
        skill_unwanted=last.skill_unwanted,
        skills_listed=last.skills_listed,
        final_output=output if len(output) <= OUTPUT_KEPT else output[:OUTPUT_KEPT] + " ...",
        workspace_dir=last.workspace_dir,
        changed_files=len(last.changes),
        vacuous=last.vacuous,
        session_s=last.session.duration_s if last.session else None,
        attempts=tuple(_attempt(record, trial.execution.case) for record in records),
        notes=tuple(note for record in records for note in record.notes),
        turns=len(session.turns) if session else 0,
        user=session.user if session else None,
    )


def _score(record: AttemptRecord) -> float:
    """Return the score; an agent that did not finish has none of it."""
    if record.failure is not None and record.failure.code != "assertion":
        return 0.0
    return score_of(record.grades) or 0.0


def _value(record: AttemptRecord, case: Case) -> float | None:
    """Return how an attempt counts in comparisons: by whether its checks held, or by its score if it has one.

    Checks of the skill itself do not count, because they cannot hold in an arm without it.
    """
    status = verdict(record, expected_fail=False)
    if status == "errored":
        return None
    apart = {check.label for check in case.checks if not check.compared}
    counted = [grade for grade in record.grades if grade.check not in apart]
    if record.failure is not None and record.failure.code != "assertion":
        return 0.0
    if case.scored or any(0 < grade.value < 1 for grade in counted):
        return score_of(counted) if counted else None
    if len(counted) < len(record.grades):
        return float(all(grade.passed for grade in counted)) if counted else None
    return float(status == "passed")


def _attempt(record: AttemptRecord, case: Case) -> Attempt:
    unknown: dict[Spender, int] = {
        "agents": record.unpriced,
        "judge": record.judge.unknown,
        "users": record.users.unknown,
    }
    return Attempt(
        number=record.number,
        status=verdict(record, expected_fail=case.expected_fail),
        value=_value(record, case),
        duration_s=record.duration_s,
        artifact_dir=record.artifact_dir,
        workspace_dir=record.workspace_dir,
        failure=record.failure,
        usage=record.usage,
        unpaid_usage=record.unpaid_usage,
        user_usage=record.users.usage,
        judge_usage=record.judge.usage,
        unpriced=tuple(who for who, unknown in unknown.items() if unknown),
    )


async def classified(parts: RunParts, trial: Trial, result: TrialResult) -> TrialResult:
    """Let the graders of a case assign or override the failure class; the first that names one decides.

    A grader that fails at it adds a note, and the result stays.
    """
    case = trial.execution.case
    if result.status == "passed":
        return result
    for name in dict.fromkeys(check.grader for check in case.checks):
        try:
            given = await parts.graders[name].classify(case, result, timeout_s=parts.plan.check_timeout_s)
        except GraderError as error:
            result = replace(result, notes=(*result.notes, parts.masker.text(error.message)))
            continue
        if given is not None:
            return replace(result, failure_class=_masked_class(parts, given))
    return result


def _masked_class(parts: RunParts, given: FailureClass) -> FailureClass:
    label = None if given.label is None else parts.masker.text(given.label)
    return FailureClass(id=parts.masker.text(given.id), label=label)
