"""Run one trial: attempt it as often as its retries allow, from folders to grades, and decide on the verdict."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.to_thread
from msgspec.structs import replace

from whet.decide.scores import score_of
from whet.errors import AttemptError, CheckMistaken, GraderError, Vacuous, WorkspaceError, WorkspaceSpoiled
from whet.grade.evidence import QUESTIONS_FILE, Evidence
from whet.model.grade import PASSED_UNEXPECTEDLY, Changes, Failure, FailureClass, Status
from whet.model.run import AttemptResult, Trial, TrialResult, turn_folder
from whet.model.spending import Spender
from whet.model.suite import Case
from whet.run.attempt.attempt import Attempt
from whet.run.attempt.folders import changes_of, clean_up, keep_workspace, prepare_folders
from whet.run.attempt.grading import continues_after, evidence_of, grade, grade_for_information, run_precheck
from whet.run.attempt.home import keep_state
from whet.run.attempt.record import AttemptRecord, mask_class, recording
from whet.run.attempt.session import run_agent
from whet.run.context import RunContext
from whet.workspace.changes import note_folders, record_changes
from whet.workspace.walk import SHORTAGES

OUTPUT_KEPT = 2000
# Makes the attempt with that number.
Attempting: TypeAlias = Callable[[int], Awaitable[AttemptRecord]]


async def run_trial(context: RunContext, trial: Trial) -> TrialResult:
    """Run an agent on the trial; the last attempt decides, and all of them are kept."""
    return await attempt_with_retries(
        context, trial, partial(run_attempt, context, trial), retries=context.plan.retries
    )


async def run_trial_past_errors(context: RunContext, trial: Trial) -> TrialResult:
    """Run an agent on the trial, and once more if it errored: what errors says nothing, and what fails does."""
    return await attempt_with_retries(
        context, trial, partial(run_attempt, context, trial), retries=1, outcomes=frozenset(("errored",))
    )


async def attempt_with_retries(
    context: RunContext,
    trial: Trial,
    attempt: Attempting,
    *,
    retries: int,
    first: int = 1,
    outcomes: frozenset[str] = frozenset(("failed", "errored")),
) -> TrialResult:
    """Attempt a trial, with up to *retries* further attempts after one of *outcomes*; *first* is a number."""
    records: list[AttemptRecord] = []
    for number in range(first, first + retries + 1):
        try:
            record = await attempt(number)
        except BaseException:
            for earlier in records:
                context.link.cut_short(trial.key, earlier.paid_usage)
            raise
        records.append(record)
        if not _worth_another(record, trial, outcomes):
            break
    return await classify_failure(context, trial, result_of(context, trial, records))


async def not_started(context: RunContext, trial: Trial, why: AttemptError) -> TrialResult:
    """Return the result of a trial that has no sense, which nothing is started for."""

    async def attempt(number: int) -> AttemptRecord:
        return _record_refusal(context, trial, number, why)

    return await attempt_with_retries(context, trial, attempt, retries=0)


def _record_refusal(context: RunContext, trial: Trial, number: int, why: AttemptError) -> AttemptRecord:
    """Return the record of an attempt that cannot begin."""
    with recording(context, trial, number) as record:
        record.fail(context, why)
    return record


async def run_attempt(context: RunContext, trial: Trial, number: int) -> AttemptRecord:
    """Make one attempt; every failure of it is data in the record."""
    try:
        # Before the clock starts: an image may have to be built.
        context = await _with_container(context, trial, number)
    except AttemptError as error:
        return _record_refusal(context, trial, number, error)
    with recording(context, trial, number) as record:
        attempt = await TrialAttempt.prepare(context, trial, record)
        try:
            await attempt.run()
            await attempt.keep()
        finally:
            with anyio.CancelScope(shield=True):
                await attempt.clean_up()
    return record


async def _with_container(context: RunContext, trial: Trial, number: int) -> RunContext:
    """Return *context* with the container of this attempt, if the run has containers."""
    if context.container_pool is None:
        return context
    sandbox, container = await context.container_pool.sandbox(trial, f"{trial.key.folder}/{number}")
    return replace(context, sandbox=sandbox, container=container)


def _make_folder(run_dir: Path, place: str) -> Path:
    """Make the folder of an attempt; from the top, because most often all but the first are missing."""
    folder = str(run_dir)
    for name in place.split("/"):
        folder = f"{folder}/{name}"
        with suppress(FileExistsError):
            os.mkdir(folder)  # noqa: PTH102 - thrice as fast as Path.mkdir
    return Path(folder)


class TrialAttempt(Attempt, frozen=True, kw_only=True):
    """An attempt from prepared folders to grades; its agent works on *given*, the trial with copies of its skills."""

    given: Trial

    @classmethod
    async def prepare(cls, context: RunContext, trial: Trial, record: AttemptRecord) -> TrialAttempt:
        """Make the folder of the record, the workspace, the home and the temporary folder."""
        artifact_dir = _make_folder(context.run_dir, record.artifact_dir)
        visible_trial = await context.skill_copies.given_to(trial)
        folders = await prepare_folders(context, visible_trial, artifact_dir)
        return cls(context=context, folders=folders, trial=trial, record=record, given=visible_trial)

    async def run(self) -> None:
        """Let the agent work, and grade what it left; an error of it becomes the failure of the attempt."""
        try:
            await self.precheck()
            is_whole = await self.observe()
            self._prepare_next()
            if is_whole:
                await grade(self.context, self.trial, self.record, await self._evidence(self.trial))
        except AttemptError as error:
            self.record.fail(self.context, error)
            await self._grade_for_information()

    async def precheck(self) -> None:
        """Let graders look at the workspace before the agent starts."""
        record = self.record
        record.surveyed = await run_precheck(self.context, self.trial, self.folders.workspace.path, self.folders.aside)
        if record.surveyed is not None and record.surveyed.folders:
            note_folders(self.artifact_dir, record.surveyed.folders)
        if not record.vacuous:
            return
        if self.context.plan.strict:
            raise Vacuous(
                "every expectation held before the agent began", hint="expect something that the agent must do"
            )
        record.notes.append("every expectation held before the agent began: the case is vacuous")

    async def observe(self) -> bool:
        """Run the agent, and look at what it changed; that it met a skill of another arm outranks how it ended.

        Return whether it was asked all that it should be, which the check of a turn can end before.
        """
        try:
            is_whole = await self._run_session()
            await self._look()
        except AttemptError:
            await self._look_after_failure()
            await self._look_for_skills()
            raise
        await self._look_for_skills()
        return is_whole

    async def _look_for_skills(self) -> None:
        if self.context.suite.skill is None:
            return
        # Only here: most suites have no skill.
        from whet.run.attempt._contamination import look_for_skills

        await anyio.to_thread.run_sync(look_for_skills, self.context, self.given, self.record)

    async def _run_session(self) -> bool:
        session = replace(self, trial=self.given)
        if not self.trial.execution.case.converses:
            await run_agent(session)
            return True
        # Only here: most cases are no conversations.
        from whet.run.attempt._conversation import converse

        return await converse(session, self._after_turn)

    async def _after_turn(self, turn: int) -> bool:
        """Decide the checks of a turn; return whether the conversation goes on."""
        context, record = self.context, self.record
        checks = [check for check in self.given.execution.case.checks if check.turn == turn]
        if not checks:
            return True
        await self._look(turn)
        changes = record.changes
        await grade(context, self.given, record, await self._evidence(self.given), checks)
        if (await self._changes()) != changes:
            record.notes.append(f"the workspace changed during the checks of turn {turn}, and the agent went on in it")
        return continues_after(checks, record.grades) and context.sandbox.goes_on

    async def _look(self, turn: int | None = None) -> None:
        """Record what the agent changed in the workspace, at the end or until the end of a turn."""
        record, folder = self.record, self.artifact_dir / turn_folder(turn)
        record.changes = await self._changes()
        keep = partial(record_changes, self.folders.workspace.path, record.changes, folder, self.context.masker)
        record.notes += await anyio.to_thread.run_sync(keep) if record.changes else keep()
        if record.changes.diff:
            self.context.keep_text(folder / "diff.patch", record.changes.diff)
        if turn is not None and record.session is not None:
            *earlier, last = record.session.turns
            turns = (*earlier, replace(last, changed_files=len(record.changes)))
            record.session = replace(record.session, turns=turns)

    async def _changes(self) -> Changes:
        """Blame the agent if its workspace cannot be read, unless the machine ran out of something."""
        try:
            return await changes_of(self.folders)
        except WorkspaceError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in SHORTAGES:
                raise
            # The workspace could be read before.
            raise WorkspaceSpoiled(error.message, hint=error.hint) from error

    async def _look_after_failure(self) -> None:
        """Record the changes of an attempt that failed; an error here must not hide the first one."""
        if self.record.changes and not self.trial.execution.case.converses:
            return
        try:
            await self._look()
        except AttemptError as error:
            self.record.notes.append(f"the changes could not be read: {error.message}")

    def _prepare_next(self) -> None:
        """Have the container of the next trial started while this one is graded."""
        context = self.context
        if context.container_pool is not None and context.container is not None:
            homes = (self.folders.home, self.folders.temporary)
            context.container_pool.prepare_next(self.trial, context.container, homes)

    async def _evidence(self, trial: Trial) -> Evidence:
        return await evidence_of(self.context, trial, self.record, self.folders.workspace.path)

    async def _grade_for_information(self) -> None:
        """Grade what the agent left although it did not finish; an error here must not hide the first one."""
        context, record = self.context, self.record
        checks = [check for check in self.trial.execution.case.checks if context.graders[check.grader].informs]
        if record.unfinished is None or record.grades or not checks:
            return
        try:
            await grade_for_information(context, checks, record, await self._evidence(self.trial))
        except AttemptError as error:
            record.notes.append(f"the checks could not run for information: {error.message}")

    async def keep(self) -> None:
        """Keep session and workspace of an attempt that people may want to look at; an error changes no verdict."""
        record, artifact_dir, masker = self.record, self.artifact_dir, self.context.masker
        as_expected = _went_as_expected(self.trial, record)
        if record.resumable is not None and (not as_expected or (artifact_dir / QUESTIONS_FILE).exists()):
            record.notes += await anyio.to_thread.run_sync(
                keep_state, self.folders, record.resumable, artifact_dir, masker
            )
        if as_expected or (record.failure is not None and record.failure.phase == "start"):
            return
        try:
            record.workspace_dir, not_kept = await keep_workspace(self.context, self.folders, self.trial, record.number)
            record.notes += not_kept
        except (AttemptError, OSError, RecursionError, ValueError) as error:
            # An agent may leave anything there.
            record.notes.append(f"the workspace could not be kept: {error}")

    async def clean_up(self) -> None:
        """Remove the container and what is left of the folders."""
        context = self.context
        if context.container_pool is not None and context.container is not None:
            await context.container_pool.leave(context.container)
        self.record.notes += await clean_up(self.folders)


def _went_as_expected(trial: Trial, record: AttemptRecord) -> bool:
    if trial.execution.case.expected_fail:
        return record.failure is not None and record.failure.is_of_checks
    return record.passed


def verdict(record: AttemptRecord, *, expected_fail: bool) -> Status:
    """Return whether it went as expected; only an assertion can be expected to fail."""
    if record.failure is None:
        return "unexpected-passed" if expected_fail else "passed"
    if record.failure.is_of_checks:
        return "expected-failed" if expected_fail else "failed"
    # A check that raises fails its case, also by its author's mistake; everything else that the agent did not cause
    # says nothing about the agent.
    if record.failure.cause == "agent" or record.failure.code == CheckMistaken.code:
        return "failed"
    return "errored"


def _worth_another(record: AttemptRecord, trial: Trial, outcomes: frozenset[str]) -> bool:
    """Return whether another attempt could end differently; an expected failure is not retried."""
    return record.retry and verdict(record, expected_fail=trial.execution.case.expected_fail) in outcomes


def result_of(context: RunContext, trial: Trial, records: list[AttemptRecord]) -> TrialResult:
    """Return the result of a trial; its last attempt decides."""
    last = records[-1]
    expected_fail = trial.execution.case.expected_fail
    status = verdict(last, expected_fail=expected_fail)
    if trial.execution.baseline and status == "failed":
        # The baseline only serves for comparison, and may fail.
        status = "expected-failed"
    output = last.session.final_output if last.session else ""
    session = last.session or last.unfinished
    failure, failure_class = last.failure, last.failure_class
    if status == "unexpected-passed":
        failure = Failure(
            phase="check", code=PASSED_UNEXPECTEDLY, cause="suite", message="was expected to fail, and passed"
        )
        failure_class = FailureClass(id=PASSED_UNEXPECTEDLY, label="Unexpected pass")
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
        skill_wanted=last.skill_wanted,
        other_skills=last.other_skills,
        skills_listed=last.skills_listed,
        final_output=output if len(output) <= OUTPUT_KEPT else output[:OUTPUT_KEPT] + " ...",
        workspace_dir=last.workspace_dir,
        changed_files=len(last.changes),
        vacuous=last.vacuous,
        session_s=last.session.duration_s if last.session else None,
        attempts=tuple(_attempt(record, trial.execution.case) for record in records),
        notes=tuple(note for record in records for note in record.masked_notes(context.masker)),
        turns=len(session.turns) if session else 0,
        user=session.user if session else None,
        ended_early=session.ended_early if session else None,
    )


def _score(record: AttemptRecord) -> float:
    """Return the score; an agent that did not finish has none of it."""
    if record.failure is not None and not record.failure.is_of_checks:
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
    counting_grades = [grade for grade in record.grades if grade.check not in apart]
    if record.failure is not None and not record.failure.is_of_checks:
        return 0.0
    if case.scored or any(0 < grade.value < 1 for grade in counting_grades):
        return score_of(counting_grades) if counting_grades else None
    if len(counting_grades) < len(record.grades):
        return float(all(grade.passed for grade in counting_grades)) if counting_grades else None
    return float(status == "passed")


def _attempt(record: AttemptRecord, case: Case) -> AttemptResult:
    unknown: dict[Spender, int] = {
        "agents": record.unpriced,
        "judge": record.judge.unknown,
        "users": record.users.unknown,
    }
    return AttemptResult(
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


async def classify_failure(context: RunContext, trial: Trial, result: TrialResult) -> TrialResult:
    """Let the graders of a case assign or override the failure class; the first that names one decides.

    A grader that fails at it adds a note, and the result stays.
    """
    case = trial.execution.case
    if result.status == "passed":
        return result
    for name in dict.fromkeys(check.grader for check in case.checks):
        try:
            failure_class = await context.graders[name].classify(case, result, timeout_s=context.plan.check_timeout_s)
        except GraderError as error:
            result = replace(result, notes=(*result.notes, context.masker.text(error.message)))
            continue
        if failure_class is not None:
            return replace(result, failure_class=mask_class(context.masker, failure_class))
    return result
