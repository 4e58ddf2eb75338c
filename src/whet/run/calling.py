"""Call a skill once: keep its answer and have it evaluated; and ask skills for their health before a run."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

import anyio

from whet.agents.callable import Reply, SkillClient, output_problems
from whet.agents.callable_connect import connect
from whet.agents.callable_reading import MANIFEST
from whet.dataclass import dataclass
from whet.errors import AttemptError, GraderError, Problem, SkillFailed, SuiteError, Undecidable
from whet.grade.evaluator_graders import AnswerEvidence
from whet.grade.evidence import Evidence
from whet.ground.sandbox import Sandbox
from whet.ground.secrets import Masker
from whet.model.benchmark import BenchmarkTask, CallableSkill
from whet.model.grade import FailureClass, Grade
from whet.model.run import Trial, TrialResult
from whet.model.seen import FinalOutput
from whet.model.session import SessionSummary, Usage
from whet.model.suite import Check
from whet.run.attempt_record import AttemptRecord, recording
from whet.run.grading import conclude, evidence_of, is_open, masked
from whet.run.parts import RunParts
from whet.run.trial import attempt_with_retries

ANSWER_FILE = "answer.json"
_WRONG = FailureClass(id="wrong-answer", label="Wrong answer")
_ASKED_AT_ONCE = 8
_HINT = "correct or start it, leave it out, or add --no-health-check: its calls are then errored"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calling:
    """What calls need: skills and their clients by runner."""

    skills: Mapping[str, CallableSkill]
    clients: Mapping[str, SkillClient]
    # Further attempts, by runner.
    retries: Mapping[str, int]
    check_schemas: bool = False


async def call_trial(parts: RunParts, calling: Calling, trial: Trial) -> TrialResult:
    """Run one trial by calling a skill."""
    retries = calling.retries[trial.key.runner]
    return await attempt_with_retries(parts, trial, partial(_attempt, parts, calling, trial), retries=retries)


async def _attempt(parts: RunParts, calling: Calling, trial: Trial, number: int) -> AttemptRecord:
    with recording(parts, trial, number) as record:
        await _call(parts, calling, trial, record)
    listener = parts.listener(trial)
    if listener is not None:
        listener(FinalOutput(text=_describe(trial, record)))
    return record


def _describe(trial: Trial, record: AttemptRecord) -> str:
    """Describe a call for people who watch: its input, its answer, and what is wrong with it."""
    answer = record.session.final_output if record.session else "no answer"
    wrong = f": {record.failure.message}" if record.failure else ""
    return f"{trial.execution.case.prompt} gives {answer}{wrong}"


async def _call(parts: RunParts, calling: Calling, trial: Trial, record: AttemptRecord) -> None:
    (check,), skill = trial.execution.case.checks, calling.skills[trial.key.runner]
    task: BenchmarkTask = check.params["task"]
    reply = await _reply(calling, trial, task)
    _keep(parts, trial, record, reply)
    if calling.check_schemas and task.evaluator.subject == "output":
        _refuse_other_output(skill, reply.output)
    evidence = await _evidence(parts, trial, record, skill, reply)
    record.grades.append(masked(parts, await _grade(parts, check, evidence)))
    conclude(record)
    if record.failure is not None and record.failure.code == "assertion":
        record.failure_class = _WRONG
    # Only calls without an answer are retried: asking until an answer is right would measure something else.
    record.retry = False


async def _evidence(
    parts: RunParts, trial: Trial, record: AttemptRecord, skill: CallableSkill, reply: Reply
) -> AnswerEvidence:
    """Collect what a grader may look at: the answer, and the skill in the place of a workspace."""
    seen = await evidence_of(parts, trial, record, skill.root)
    return AnswerEvidence(
        **{item.name: getattr(seen, item.name) for item in fields(Evidence) if item.name != "skill"},
        skill=skill.root,
        output=reply.output,
        skill_id=skill.id,
        skill_version=skill.version,
        latency_ms=reply.latency_ms,
        sandbox=parts.sandbox,
    )


async def _grade(parts: RunParts, check: Check, evidence: AnswerEvidence) -> Grade:
    """Grade an answer; if it has no grade, also when asked again, and no answer has one, the answer is the reason."""
    ask = partial(parts.graders[check.grader].grade, check)
    try:
        return await ask(evidence)
    except GraderError as error:
        if not is_open(error) or check.params["task"].evaluator.subject == "files":
            raise
        if not await _decides(ask, replace(evidence, output=None)) or await _decides(ask, evidence):
            raise
        because = "without an answer there is a decision, so the answer is the reason"
        raise Undecidable(f"{error.message}; {because}") from error


async def _decides(ask: Callable[[AnswerEvidence], Awaitable[Grade]], evidence: AnswerEvidence) -> bool:
    try:
        await ask(evidence)
    except GraderError:
        return False
    return True


async def _reply(calling: Calling, trial: Trial, task: BenchmarkTask) -> Reply:
    if task.evaluator.subject == "files":
        # Only files of the skill are graded, so it is not called.
        return Reply(output=None, latency_ms=0.0)
    client = calling.clients[trial.key.runner]
    return await client.call(task.input, timeout_s=trial.execution.limits.timeout_s or 0)


def _keep(parts: RunParts, trial: Trial, record: AttemptRecord, reply: Reply) -> None:
    """Write the answer into the record, without secrets, and note it as a session."""
    output: Any = parts.masker.tree(reply.output)
    text = json.dumps(output, ensure_ascii=False)
    folder = parts.run_dir / record.artifact_dir
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - half the time of Path.mkdir, and there are many
    (folder / ANSWER_FILE).write_bytes(text.encode("utf-8", "backslashreplace") + b"\n")
    record.usage = reply.usage or Usage()
    record.session = SessionSummary(
        runner=trial.key.runner,
        agent=trial.execution.runner.agent,
        prompt=trial.execution.case.prompt,
        final_output=text,
        usage=record.usage,
        started_at=record.started_at,
        duration_s=reply.latency_ms / 1000,
    )


def _refuse_other_output(skill: CallableSkill, output: Any) -> None:
    problems = output_problems(skill, output)
    if problems:
        raise SkillFailed(f"its answer is not as its outputSchema says: {'; '.join(problems)}")


@dataclass(frozen=True, slots=True)
class _Unhealthy:
    """Why a skill is not healthy, and whether you can call it all the same."""

    reason: str
    callable: bool


def check_health(
    skills: Sequence[CallableSkill], sandbox: Sandbox, masker: Masker, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """Return a warning for each skill that is not healthy; raises `SuiteError` if some cannot be called."""
    found = anyio.run(_ask_all, skills, sandbox, environ)
    problems = [
        Problem(
            file=str(skill.root / MANIFEST),
            message=f"{skill.id} cannot be called: {masker.text(found[skill.id].reason)}",
            hint=_HINT,
        )
        for skill in skills
        if skill.id in found and not found[skill.id].callable
    ]
    if problems:
        raise SuiteError(problems)
    return tuple(f"{name} is not healthy: {masker.text(each.reason)}" for name, each in found.items())


async def _ask_all(
    skills: Sequence[CallableSkill], sandbox: Sandbox, environ: Mapping[str, str]
) -> dict[str, _Unhealthy]:
    found: dict[str, _Unhealthy] = {}
    room = anyio.CapacityLimiter(_ASKED_AT_ONCE)

    async def ask(skill: CallableSkill) -> None:
        async with room:
            answer = await _ask(skill, sandbox, environ)
        if answer is not None:
            found[skill.id] = answer

    try:
        async with anyio.create_task_group() as group:
            for skill in skills:
                group.start_soon(ask, skill)
    finally:
        with anyio.CancelScope(shield=True):
            await sandbox.close()
    return {skill.id: found[skill.id] for skill in skills if skill.id in found}


async def _ask(skill: CallableSkill, sandbox: Sandbox, environ: Mapping[str, str]) -> _Unhealthy | None:
    try:
        async with connect(skill, sandbox, environ) as client:
            reason = await client.health()
    except AttemptError as error:
        return _Unhealthy(error.message, callable=False)
    return None if reason is None else _Unhealthy(reason, callable=True)
