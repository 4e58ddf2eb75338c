"""The grading of an attempt, whether it just happened or was recorded: evidence, the graders' decisions, a failure."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from whet.errors import GraderError, Undecidable
from whet.grade.context import Shell
from whet.grade.evidence import Evidence, events_path
from whet.ground.protecting import Baseline
from whet.model import wire
from whet.model.grade import Failure, FailureClass, Grade
from whet.model.run import Trial
from whet.model.suite import Check
from whet.run.attempt_record import AttemptRecord
from whet.run.ending import BECAUSE, is_agents_doing, is_open
from whet.run.parts import Parts

# Looking at a workspace is looking at all that is protected in it.
_SURVEY_TIMEOUT_S = 300.0


async def survey(parts: Parts, trial: Trial, workspace: Path, store: Path) -> Baseline | None:
    """What the graders of a case want to know before its agent starts."""
    case = trial.execution.case
    for name in dict.fromkeys(check.grader for check in case.checks):
        found = await parts.graders[name].survey(
            case, workspace, store, timeout_s=max(_SURVEY_TIMEOUT_S, parts.plan.check_timeout_s)
        )
        if found is not None:
            return found
    return None


async def evidence_of(parts: Parts, trial: Trial, record: AttemptRecord, workspace: Path) -> Evidence:
    """All that a grader may look at."""
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
        baseline=record.baseline,
        command_timeout_s=parts.plan.command_timeout_s,
        variant=trial.key.variant,
        skill=trial.execution.skill,
    )


async def grade(parts: Parts, trial: Trial, record: AttemptRecord, evidence: Evidence) -> None:
    """Ask the graders, check by check; the first check that does not hold is the failure."""
    checks = trial.execution.case.checks
    before = len(record.grades)
    try:
        await _ask(parts, checks, record, evidence)
    except GraderError as error:
        asked = checks[len(record.grades) - before]
        if is_open(error) and await is_agents_doing(parts, trial, asked, evidence):
            raise Undecidable(f"{error.message}; {BECAUSE}", hint=error.hint) from error
        raise
    await _settle(parts, trial, record, evidence)
    conclude(record)


async def inform(parts: Parts, checks: Iterable[Check], record: AttemptRecord, evidence: Evidence) -> None:
    """Ask for what is worth knowing of an attempt that failed already; its verdict stands."""
    await _ask(parts, checks, record, evidence)


async def _ask(parts: Parts, checks: Iterable[Check], record: AttemptRecord, evidence: Evidence) -> None:
    async with aclosing(_grades(parts, checks, evidence)) as grades:
        async for given in grades:
            record.grades.append(masked(parts, given))
            if parts.plan.fail_fast and not given.passed:
                break
    _write_grades(record, evidence)


async def _settle(parts: Parts, trial: Trial, record: AttemptRecord, evidence: Evidence) -> None:
    """Find out whose doing it is that grades are undecided; where it is the agent's, the check is not met."""
    if any(not given.passed and not given.undecided for given in record.grades):
        # It failed anyway.
        return
    for number, (check, given) in enumerate(zip(trial.execution.case.checks, record.grades, strict=False)):
        if given.undecided and await is_agents_doing(parts, trial, check, evidence):
            first, _, rest = given.reason.partition("\n")
            reason = "\n".join(part for part in (f"{first}; {BECAUSE}", rest) if part)
            record.grades[number] = replace(given, undecided=False, reason=reason)
            _write_grades(record, evidence)
            return


def _write_grades(record: AttemptRecord, evidence: Evidence) -> None:
    (evidence.artifact_dir / "grades.json").write_bytes(wire.encode_pretty(record.grades))


async def _grades(parts: Parts, checks: Iterable[Check], evidence: Evidence) -> AsyncGenerator[Grade, None]:
    """In order; checks of one grader that follow one another are given to it together."""
    for name, group in groupby(checks, key=lambda check: check.grader):
        async for given in parts.graders[name].grade_all(list(group), evidence):
            yield given


def masked(parts: Parts, given: Grade) -> Grade:
    """The grade without secrets, as it is kept."""
    if not parts.masker:
        return given
    shown = None if given.evidence is None else parts.masker.text(given.evidence)
    return replace(given, reason=parts.masker.text(given.reason), evidence=shown)


def conclude(record: AttemptRecord) -> None:
    """Note the failure that the grades come to, if any; where none failed, one that is undecided leaves all open."""
    missed = [given for given in record.grades if not given.passed]
    first = next((given for given in missed if not given.undecided), missed[0] if missed else None)
    if first is None:
        return
    if first.undecided:
        code, cause, named = GraderError.code, GraderError.cause, FailureClass(id="grader", label="Grader")
        record.retry = False
    else:
        code, cause, named = "assertion", "agent", FailureClass(id="assertion", label="Assertion failure")
    # Whoever mends one wants to know of the others too.
    said = "\n".join(dict.fromkeys(given.reason for given in (first, *missed) if given.reason))
    record.failure = Failure(phase="check", code=code, cause=cause, message=said, location=first.location)
    record.failure_class = first.failure_class or named


def _shell(parts: Parts, trial: Trial) -> Shell:
    """The commands of a check see what the agent of a `command` runner may see."""
    readable = (parts.plan.suite.source.parent, *parts.mounts)
    return Shell(
        sandbox=parts.sandbox.name,
        readable=tuple(str(path) for path in readable),
        hidden=tuple(str(path) for path in parts.hidden_from(trial)),
        ceilings=parts.ceilings,
        scratch=str(parts.scratch),
    )
