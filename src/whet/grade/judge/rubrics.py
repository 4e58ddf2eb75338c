"""The graders that a judge decides for: rubrics, item by item, and tasks of benchmarks."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import groupby
from typing import Any

from whet.dataclass import dataclass
from whet.grade.evaluator_graders import EvaluatorGrader
from whet.grade.evaluators import as_text
from whet.grade.evidence import AnswerEvidence, Evidence
from whet.grade.judge import JudgingGrader, settled
from whet.grade.judge_questions import Question
from whet.model.benchmark import MISSING, BenchmarkTask
from whet.model.eval_cases import LlmRubric, RubricItem
from whet.model.grade import Grade
from whet.model.session import said_in
from whet.model.suite import Check

_DIFF_SHOWN = 20_000


@dataclass(frozen=True, slots=True)
class _Rated:
    item: RubricItem
    grade: Grade


class RubricGrader(JudgingGrader):
    """Asks the judge, item by item, so that no item influences another."""

    async def grade(self, check: Check, evidence: Evidence) -> Grade:
        """Return the weighted mean over the rubric; raises `JudgeFailed` if the judge gives no verdict."""
        async with aclosing(self.grade_all([check], evidence)) as grades:
            return await anext(grades)

    async def grade_all(self, checks: Sequence[Check], evidence: Evidence) -> AsyncGenerator[Grade, None]:
        """Grade *checks* with the same judge at the same time; what an agent judges, one session does."""
        for hints, group in groupby(checks, key=lambda check: check.params["case"].judge):
            asked = list(group)
            answer = _shown(evidence)
            questions = [_question(each.params["case"], item, answer) for each in asked for item in _items(each)]
            began = time.monotonic()
            judged = iter(await self.ask(questions, evidence, model=hints.model, votes=hints.votes))
            took_s = round(time.monotonic() - began, 6) / len(asked)
            for check in asked:
                threshold = check.params["case"].pass_threshold
                yield _grade(
                    check, [_Rated(item, settled(next(judged)).grade(threshold)) for item in _items(check)], took_s
                )


def _items(check: Check) -> tuple[RubricItem, ...]:
    case: LlmRubric = check.params["case"]
    return case.rubric


def _grade(check: Check, rated: list[_Rated], duration_s: float) -> Grade:
    case: LlmRubric = check.params["case"]
    value = sum(each.grade.value * each.item.weight for each in rated) / sum(each.item.weight for each in rated)
    missed = [each for each in rated if each.item.required and each.grade.value < case.pass_threshold]
    return Grade(
        check=check.label,
        value=value,
        passed=value >= case.pass_threshold and not missed,
        # A statement is its whole rubric.
        reason=rated[0].grade.reason if "statement" in check.params else _reason(case, value, rated, missed),
        evidence=json.dumps([_shown_rating(each) for each in rated], ensure_ascii=False),
        duration_s=duration_s,
        weight=check.weight,
    )


class JudgeEvaluator(EvaluatorGrader, JudgingGrader):
    """Asks a language model about the answer to a task of a benchmark."""

    async def evaluate(self, task: BenchmarkTask, evidence: AnswerEvidence, timeout_s: float) -> Grade:
        """Let the judge rate the answer, within the time limits of its settings."""
        del timeout_s
        expected = task.expected
        question = Question(
            name=task.id,
            criteria=expected.judge_prompt or "",
            answer=as_text(evidence.output),
            given=task.input,
            reference=None if expected.value is MISSING else as_text(expected.value),
        )
        return await self.judge().grade(question, threshold=task.evaluator.threshold)


def _question(case: LlmRubric, item: RubricItem, answer: str) -> Question:
    return Question(
        name=item.id,
        criteria=item.description,
        answer=answer,
        given={"instruction": case.instruction, **case.inputs},
        reference=case.reference,
    )


def _shown(evidence: Evidence) -> str:
    """Return the answer, and what the agent changed in its files."""
    diff = evidence.changes.diff
    said = said_in(evidence.session)
    if not diff:
        return said
    cut = diff if len(diff) <= _DIFF_SHOWN else f"{diff[:_DIFF_SHOWN]}\n[... {len(diff) - _DIFF_SHOWN} more characters]"
    return f"{said}\n\n[What the program changed in its files:]\n{cut}"


def _reason(case: LlmRubric, value: float, rated: list[_Rated], missed: list[_Rated]) -> str:
    text = f"{value:.2f} of the rubric, of which {case.pass_threshold:g} is needed"
    worst = min(rated, key=lambda each: each.grade.value)
    if missed:
        return f"{text}; required and missing: {'; '.join(each.item.description for each in missed)}"
    return text if worst.grade.passed else f"{text}; least: {worst.item.description}: {worst.grade.reason}"


def _shown_rating(rated: _Rated) -> dict[str, Any]:
    item, grade = rated.item, rated.grade
    return {
        "id": item.id,
        "description": item.description,
        "weight": item.weight,
        "required": item.required,
        "value": grade.value,
        "reason": grade.reason,
        "judged": json.loads(grade.evidence or "null"),
    }
