"""The graders that a judge decides for: rubrics, item by item, and tasks of benchmarks."""

from __future__ import annotations

import json
import time
from typing import Any

import anyio

from whet.dataclass import dataclass
from whet.grade.evaluator_graders import EvaluatorGrader
from whet.grade.evaluators import as_text
from whet.grade.evidence import AnswerEvidence, Evidence
from whet.grade.judge import JudgingGrader, LlmJudge
from whet.grade.judge_questions import Question
from whet.model.benchmark import MISSING, BenchmarkTask
from whet.model.eval_cases import LlmRubric, RubricItem
from whet.model.grade import Grade
from whet.model.suite import Check

_DIFF_SHOWN = 20_000


@dataclass(frozen=True, slots=True)
class _Rated:
    item: RubricItem
    grade: Grade


class RubricGrader(JudgingGrader):
    """Asks a language model, item by item, so that no item influences another."""

    async def grade(self, check: Check, evidence: Evidence) -> Grade:
        """Return the weighted mean over the rubric; raises `JudgeFailed` if the judge gives no verdict."""
        began = time.monotonic()
        case: LlmRubric = check.params["case"]
        judge = self.judge(model=case.judge.model, votes=case.judge.votes)
        rated = await _rate_all(judge, case, _shown(evidence))
        value = sum(each.grade.value * each.item.weight for each in rated) / sum(each.item.weight for each in rated)
        missed = [each for each in rated if each.item.required and each.grade.value < case.pass_threshold]
        return Grade(
            check=check.label,
            value=value,
            passed=value >= case.pass_threshold and not missed,
            reason=_reason(case, value, rated, missed),
            evidence=json.dumps([_shown_rating(each) for each in rated], ensure_ascii=False),
            duration_s=round(time.monotonic() - began, 6),
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


async def _rate_all(judge: LlmJudge, case: LlmRubric, answer: str) -> list[_Rated]:
    """Rate all items, as many at the same time as the judge allows; return them in the order of the rubric."""
    rated: dict[str, _Rated] = {}

    async def rate(item: RubricItem) -> None:
        rated[item.id] = _Rated(item, await judge.grade(_question(case, item, answer), threshold=case.pass_threshold))

    try:
        async with anyio.create_task_group() as group:
            for item in case.rubric:
                group.start_soon(rate, item)
    except BaseExceptionGroup as error:
        # Without one of the verdicts there is no grade; the first error says why.
        first: BaseException = error
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None
    return [rated[item.id] for item in case.rubric]


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
    if not diff:
        return evidence.session.final_output
    cut = diff if len(diff) <= _DIFF_SHOWN else f"{diff[:_DIFF_SHOWN]}\n[... {len(diff) - _DIFF_SHOWN} more characters]"
    return f"{evidence.session.final_output}\n\n[What the program changed in its files:]\n{cut}"


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
