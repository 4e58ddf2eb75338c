"""Call skills: each trial of an evaluation is a call whose answer is kept and graded; and check their health first."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import anyio

from whet.agents.callable import Reply, SkillClient, output_problems
from whet.agents.callable_connect import connect
from whet.agents.callable_reading import MANIFEST
from whet.errors import AttemptError, Problem, SkillFailed, SuiteError
from whet.grade.evidence import AnswerEvidence
from whet.ground.sandbox import Sandbox
from whet.ground.secrets import Masker
from whet.model.benchmark import BenchmarkTask, CallableSkill
from whet.model.grade import FailureClass
from whet.model.run import Trial, TrialResult
from whet.model.seen import FinalOutput
from whet.model.session import SessionSummary, Usage
from whet.run.attempt_record import AttemptRecord, recording
from whet.run.grading import evidence_of, grade
from whet.run.parts import RunParts
from whet.run.trial import attempt_with_retries

ANSWER_FILE = "answer.json"
_WRONG = FailureClass(id="wrong-answer", label="Wrong answer")
_ASKED_AT_ONCE = 8
_HINT = "correct or start it, leave it out, or add --no-health-check: its calls are then errored"


class Calls:
    """Runs trials by calling skills, with one client for each skill."""

    def __init__(self, skills: Sequence[CallableSkill], *, check_schemas: bool) -> None:
        self._skills = {skill.id: skill for skill in skills}
        self._clients: dict[str, SkillClient] = {}
        self._check_schemas = check_schemas

    @asynccontextmanager
    async def connected(self, parts: RunParts) -> AsyncIterator[None]:
        """Connect to every skill, for the whole run."""
        async with AsyncExitStack() as stack:
            for name, skill in self._skills.items():
                client = connect(skill, parts.sandbox, parts.environ, parts.ceilings, parts.scratch)
                self._clients[name] = await stack.enter_async_context(client)
            yield

    async def run_trial(self, parts: RunParts, trial: Trial) -> TrialResult:
        """Call the skill of the trial; without an answer, call it again as often as its retries allow."""
        retries: int = trial.execution.runner.options["retries"]
        return await attempt_with_retries(parts, trial, partial(self._attempt, parts, trial), retries=retries)

    async def _attempt(self, parts: RunParts, trial: Trial, number: int) -> AttemptRecord:
        with recording(parts, trial, number) as record:
            await self._call(parts, trial, record)
        listener = parts.listener(trial)
        if listener is not None:
            listener(FinalOutput(text=_describe(trial, record)))
        return record

    async def _call(self, parts: RunParts, trial: Trial, record: AttemptRecord) -> None:
        (check,), skill = trial.execution.case.checks, self._skills[trial.key.runner]
        task: BenchmarkTask = check.params["task"]
        if task.evaluator.subject == "files":
            # Only files of the skill are graded, so it is not called.
            reply = Reply(output=None, latency_ms=0.0)
        else:
            timeout_s = trial.execution.limits.timeout_s or 0
            reply = await self._clients[skill.id].call(task.input, timeout_s=timeout_s)
        _keep(parts, trial, record, reply)
        if self._check_schemas and task.evaluator.subject == "output":
            problems = output_problems(skill, reply.output)
            if problems:
                raise SkillFailed(f"its answer is not as its outputSchema says: {'; '.join(problems)}")
        evidence = AnswerEvidence.of(
            await evidence_of(parts, trial, record, skill.root),
            skill=skill.root,
            output=reply.output,
            skill_id=skill.id,
            skill_version=skill.version,
            latency_ms=reply.latency_ms,
            sandbox=parts.sandbox,
        )
        await grade(parts, trial, record, evidence)
        if record.failure is not None:
            record.failure_class = _WRONG
        # Only calls without an answer are retried: asking until an answer is right would measure something else.
        record.retry = False


def _describe(trial: Trial, record: AttemptRecord) -> str:
    """Describe a call for people who watch: its input, its answer, and what is wrong with it."""
    answer = record.session.final_output if record.session else "no answer"
    wrong = f": {record.failure.message}" if record.failure else ""
    return f"{trial.execution.case.prompt} gives {answer}{wrong}"


def _keep(parts: RunParts, trial: Trial, record: AttemptRecord, reply: Reply) -> None:
    """Write the answer into the record, without secrets, and note it as a session."""
    text = json.dumps(parts.masker.tree(reply.output), ensure_ascii=False)
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


def check_health(
    skills: Sequence[CallableSkill], sandbox: Sandbox, masker: Masker, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """Return a warning for each skill that is not healthy; raises `SuiteError` if some cannot be called."""
    found = anyio.run(_ask_all, skills, sandbox, environ)
    answers = [(skill, found[skill.id]) for skill in skills if skill.id in found]
    problems = [
        Problem(
            file=str(skill.root / MANIFEST),
            message=f"{skill.id} cannot be called: {masker.text(error.message)}",
            hint=_HINT,
        )
        for skill, error in answers
        if isinstance(error, AttemptError)
    ]
    if problems:
        raise SuiteError(problems)
    return tuple(f"{skill.id} is not healthy: {masker.text(str(reason))}" for skill, reason in answers)


async def _ask_all(
    skills: Sequence[CallableSkill], sandbox: Sandbox, environ: Mapping[str, str]
) -> dict[str, str | AttemptError]:
    """Return why skills are not healthy, by id: what they say, or the error if they cannot be called."""
    found: dict[str, str | AttemptError] = {}
    room = anyio.CapacityLimiter(_ASKED_AT_ONCE)

    async def ask(skill: CallableSkill) -> None:
        try:
            async with room, connect(skill, sandbox, environ) as client:
                reason = await client.health()
        except AttemptError as error:
            found[skill.id] = error
        else:
            if reason is not None:
                found[skill.id] = reason

    try:
        async with anyio.create_task_group() as group:
            for skill in skills:
                group.start_soon(ask, skill)
    finally:
        with anyio.CancelScope(shield=True):
            await sandbox.close()
    return found
