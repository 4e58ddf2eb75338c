"""The graders of benchmark tasks, one for each kind of evaluator; the judge is in `whet.grade.rubrics`."""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any

from whet.errors import GraderError
from whet.grade.custom import find_scorer, run_scorer
from whet.grade.evaluators import PLAIN, regex
from whet.grade.evidence import Evidence
from whet.grade.grader import Grader, WorkerGrader
from whet.ground.sandbox import Sandbox
from whet.ground.workers import Printed
from whet.model import plugins, wire
from whet.model.benchmark import MISSING, BenchmarkTask, Evaluator, Expected
from whet.model.grade import Grade
from whet.model.suite import Check, Suite

SLOW_PATTERN = "nested repetitions such as (a+)+ take for ever; write the pattern without them"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerEvidence(Evidence):
    """What a callable skill answered, with secrets still in it; `skill` is its folder."""

    output: Any
    skill_id: str
    skill_version: str = ""
    latency_ms: float | None = None
    sandbox: Sandbox

    @classmethod
    def of(cls, evidence: Evidence) -> AnswerEvidence:
        """Return *evidence* as an answer: if an agent worked, that is the text that it ended with."""
        if isinstance(evidence, AnswerEvidence):
            return evidence
        return cls(
            **{item.name: getattr(evidence, item.name) for item in fields(Evidence)},
            output=evidence.session.final_output,
            skill_id=evidence.session.runner,
            sandbox=plugins.find("sandboxes", evidence.shell.sandbox)(),
        )


class EvaluatorGrader(Grader):
    """Decides a task of a benchmark by its evaluator; there is one grader for each kind of evaluator."""

    async def grade(self, check: Check, evidence: Evidence) -> Grade:
        """Grade an answer; raises `GraderError` if the evaluator breaks, which says nothing about the skill."""
        task: BenchmarkTask = check.params["task"]
        own_ms = task.evaluator.timeout_ms
        began = time.monotonic()
        limit_s = evidence.timeout_s if own_ms is None else own_ms / 1000
        grade = await self.evaluate(task, AnswerEvidence.of(evidence), limit_s)
        duration_s = round(time.monotonic() - began, 6)
        return replace(grade, check=check.label, duration_s=duration_s, weight=check.weight)

    @abstractmethod
    async def evaluate(self, task: BenchmarkTask, evidence: AnswerEvidence, timeout_s: float) -> Grade:
        """Grade an answer by the evaluator of *task*."""


class PlainEvaluator(EvaluatorGrader):
    """Compares the answer at once."""

    async def evaluate(self, task: BenchmarkTask, evidence: AnswerEvidence, timeout_s: float) -> Grade:
        """Compare the answer with what is expected."""
        del timeout_s
        return PLAIN[task.evaluator.kind](evidence.output, task.expected, task.evaluator)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    output: Any
    patterns: tuple[str, ...]
    evaluator: Evaluator


@dataclass(frozen=True, slots=True, kw_only=True)
class _Searched:
    grade: Grade | None = None
    trouble: str = ""


class RegexEvaluator(EvaluatorGrader, WorkerGrader):
    """Searches in a worker, because a pattern may search for ever."""

    def __init__(self, suite: Suite) -> None:
        WorkerGrader.__init__(self, suite, _serve)

    async def evaluate(self, task: BenchmarkTask, evidence: AnswerEvidence, timeout_s: float) -> Grade:
        """Search for the patterns of *task*."""
        request = _Search(output=evidence.output, patterns=task.expected.patterns, evaluator=task.evaluator)
        searched = await self.ask(
            request, _Searched, timeout_s=timeout_s, what="the search for patterns", hint=SLOW_PATTERN
        )
        if searched.grade is None:
            raise GraderError(f"the search for patterns failed: {searched.trouble}")
        return searched.grade


def _serve(request: bytes, printed: Printed) -> bytes:
    del printed
    asked = wire.decode_exact(request, _Search)
    try:
        searched = _Searched(grade=regex(asked.output, Expected(patterns=asked.patterns), asked.evaluator))
    except Exception as error:  # noqa: BLE001 - the grader reports it
        searched = _Searched(trouble=f"{type(error).__name__}: {error}")
    return wire.encode_exact(searched)


class CustomEvaluator(EvaluatorGrader):
    """Runs a scorer of the benchmark's author inside the sandbox."""

    async def evaluate(self, task: BenchmarkTask, evidence: AnswerEvidence, timeout_s: float) -> Grade:
        """Let the author's scorer decide; it sees its own folder and the skill."""
        return await run_scorer(
            find_scorer(task.expected.custom_scorer or "", self.suite.source.parent),
            _context(task, evidence),
            evidence.sandbox,
            timeout_s=timeout_s,
            readable=(evidence.skill,) if evidence.skill else (),
        )


def _context(task: BenchmarkTask, evidence: AnswerEvidence) -> dict[str, Any]:
    """Return what a scorer of the author gets."""
    return {
        "output": evidence.output,
        "expected": _expectation(task.expected),
        "input": dict(task.input),
        "task": task.id,
        "latencyMs": evidence.latency_ms,
        "skill": {
            "id": evidence.skill_id,
            "version": evidence.skill_version,
            "path": str(evidence.skill) if evidence.skill else None,
        },
    }


def _expectation(expected: Expected) -> dict[str, Any]:
    """As it was written, without what was not."""
    written = {
        "value": expected.value,
        "keywords": list(expected.keywords) or MISSING,
        "patterns": list(expected.patterns) or MISSING,
        "schema": MISSING if expected.schema is None else expected.schema,
    }
    return {name: value for name, value in written.items() if value is not MISSING}
