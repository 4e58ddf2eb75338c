"""All evaluators of a run behind one call: a task and an answer in, a grade out."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from whet.errors import GraderError
from whet.grade.evaluate.custom import CustomGrader, find_grader, run_grader
from whet.grade.evaluate.limited import LimitedRegex
from whet.grade.evaluate.plain import PLAIN
from whet.model.benchmark import MISSING, BenchmarkTask, Expected
from whet.model.grade import Grade
from whet.sandbox.base import Sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What a skill answered, and who it is; `skill_dir` is where its files lie, if it has any."""

    output: Any
    skill: str
    skill_version: str = ""
    skill_dir: Path | None = None
    latency_ms: float | None = None


class Judge(Protocol):
    """Whoever grades by asking a language model."""

    async def grade(self, task: BenchmarkTask, output: Any) -> Grade:
        """The grade; a `JudgeFailed` where there is none."""


class Evaluators:
    """To be made before the event loop starts, because it may fork; what can be wrong is found then."""

    def __init__(self, tasks: Iterable[BenchmarkTask], folder: Path, judge: Judge | None = None) -> None:
        known = list(tasks)
        self._graders: dict[str, CustomGrader] = {
            task.id: find_grader(task.expected.custom_scorer or "", folder)
            for task in known
            if task.evaluator.kind == "custom"
        }
        self._judge = judge
        searches = any(task.evaluator.kind == "regex" for task in known)
        self._regex = LimitedRegex() if searches else None

    async def evaluate(self, task: BenchmarkTask, answered: Answered, sandbox: Sandbox, *, timeout_s: float) -> Grade:
        """The grade of an answer; a `GraderError` where the evaluator broke, which says nothing about the skill."""
        began = time.monotonic()
        own = task.evaluator.timeout_ms
        grade = await self._evaluate(task, answered, sandbox, timeout_s if own is None else own / 1000)
        return replace(grade, duration_s=round(time.monotonic() - began, 6), weight=task.weight)

    async def _evaluate(self, task: BenchmarkTask, answered: Answered, sandbox: Sandbox, timeout_s: float) -> Grade:
        match task.evaluator.kind:
            case "regex":
                assert self._regex is not None
                return await self._regex.evaluate(answered.output, task.expected, task.evaluator, timeout_s=timeout_s)
            case "llm_judge":
                if self._judge is None:
                    raise GraderError("this task is graded by a language model, and none is set up")
                return await self._judge.grade(task, answered.output)
            case "custom":
                readable = (answered.skill_dir,) if answered.skill_dir else ()
                return await run_grader(
                    self._graders[task.id],
                    _context(task, answered),
                    sandbox,
                    timeout_s=timeout_s,
                    readable=readable,
                )
            case kind:
                return PLAIN[kind](answered.output, task.expected, task.evaluator)

    def close(self) -> None:
        """Let go of what it holds."""
        if self._regex is not None:
            self._regex.close()


def _context(task: BenchmarkTask, answered: Answered) -> dict[str, Any]:
    """What a grader of the author's is told."""
    return {
        "output": answered.output,
        "expected": _expectation(task.expected),
        "input": dict(task.input),
        "task": task.id,
        "latencyMs": answered.latency_ms,
        "skill": {
            "id": answered.skill,
            "version": answered.skill_version,
            "path": str(answered.skill_dir) if answered.skill_dir else None,
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
