"""Grade an attempt, live or recorded: collect the evidence, ask the graders, and decide on a failure."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import fields, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from whet.errors import AttemptError, CheckMistaken, GraderError, JudgeFailed, NoVerdict, Undecidable
from whet.grade.context import NotRecorded, Shell
from whet.grade.evidence import AnswerEvidence, Evidence, Reply, events_path
from whet.grade.paying import paid_by
from whet.ground.copying import remove_tree
from whet.ground.protecting import Surveyed
from whet.ground.sandbox import Sandbox
from whet.model import wire
from whet.model.grade import Changes, Failure, FailureClass, Grade
from whet.model.run import Trial
from whet.model.session import SessionSummary, Usage
from whet.model.suite import Check
from whet.record.folder import write_new
from whet.run.attempt_record import AttemptRecord
from whet.run.ground import clean_up, prepare_ground
from whet.run.homes import trial_folder
from whet.run.parts import RunParts

if TYPE_CHECKING:
    from whet.ground.task_container import TaskContainer

# A survey reads everything that is protected in the workspace.
_SURVEY_TIMEOUT_S = 300.0
_BECAUSE = "it decides on the untouched workspace without an answer, so what the agent left is the reason"
_BECAUSE_OF_ANSWER = "without an answer there is a decision, so the answer is the reason"
# These errors already say who caused them.
_SETTLED = (CheckMistaken, NotRecorded, JudgeFailed)


async def survey(parts: RunParts, trial: Trial, workspace: Path, store: Path) -> Surveyed | None:
    """Ask the graders of a case what they want to know before its agent starts."""
    case = trial.execution.case
    for name in dict.fromkeys(check.grader for check in case.checks):
        found = await parts.graders[name].survey(
            case, workspace, store, timeout_s=max(_SURVEY_TIMEOUT_S, parts.plan.check_timeout_s)
        )
        if found is not None:
            return found
    return None


async def evidence_of(parts: RunParts, trial: Trial, record: AttemptRecord, workspace: Path) -> Evidence:
    """Collect what a grader may look at."""
    session = record.session or record.unfinished
    assert session is not None
    package = trial.execution.workspace.package
    artifact_dir = parts.run_dir / record.artifact_dir
    return Evidence(
        case=trial.execution.case,
        session=session,
        events_path=events_path(artifact_dir),
        workspace=workspace,
        prepared=await parts.packages.prepare(package) if package else None,
        changes=record.changes,
        artifact_dir=artifact_dir,
        shell=_shell(parts, trial),
        keep=lambda name, text: parts.keep_text(artifact_dir / name, text),
        timeout_s=parts.plan.check_timeout_s,
        surveyed=record.surveyed,
        command_timeout_s=parts.plan.command_timeout_s,
        arm=trial.key.arm,
        skill=trial.execution.skill,
        ask=_judge(parts, trial),
        house=house_of(parts.sandbox) if trial.execution.case.task else None,
    )


def house_of(sandbox: Sandbox) -> TaskContainer:
    """Return the container of a task, which its sandbox is."""
    from whet.ground.task_container import TaskContainer  # noqa: PLC0415 - few cases are tasks

    assert isinstance(sandbox, TaskContainer)
    return sandbox


def _judge(parts: RunParts, trial: Trial) -> Callable[[Evidence, str], Awaitable[Reply]] | None:
    """Return what puts a question to the agent that judges, if one does."""
    if parts.judge is None:
        return None
    from whet.run.judging import ask_judge  # noqa: PLC0415 - most judges are models

    return partial(ask_judge, parts, trial)


def _shell(parts: RunParts, trial: Trial) -> Shell:
    """Return what runs the commands of a check.

    These run what the agent left. So they see what the suite declares for them and no answers, and reach no more than
    the agent did.
    """
    readable = (*trial.execution.case.check_files, *parts.mounts)
    return Shell(
        sandbox=parts.sandbox.name,
        readable=tuple(str(path) for path in readable),
        hidden=tuple(str(path) for path in (*parts.hidden_from(trial), *parts.suite.held_out)),
        apart=tuple(str(path) for path in parts.apart),
        network=parts.reaches_all(trial),
        suite_dir=str(parts.suite.source.parent),
        ceilings=parts.ceilings,
        scratch=str(parts.scratch),
        place=getattr(parts.sandbox, "place", None),
    )


async def grade(
    parts: RunParts,
    trial: Trial,
    record: AttemptRecord,
    evidence: Evidence,
    checks: Sequence[Check] | None = None,
) -> None:
    """Ask the graders, check by check, *checks* or else the last; the first that fails is the failure."""
    checks = trial.execution.case.last_checks if checks is None else checks
    with paid_by(record.pay_judge):
        await _decide(parts, trial, record, evidence, checks)
    conclude(record)


async def _decide(
    parts: RunParts, trial: Trial, record: AttemptRecord, evidence: Evidence, checks: Sequence[Check]
) -> None:
    before = len(record.grades)
    try:
        await _ask(parts, checks, record, evidence)
    except GraderError as error:
        asked = checks[len(record.grades) - before]
        if asked.turn is not None:
            error.message = f"turn {asked.turn}: {error.message}"
        if is_open(error) and await is_agents_doing(parts, trial, asked, evidence):
            if isinstance(evidence, AnswerEvidence):
                raise Undecidable(f"{error.message}; {_BECAUSE_OF_ANSWER}") from error
            raise Undecidable(f"{error.message}; {_BECAUSE}", hint=error.hint) from error
        raise
    await _blame_undecided(parts, trial, record, evidence, checks, before)


def goes_on(checks: Sequence[Check], grades: Sequence[Grade]) -> bool:
    """Return whether a conversation goes on after a turn with these *checks*, of which the last *grades* are."""
    given = grades[-len(checks) :] if len(grades) >= len(checks) else ()
    decided = [grade.turn for grade in given] == [check.turn for check in checks]
    return decided and all(grade.passed or check.soft for check, grade in zip(checks, given, strict=True))


async def grade_for_information(
    parts: RunParts, checks: Sequence[Check], record: AttemptRecord, evidence: Evidence
) -> None:
    """Grade an attempt that has failed already; its verdict does not change."""
    with paid_by(record.pay_judge):
        await _ask(parts, checks, record, evidence)


async def _ask(parts: RunParts, checks: Sequence[Check], record: AttemptRecord, evidence: Evidence) -> None:
    turns = iter([check.turn for check in checks])
    async with aclosing(_grades(parts, checks, evidence)) as grades:
        async for given in grades:
            record.grades.append(replace(masked(parts, given), turn=next(turns)))
            if parts.plan.fail_fast and not given.passed:
                break
    _write_grades(record, evidence)


async def _grades(parts: RunParts, checks: Iterable[Check], evidence: Evidence) -> AsyncGenerator[Grade, None]:
    """Yield grades in order; a grader gets its checks that follow one another together."""
    for name, group in groupby(checks, key=lambda check: check.grader):
        async for given in parts.graders[name].grade_all(list(group), evidence):
            yield given


def masked(parts: RunParts, given: Grade) -> Grade:
    """Return the grade without secrets, as it is kept."""
    if not parts.masker:
        return given
    shown = None if given.evidence is None else parts.masker.text(given.evidence)
    return replace(given, reason=parts.masker.text(given.reason), evidence=shown)


def _write_grades(record: AttemptRecord, evidence: Evidence) -> None:
    # An answer has one grade, and the journal has it.
    if not isinstance(evidence, AnswerEvidence):
        write_new(f"{evidence.artifact_dir}/grades.json", wire.encode_pretty(record.grades))


def conclude(record: AttemptRecord) -> None:
    """Note the failure that follows from the grades, if any; an undecided grade counts if none failed."""
    missed = [given for given in record.grades if not given.passed]
    first = next((given for given in missed if not given.undecided), missed[0] if missed else None)
    if first is None:
        return
    if first.undecided:
        code, cause, named = GraderError.code, GraderError.cause, FailureClass(id="grader", label="Grader")
        record.retry = False
    else:
        code, cause, named = "assertion", "agent", FailureClass(id="assertion", label="Assertion failure")
    # The message has the reasons of all checks that did not pass, so that you can correct them together.
    said = "\n".join(dict.fromkeys(_reason(given) for given in (first, *missed) if given.reason))
    record.failure = Failure(phase="check", code=code, cause=cause, message=said, location=first.location)
    record.failure_class = first.failure_class or named


def _reason(given: Grade) -> str:
    return given.reason if given.turn is None else f"turn {given.turn}: {given.reason}"


async def _blame_undecided(
    parts: RunParts, trial: Trial, record: AttemptRecord, evidence: Evidence, checks: Sequence[Check], before: int
) -> None:
    """Find out why grades are undecided; if the agent is the reason, the check has failed."""
    if any(not given.passed and not given.undecided for given in record.grades):
        # It failed anyway.
        return
    # Those of earlier turns come before them.
    for number, (check, given) in enumerate(zip(checks, record.grades[before:], strict=False), before):
        if given.undecided and await is_agents_doing(parts, trial, check, evidence):
            first, _, rest = given.reason.partition("\n")
            reason = "\n".join(part for part in (f"{first}; {_BECAUSE}", rest) if part)
            record.grades[number] = replace(given, undecided=False, reason=reason)
            _write_grades(record, evidence)
            return


def is_open(error: GraderError) -> bool:
    """Return whether it is unknown who caused *error*."""
    if isinstance(error, NoVerdict):
        return True
    return error.cause != "agent" and not isinstance(error, _SETTLED)


async def is_agents_doing(parts: RunParts, trial: Trial, check: Check, evidence: Evidence) -> bool:
    """Return whether *check* decides without what the agent left, and again does not with it.

    Asking again finds a check that hangs by itself, or on a busy machine.
    """
    key = f"{trial.key.case}/{trial.key.arm}/{trial.execution.case.checks.index(check)}"
    if key not in parts.decides:
        parts.decides[key] = await _decides_untouched(parts, trial, check, evidence)
    if not parts.decides[key]:
        return False
    return not await _decides(parts, check, evidence)


async def _decides_untouched(parts: RunParts, trial: Trial, check: Check, evidence: Evidence) -> bool:
    place = f"untouched/{trial_folder(trial.key)}/{trial.execution.case.checks.index(check)}"
    async with _untouched(parts, trial, evidence, place) as untouched:
        return untouched is not None and await _decides(parts, check, untouched)


async def _decides(parts: RunParts, check: Check, evidence: Evidence) -> bool:
    """Return whether there is a decision, for or against; a check that raises has decided."""
    try:
        given = await parts.graders[check.grader].grade(check, evidence)
    except GraderError as error:
        return not is_open(error) and not isinstance(error, NotRecorded | JudgeFailed)
    except AttemptError:
        return False
    return not given.undecided


@asynccontextmanager
async def _untouched(parts: RunParts, trial: Trial, evidence: Evidence, place: str) -> AsyncIterator[Evidence | None]:
    """Yield the evidence as if the agent had done nothing, with *place* for what checks leave; None if there is none.

    The place is named by the trial and the check: a cassette finds what a judge was asked there by that name.
    """
    if isinstance(evidence, AnswerEvidence):
        # The answer is all that a skill leaves.
        yield None if evidence.output is None else replace(evidence, output=None)
        return
    spec, folder = trial.execution.workspace, parts.scratch / place
    if spec.cwd is not None:
        # The user's folder, which the agent has changed by now.
        yield None
        return
    alone = replace(trial, execution=replace(trial.execution, workspace=replace(spec, mode="isolated")))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ground = await prepare_ground(parts, alone, folder)
    except (AttemptError, OSError):
        yield None
        return
    untouched = _without_agent(evidence, ground.workspace.path, folder)
    if untouched.house is not None:
        untouched = replace(untouched, house=untouched.house.anew(folder / "container"))
    try:
        yield untouched
    finally:
        with anyio.CancelScope(shield=True):
            if untouched.house is not None:
                await untouched.house.remove()
            await clean_up(ground)
            await anyio.to_thread.run_sync(remove_tree, folder)


def _without_agent(evidence: Evidence, workspace: Path, folder: Path) -> Evidence:
    session = evidence.session
    known = {item.name: getattr(evidence, item.name) for item in fields(Evidence)}
    silent = SessionSummary(runner=session.runner, agent=session.agent, prompt=session.prompt, usage=Usage())
    nothing = {"session": silent, "events_path": None, "changes": Changes(), "workspace": workspace}
    apart = {"artifact_dir": folder, "keep": lambda _, __: None}
    return Evidence(**{**known, **nothing, **apart})
