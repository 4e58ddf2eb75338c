"""One attempt at a call: ask the skill, keep its answer, have it evaluated. It needs no ground to stand on."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any

from whet.agents.callable import Reply, SkillClient, output_problems
from whet.dataclass import dataclass
from whet.errors import GraderError, SkillFailed, Undecidable
from whet.grade.evaluator_graders import AnswerEvidence
from whet.grade.evidence import Evidence
from whet.model.benchmark import BenchmarkTask, CallableSkill
from whet.model.grade import FailureClass, Grade
from whet.model.run import Trial, TrialResult
from whet.model.seen import FinalOutput
from whet.model.session import SessionSummary, Usage
from whet.model.suite import Check
from whet.run.attempt_record import AttemptRecord, recording
from whet.run.grading import conclude, evidence_of, is_open, masked
from whet.run.parts import RunParts
from whet.run.trial import attempted

ANSWER_FILE = "answer.json"
_WRONG = FailureClass(id="wrong-answer", label="Wrong answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calling:
    """What calls are made with: skills and their clients by runner."""

    skills: Mapping[str, CallableSkill]
    clients: Mapping[str, SkillClient]
    # Further attempts, by runner.
    retries: Mapping[str, int]
    check_schemas: bool = False


async def call_trial(parts: RunParts, calling: Calling, trial: Trial) -> TrialResult:
    """Bring one trial to its result by calling a skill."""
    retries = calling.retries[trial.key.runner]
    return await attempted(parts, trial, partial(_attempt, parts, calling, trial), retries=retries)


async def _attempt(parts: RunParts, calling: Calling, trial: Trial, number: int) -> AttemptRecord:
    with recording(parts, trial, number) as record:
        await _call(parts, calling, trial, record)
    listener = parts.listener(trial)
    if listener is not None:
        listener(FinalOutput(text=_told(trial, record)))
    return record


def _told(trial: Trial, record: AttemptRecord) -> str:
    """A call for whoever watches: what was given, what came back, and what is wrong with it."""
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
    # Another attempt is for calls without an answer: asking until an answer is right would measure something else.
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
        # The skill is looked at and not called, so nobody waits for it.
        return Reply(output=None, latency_ms=0.0)
    client = calling.clients[trial.key.runner]
    return await client.call(task.input, timeout_s=trial.execution.limits.timeout_s or 0)


def _keep(parts: RunParts, trial: Trial, record: AttemptRecord, reply: Reply) -> None:
    """Note the answer as the session that it is, and put it into the record, without secrets."""
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
