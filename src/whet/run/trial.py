"""Run one trial: attempt it as often as its retries allow, and decide on the verdict."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from whet.errors import GraderError
from whet.grade.scores import score_of
from whet.model.grade import Failure, FailureClass, Status
from whet.model.run import Attempt, Trial, TrialResult
from whet.run.attempt import run_attempt
from whet.run.attempt_record import AttemptRecord
from whet.run.parts import RunParts

OUTPUT_KEPT = 2000
# Makes the attempt with that number.
Attempting: TypeAlias = Callable[[int], Awaitable[AttemptRecord]]


async def run_trial(parts: RunParts, trial: Trial) -> TrialResult:
    """Run an agent on the trial; the last attempt decides, and all of them are kept."""
    return await attempted(parts, trial, partial(run_attempt, parts, trial), retries=parts.plan.retries)


async def attempted(parts: RunParts, trial: Trial, attempt: Attempting, *, retries: int) -> TrialResult:
    """Attempt a trial, with up to *retries* further attempts, and return its result."""
    records: list[AttemptRecord] = []
    for number in range(1, retries + 2):
        try:
            record = await attempt(number)
        except BaseException:
            for earlier in records:
                parts.cut_short(trial.key, earlier.usage)
            raise
        records.append(record)
        if not _worth_another(record, trial):
            break
    return await classified(parts, trial, result_of(trial, records))


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
    if trial.execution.control and status == "failed":
        # It only serves for comparison, and may fail.
        status = "expected-failed"
    output = last.session.final_output if last.session else ""
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
        final_output=output if len(output) <= OUTPUT_KEPT else output[:OUTPUT_KEPT] + " ...",
        workspace_dir=last.workspace_dir,
        changed_files=len(last.changes),
        vacuous=last.vacuous,
        session_s=last.session.duration_s if last.session else None,
        attempts=tuple(_attempt(record, expected_fail=expected_fail) for record in records),
        notes=tuple(note for record in records for note in record.notes),
    )


def _score(record: AttemptRecord) -> float:
    """Return the score; an agent that did not finish has none of it."""
    if record.failure is not None and record.failure.code != "assertion":
        return 0.0
    return score_of(record.grades) or 0.0


def _attempt(record: AttemptRecord, *, expected_fail: bool) -> Attempt:
    return Attempt(
        number=record.number,
        status=verdict(record, expected_fail=expected_fail),
        duration_s=record.duration_s,
        artifact_dir=record.artifact_dir,
        workspace_dir=record.workspace_dir,
        failure=record.failure,
        usage=record.usage,
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
