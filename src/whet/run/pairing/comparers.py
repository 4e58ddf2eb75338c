"""Who says which of two answers is better: a model that is asked directly, or an agent in a session for each order."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from whet.errors import NoVerdict
from whet.grade.evidence import Evidence
from whet.grade.judge.client import JudgeClient
from whet.grade.judge.pairs import FORM, PairChoice, PairQuestion, read_choice
from whet.grade.judge_settings import JudgeSettings, find_key, find_variable
from whet.model.run import Execution, Trial
from whet.model.suite import WorkspaceSpec
from whet.record.read.run import RecordedRun
from whet.run.attempt.grading import evidence_of
from whet.run.attempt.record import AttemptRecord
from whet.run.context import RunContext
from whet.run.pairing.targets import PairTarget


class Comparer(Protocol):
    """Chooses between two answers."""

    async def choose(self, target: PairTarget, question: PairQuestion) -> PairChoice:
        """Return which answer is better; raises `JudgeFailed`."""

    async def close(self) -> None:
        """End what it keeps open."""


class ModelComparer:
    """Asks the model of the settings."""

    def __init__(self, judge: JudgeSettings) -> None:
        variable = find_variable(judge, os.environ)
        self._client = JudgeClient(judge, find_key(judge, os.environ), variable=variable)

    async def choose(self, target: PairTarget, question: PairQuestion) -> PairChoice:
        """Return what the model says."""
        del target
        choice, _ = await self._client.fill(question.prompt(), FORM)
        return choice

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


class AgentComparer(Struct, kw_only=True):
    """Asks the agent of the runner that judges, which is shown both answers and no files."""

    context: RunContext
    record: RecordedRun
    # Where its sessions are kept.
    folder: Path
    _numbers: count[int] = field(default_factory=lambda: count(1))

    async def choose(self, target: PairTarget, question: PairQuestion) -> PairChoice:
        """Return what the agent says; one that cannot be understood is asked once more."""
        evidence = await self._evidence(target)
        assert evidence.ask is not None
        prompt = question.prompt_for_agent()
        try:
            return read_choice((await evidence.ask(evidence, prompt)).text)
        except NoVerdict as error:
            again = question.prompt_for_agent(problem=error.message)
            return read_choice((await evidence.ask(evidence, again)).text)

    async def _evidence(self, target: PairTarget) -> Evidence:
        """Return evidence without any file: both answers are in the prompt, and say what their agents changed."""
        number, result = next(self._numbers), target.candidate
        empty = self.context.scratch / f"p{number}"
        empty.mkdir()
        execution = _execution_of(self.context.plan.executions, target)
        trial = Trial(key=result.key, execution=replace(execution, workspace=WorkspaceSpec()))
        attempt = AttemptRecord(runner=result.key.runner, number=1, artifact_dir=result.artifact_dir)
        attempt.session = self.record.session(result)
        evidence = await evidence_of(self.context, trial, attempt, empty)
        return replace(evidence, events_path=None, artifact_dir=self.folder / str(number))

    async def close(self) -> None:
        """Keep nothing open."""


def _execution_of(executions: Sequence[Execution], target: PairTarget) -> Execution:
    key = target.candidate.key
    return next(entry for entry in executions if entry.key == (key.case, key.runner, key.arm))


def comparer_of(context: RunContext, record: RecordedRun, judge: JudgeSettings, folder: Path) -> Comparer:
    """Return who compares answers by the settings; sessions of an agent are kept in *folder*."""
    if context.judge is None:
        return ModelComparer(judge)
    return AgentComparer(context=context, record=record, folder=folder)
