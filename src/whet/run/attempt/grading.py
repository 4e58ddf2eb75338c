"""Grade an attempt, live or recorded: collect the evidence, ask the graders, and decide on a failure."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from itertools import groupby
from math import isclose
from pathlib import Path

import anyio
import anyio.to_thread
from msgspec.structs import replace

from whet.agents.observe.loading import question_of
from whet.checks.context import NotRecorded, Shell
from whet.decide.scores import score_of
from whet.errors import AttemptError, CheckMistaken, GraderError, JudgeFailed, NoVerdict, Undecidable
from whet.grade.evidence import Evidence, JudgeAnswer, events_path
from whet.grade.paying import charge_to
from whet.model import codec
from whet.model.grade import CHECKS_FAILED, Changes, Failure, FailureClass, Grade
from whet.model.run import Trial
from whet.model.session import SessionSummary, Usage
from whet.model.suite import Case, Check, CheckSet
from whet.record.folder import write_new
from whet.run.attempt._judge import ask_judge
from whet.run.attempt.folders import clean_up, prepare_folders
from whet.run.attempt.record import AttemptRecord, mask_class
from whet.run.context import RunContext
from whet.workspace.copy import remove_tree
from whet.workspace.protected import WorkspaceSurvey

# A precheck reads everything that is protected in the workspace.
_PRECHECK_TIMEOUT_S = 300.0
_BECAUSE = "it decides on the untouched workspace without an answer, so what the agent left is the reason"
_BECAUSE_OF_ANSWER = "without an answer there is a decision, so the answer is the reason"
# Errors of these classes already say who caused them.
_SETTLED = (CheckMistaken, NotRecorded, JudgeFailed)


async def run_precheck(context: RunContext, trial: Trial, workspace: Path, store: Path) -> WorkspaceSurvey | None:
    """Ask the graders of a case what they want to know before its agent starts."""
    case = trial.execution.case
    for name in dict.fromkeys(check.grader for check in case.checks):
        precheck = await context.graders[name].survey(
            case, workspace, store, timeout_s=max(_PRECHECK_TIMEOUT_S, context.plan.check_timeout_s)
        )
        if precheck is not None:
            return precheck
    return None


async def evidence_of(context: RunContext, trial: Trial, record: AttemptRecord, workspace: Path) -> Evidence:
    """Collect what a grader may look at."""
    session = record.session or record.unfinished
    assert session is not None
    package = trial.execution.workspace.package
    artifact_dir = context.run_dir / record.artifact_dir
    return Evidence(
        case=trial.execution.case,
        session=session,
        events_path=events_path(artifact_dir),
        workspace=workspace,
        prepared=await context.packages.prepare(package) if package else None,
        changes=record.changes,
        artifact_dir=artifact_dir,
        shell=_shell(context, trial),
        keep=lambda name, text: context.keep_text(artifact_dir / name, text),
        timeout_s=context.plan.check_timeout_s,
        surveyed=record.surveyed,
        command_timeout_s=context.plan.command_timeout_s,
        arm=trial.key.arm,
        skill=trial.execution.skill,
        ask=_judge(context, trial),
        container=context.container,
    )


def _judge(context: RunContext, trial: Trial) -> Callable[[Evidence, str], Awaitable[JudgeAnswer]] | None:
    """Return what puts a question to the agent that judges, if one does."""
    if context.judge is None:
        return None
    return partial(ask_judge, context, trial)


def _shell(context: RunContext, trial: Trial) -> Shell:
    """Return what runs the commands of a check.

    Such commands run what the agent left. So they see what the suite declares and no answers, and reach no more than
    the agent did.
    """
    readable = (*trial.execution.case.check_files, *context.mounts)
    return Shell(
        sandbox=context.sandbox.name,
        readable=tuple(str(path) for path in readable),
        hidden=tuple(str(path) for path in (*context.hidden_from(trial), *context.suite.held_out)),
        apart=tuple(str(path) for path in context.apart),
        network=context.reaches_all(trial),
        suite_dir=str(context.suite.source.parent),
        ceilings=context.ceilings,
        scratch=str(context.scratch),
        place=context.sandbox.place,
    )


async def grade(
    context: RunContext,
    trial: Trial,
    record: AttemptRecord,
    evidence: Evidence,
    checks: Sequence[Check] | None = None,
) -> None:
    """Ask the graders, check by check, *checks* or else the last; the first that fails is the failure."""
    checks = trial.execution.case.last_checks if checks is None else checks
    _refuse_unseen(evidence.session, trial.execution.case, context)
    with charge_to(record.pay_judge):
        await _decide(context, trial, record, evidence, checks)
    conclude(record, trial.execution.case)


def _refuse_unseen(session: SessionSummary, case: Case, context: RunContext) -> None:
    """Raise for checks of today that ask a session, which was ended early, about what it never came to."""
    if session.ended_early is not None and question_of(case, context.suite.skill) is None:
        raise NotRecorded(
            "the session was ended as soon as it was known which skills it loads, and the case now asks for more",
            hint="run the case again",
        )


async def _decide(
    context: RunContext, trial: Trial, record: AttemptRecord, evidence: Evidence, checks: Sequence[Check]
) -> None:
    before = len(record.grades)
    try:
        case = trial.execution.case
        is_scored = case.pass_threshold is not None or any(check.part_of for check in case.checks)
        stops_early = context.plan.fail_fast and not is_scored
        await _ask(context, checks, record, evidence, stops_early=stops_early)
    except GraderError as error:
        check = checks[len(record.grades) - before]
        if check.turn is not None:
            error.message = f"turn {check.turn}: {error.message}"
        if is_open(error) and await is_agents_doing(context, trial, check, evidence):
            if evidence.answer is not None:
                raise Undecidable(f"{error.message}; {_BECAUSE_OF_ANSWER}") from error
            raise Undecidable(f"{error.message}; {_BECAUSE}", hint=error.hint) from error
        raise
    await _blame_undecided(context, trial, record, evidence, checks, before)


def continues_after(checks: Sequence[Check], grades: Sequence[Grade]) -> bool:
    """Return whether a conversation goes on after a turn with these *checks*, of which the last *grades* are."""
    turn_grades = grades[-len(checks) :] if len(grades) >= len(checks) else ()
    is_decided = [grade.turn for grade in turn_grades] == [check.turn for check in checks]
    return is_decided and all(grade.passed or check.soft for check, grade in zip(checks, turn_grades, strict=True))


async def grade_for_information(
    context: RunContext, checks: Sequence[Check], record: AttemptRecord, evidence: Evidence
) -> None:
    """Grade an attempt that has failed already; its verdict does not change."""
    with charge_to(record.pay_judge):
        await _ask(context, checks, record, evidence, stops_early=context.plan.fail_fast)


async def _ask(
    context: RunContext, checks: Sequence[Check], record: AttemptRecord, evidence: Evidence, *, stops_early: bool
) -> None:
    turns = iter([check.turn for check in checks])
    async with aclosing(_grades(context, checks, evidence)) as grades:
        async for grade in grades:
            record.grades.append(replace(mask_grade(context, grade), turn=next(turns)))
            if stops_early and not grade.passed:
                break
    _write_grades(record, evidence)


async def _grades(context: RunContext, checks: Iterable[Check], evidence: Evidence) -> AsyncGenerator[Grade, None]:
    """Yield grades in order; a grader gets its checks that follow one another together."""
    for name, group in groupby(checks, key=lambda check: check.grader):
        async for grade in context.graders[name].grade_all(list(group), evidence):
            yield grade


def mask_grade(context: RunContext, grade: Grade) -> Grade:
    """Return the grade without secrets, as it is kept."""
    if not context.masker:
        return grade
    evidence = None if grade.evidence is None else context.masker.text(grade.evidence)
    failure_class = None if grade.failure_class is None else mask_class(context.masker, grade.failure_class)
    return replace(grade, reason=context.masker.text(grade.reason), evidence=evidence, failure_class=failure_class)


def _write_grades(record: AttemptRecord, evidence: Evidence) -> None:
    # An answer has one grade, and the journal has it.
    if evidence.answer is None:
        write_new(f"{evidence.artifact_dir}/grades.json", codec.encode_pretty(record.grades))


def conclude(record: AttemptRecord, case: Case) -> None:
    """Note the failure that follows from the grades, if any; an undecided grade counts if none failed.

    Of a case with a threshold all grades have to be there, because the first of them do not show the score.
    """
    misses = [grade for grade in record.grades if not grade.passed]
    if case.pass_threshold is not None and not any(grade.undecided for grade in misses):
        if len(record.grades) < len(case.checks):
            return
        if _reaches(case.pass_threshold, record.grades):
            return
    misses = _outside_of_sets(misses, case, record.grades)
    first = next((grade for grade in misses if not grade.undecided), misses[0] if misses else None)
    if first is None:
        return
    if first.undecided:
        code, cause, failure_class = GraderError.code, GraderError.cause, FailureClass(id="grader", label="Grader")
        record.retry = False
    else:
        code, cause, failure_class = CHECKS_FAILED, "agent", FailureClass(id=CHECKS_FAILED, label="Assertion failure")
    # The message has the reasons of all checks that did not pass, so that you can correct them together.
    message = "\n".join(dict.fromkeys(_reason(grade) for grade in (first, *misses) if grade.reason))
    record.failure = Failure(phase="check", code=code, cause=cause, message=message, location=first.location)
    record.failure_class = first.failure_class or failure_class


def _outside_of_sets(misses: list[Grade], case: Case, grades: Sequence[Grade]) -> list[Grade]:
    """Return *misses* without those of sets of checks that reach their thresholds, and with one for each other set."""
    sets: dict[CheckSet, list[Grade]] = {}
    for check, grade in zip(case.checks, grades, strict=False):
        if check.part_of is not None:
            sets.setdefault(check.part_of, []).append(grade)
    for part, members in sets.items():
        if any(grade.undecided for grade in members):
            continue
        misses = [grade for grade in misses if grade not in members]
        if not _reaches(part.threshold, members):
            score = score_of(members) or 0.0
            reasons = "; ".join(grade.reason for grade in members if not grade.passed and grade.reason)
            reason = f"{part.place} scores {score:.2f}, and needs {part.threshold:g}: {reasons}".removesuffix(": ")
            misses.append(replace(members[0], value=score, passed=False, reason=reason))
    return misses


def _reaches(threshold: float, grades: Sequence[Grade]) -> bool:
    """Return whether the score is enough, and what has no part in it holds."""
    score = score_of(grades)
    # Weights such as 0.1 and 0.2 have no exact sum.
    is_enough = score is None or score >= threshold or isclose(score, threshold)
    return is_enough and all(grade.passed for grade in grades if grade.weight == 0)


def _reason(grade: Grade) -> str:
    return grade.reason if grade.turn is None else f"turn {grade.turn}: {grade.reason}"


async def _blame_undecided(
    context: RunContext, trial: Trial, record: AttemptRecord, evidence: Evidence, checks: Sequence[Check], before: int
) -> None:
    """Find out why grades are undecided; if the agent is the reason, the check has failed."""
    if any(not grade.passed and not grade.undecided for grade in record.grades):
        # The attempt failed anyway.
        return
    # Grades of earlier turns come before them.
    for number, (check, grade) in enumerate(zip(checks, record.grades[before:], strict=False), before):
        if grade.undecided and await is_agents_doing(context, trial, check, evidence):
            first, _, details = grade.reason.partition("\n")
            reason = "\n".join(part for part in (f"{first}; {_BECAUSE}", details) if part)
            record.grades[number] = replace(grade, undecided=False, reason=reason)
            _write_grades(record, evidence)
            return


def is_open(error: GraderError) -> bool:
    """Return whether it is unknown who caused *error*."""
    if isinstance(error, NoVerdict):
        return True
    return error.cause != "agent" and not isinstance(error, _SETTLED)


async def is_agents_doing(context: RunContext, trial: Trial, check: Check, evidence: Evidence) -> bool:
    """Return whether *check* decides without what the agent left, and again does not with it.

    Asking again finds a check that hangs by itself, or on a busy machine.
    """
    key = f"{trial.key.case}/{trial.key.arm}/{trial.execution.case.checks.index(check)}"
    if key not in context.decides:
        context.decides[key] = await _decides_untouched(context, trial, check, evidence)
    if not context.decides[key]:
        return False
    return not await _decides(context, check, evidence)


async def _decides_untouched(context: RunContext, trial: Trial, check: Check, evidence: Evidence) -> bool:
    place = f"untouched/{trial.key.folder}/{trial.execution.case.checks.index(check)}"
    async with _open_original_evidence(context, trial, evidence, place) as original_evidence:
        return original_evidence is not None and await _decides(context, check, original_evidence)


async def _decides(context: RunContext, check: Check, evidence: Evidence) -> bool:
    """Return whether there is a decision, for or against; a check that raises has decided."""
    try:
        grade = await context.graders[check.grader].grade(check, evidence)
    except GraderError as error:
        return not is_open(error) and not isinstance(error, NotRecorded | JudgeFailed)
    except AttemptError:
        return False
    return not grade.undecided


@asynccontextmanager
async def _open_original_evidence(
    context: RunContext, trial: Trial, evidence: Evidence, place: str
) -> AsyncIterator[Evidence | None]:
    """Yield the evidence as if the agent had done nothing, with *place* for what checks leave; None if there is none.

    The place is named by the trial and the check: a cassette finds what a judge was asked there by that name.
    """
    if evidence.answer is not None:
        # The answer is all that a skill leaves.
        answer = evidence.answer
        yield None if answer.output is None else replace(evidence, answer=replace(answer, output=None))
        return
    spec, folder = trial.execution.workspace, context.scratch / place
    if spec.cwd is not None:
        # The user's folder, which the agent has changed by now.
        yield None
        return
    alone = replace(trial, execution=replace(trial.execution, workspace=replace(spec, mode="isolated")))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folders = await prepare_folders(context, alone, folder)
    except (AttemptError, OSError):
        yield None
        return
    original_evidence = _without_agent(evidence, folders.workspace.path, folder)
    if original_evidence.container is not None:
        original_evidence = replace(original_evidence, container=original_evidence.container.anew(folder / "container"))
    try:
        yield original_evidence
    finally:
        with anyio.CancelScope(shield=True):
            if original_evidence.container is not None:
                await original_evidence.container.remove()
            await clean_up(folders)
            await anyio.to_thread.run_sync(remove_tree, folder)


def _without_agent(evidence: Evidence, workspace: Path, folder: Path) -> Evidence:
    session = evidence.session
    silent = SessionSummary(runner=session.runner, agent=session.agent, prompt=session.prompt, usage=Usage())
    return replace(
        evidence,
        session=silent,
        events_path=None,
        changes=Changes(),
        workspace=workspace,
        artifact_dir=folder,
        keep=lambda _, __: None,
        gaps=None,
        folders=(),
    )
