"""The graders that a judge decides for: rubrics, item by item, and tasks of benchmarks."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import groupby
from typing import Any

from msgspec import Struct

from whet.grade.answers.compare import as_text
from whet.grade.answers.evaluators import EvaluatorGrader
from whet.grade.answers.texts import AssertionSubject, NoText, text_for_judge
from whet.grade.evidence import Evidence, GradedAnswer
from whet.grade.judge.judge import JudgingGrader, require_judgement
from whet.grade.judge.questions import Question
from whet.model.callable import MISSING, BenchmarkTask
from whet.model.eval_cases import JudgeHints, LlmRubric, RubricItem
from whet.model.grade import Changes, Grade
from whet.model.session import SessionSummary, said_in
from whet.model.suite import Check

_DIFF_SHOWN = 20_000


class _Rating(Struct, frozen=True):
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
        for (hints, focus), group in groupby(checks, key=_hints_and_focus):
            rubric_checks = list(group)
            try:
                answer = (
                    answer_text(evidence.session, evidence.changes)
                    if focus is None
                    else text_for_judge(focus, AssertionSubject.of(evidence))
                )
            except NoText as error:
                for check in rubric_checks:
                    yield Grade(check=check.label, value=0.0, passed=False, reason=str(error), weight=check.weight)
                continue
            questions = [
                _question(rubric_check.params["case"], item, answer)
                for rubric_check in rubric_checks
                for item in _items(rubric_check)
            ]
            started_at = time.monotonic()
            judgements = iter(await self.ask(questions, evidence, model=hints.model, votes=hints.votes))
            took_s = round(time.monotonic() - started_at, 6) / len(rubric_checks)
            for check in rubric_checks:
                threshold = check.params["case"].pass_threshold
                grades = [
                    require_judgement(next(judgements)).grade(threshold, majority=hints.majority) for _ in _items(check)
                ]
                yield _grade(check, list(map(_Rating, _items(check), grades)), took_s)


def _hints_and_focus(check: Check) -> tuple[JudgeHints, str | None]:
    case: LlmRubric = check.params["case"]
    return case.judge, case.focus


def _items(check: Check) -> tuple[RubricItem, ...]:
    case: LlmRubric = check.params["case"]
    return case.rubric


def _grade(check: Check, ratings: list[_Rating], duration_s: float) -> Grade:
    case: LlmRubric = check.params["case"]
    value = sum(rating.grade.value * rating.item.weight for rating in ratings) / sum(
        rating.item.weight for rating in ratings
    )
    misses = [rating for rating in ratings if rating.item.required and rating.grade.value < case.pass_threshold]
    return Grade(
        check=check.label,
        value=value,
        passed=value >= case.pass_threshold and not misses,
        # A statement is its whole rubric.
        reason=ratings[0].grade.reason if "statement" in check.params else _reason(case, value, ratings, misses),
        evidence=json.dumps([_rating_document(rating) for rating in ratings], ensure_ascii=False),
        duration_s=duration_s,
        weight=check.weight,
    )


class JudgeEvaluator(EvaluatorGrader, JudgingGrader):
    """Asks a language model about the answer to a task of a benchmark."""

    async def evaluate(self, task: BenchmarkTask, answer: GradedAnswer, timeout_s: float) -> Grade:
        """Let the judge rate the answer, within the time limits of its settings."""
        del timeout_s
        expectation = task.expected
        question = Question(
            name=task.id,
            criteria=expectation.judge_prompt or "",
            answer=as_text(answer.output),
            given=task.input,
            reference=None if expectation.value is MISSING else as_text(expectation.value),
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


def _text_in_focus(focus: str, evidence: Evidence) -> str:
    return text_for_judge(focus, AssertionSubject.of(evidence))


def answer_text(session: SessionSummary, changes: Changes) -> str:
    """Return the answer, and what the agent changed in its files."""
    diff = changes.diff
    answer = said_in(session)
    if not diff:
        return answer
    cut = diff if len(diff) <= _DIFF_SHOWN else f"{diff[:_DIFF_SHOWN]}\n[... {len(diff) - _DIFF_SHOWN} more characters]"
    return f"{answer}\n\n[What the program changed in its files:]\n{cut}"


def _reason(case: LlmRubric, value: float, ratings: list[_Rating], misses: list[_Rating]) -> str:
    """Return what misses most, and below it the figures: trials that miss the same are counted together."""
    text = f"{value:.2f} of the rubric, of which {case.pass_threshold:g} is needed"
    worst = min(ratings, key=lambda rating: rating.grade.value)
    if misses:
        named = " and ".join(f'"{rating.item.description}"' for rating in misses)
        return f"{named} {'is' if len(misses) == 1 else 'are'} required and missing\n{text}"
    return text if worst.grade.passed else f'"{worst.item.description}" is the weakest\n{worst.grade.reason}\n{text}'


def _rating_document(rating: _Rating) -> dict[str, Any]:
    item, grade = rating.item, rating.grade
    judged = json.loads(grade.evidence or "null")
    # It is the description of the item.
    judged.pop("statement", None)
    return {
        "id": item.id,
        "description": item.description,
        "weight": item.weight,
        "required": item.required,
        "value": grade.value,
        "reason": grade.reason,
        "judged": judged,
    }
