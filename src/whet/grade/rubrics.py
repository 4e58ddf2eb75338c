"""The grader of rubrics: a judge rates each item, and the weighted mean of the ratings decides."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from whet.dataclass import dataclass
from whet.grade.grader import Evidence
from whet.grade.judge import LlmJudge
from whet.grade.judge_client import JudgeSettings, judge_settings
from whet.model.benchmark import MISSING, BenchmarkTask, Evaluator, Expected
from whet.model.eval_cases import LlmRubric, RubricItem
from whet.model.grade import Grade
from whet.model.suite import Case, Check, Suite

_CACHE = "cache_dir"


def judge_settings_of(judge: Mapping[str, Any]) -> JudgeSettings:
    """How the language model that judges is asked, as the suite was told."""
    return judge_settings({key: value for key, value in judge.items() if key != _CACHE}, cache_dir=judge.get(_CACHE))


class Judges:
    """Made when they are first asked, and kept for the run."""

    def __init__(self, judge: Mapping[str, Any]) -> None:
        self._judge = judge
        self._made: dict[JudgeSettings, LlmJudge] = {}

    def ask(self, *, model: str | None = None, votes: int | None = None) -> LlmJudge:
        """The judge that goes by *model*, or the usual one, and is asked so many times."""
        usual = judge_settings_of(self._judge)
        wanted = replace(usual, model=model or usual.model, votes=votes or usual.votes)
        if wanted not in self._made:
            self._made[wanted] = LlmJudge(wanted, os.environ)
        return self._made[wanted]

    async def release(self) -> None:
        """Let go of connections, in the event loop that they were made in."""
        made, self._made = self._made, {}
        for judge in made.values():
            await judge.close()


_DIFF_SHOWN = 20_000


@dataclass(frozen=True, slots=True)
class _Rated:
    item: RubricItem
    grade: Grade


class RubricGrader:
    """Asks a language model, item by item, so that no item colours another."""

    informs = False

    def __init__(self, suite: Suite) -> None:
        self._judges = Judges(suite.judge)

    async def survey(self, case: Case, workspace: Path, store: Path, *, timeout_s: float) -> None:
        """Nothing: the judge sees what changed."""

    async def grade(self, check: Check, evidence: Evidence) -> Grade:
        """The weighted mean over the rubric; a `JudgeFailed` where the judge gives no verdict."""
        began = time.monotonic()
        case: LlmRubric = check.params["case"]
        judge = self._judges.ask(model=case.judge.model, votes=case.judge.votes)
        rated = await _rate_all(judge, case, _shown(evidence))
        value = sum(each.grade.value * each.item.weight for each in rated) / sum(each.item.weight for each in rated)
        missed = [each for each in rated if each.item.required and each.grade.value < case.pass_threshold]
        return Grade(
            check=check.label,
            value=value,
            passed=value >= case.pass_threshold and not missed,
            reason=_reason(case, value, rated, missed),
            evidence=json.dumps([_told(each) for each in rated], ensure_ascii=False),
            duration_s=round(time.monotonic() - began, 6),
            weight=check.weight,
        )

    async def grade_all(self, checks: Sequence[Check], evidence: Evidence) -> AsyncIterator[Grade]:
        """One after the other."""
        for check in checks:
            yield await self.grade(check, evidence)

    async def release(self) -> None:
        """Let go of connections."""
        await self._judges.release()

    def close(self) -> None:
        """Nothing is left by then."""


async def _rate_all(judge: LlmJudge, case: LlmRubric, answer: str) -> list[_Rated]:
    """Every item, at the same time as far as the judge allows; in the order of the rubric."""
    rated: dict[str, _Rated] = {}

    async def rate(item: RubricItem) -> None:
        rated[item.id] = _Rated(item, await judge.grade(_task(case, item), answer))

    try:
        async with anyio.create_task_group() as group:
            for item in case.rubric:
                group.start_soon(rate, item)
    except BaseExceptionGroup as error:
        # One verdict that cannot be had is enough to have none; the first says why.
        first: BaseException = error
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None
    return [rated[item.id] for item in case.rubric]


def _task(case: LlmRubric, item: RubricItem) -> BenchmarkTask:
    return BenchmarkTask(
        id=item.id,
        description=item.description,
        input={"instruction": case.instruction, **case.inputs},
        expected=Expected(judge_prompt=item.description, value=MISSING if case.reference is None else case.reference),
        evaluator=Evaluator(kind="llm_judge", threshold=case.pass_threshold),
    )


def _shown(evidence: Evidence) -> str:
    """The answer, and what the agent did to its workspace."""
    diff = evidence.changes.diff
    if not diff:
        return evidence.session.final_output
    cut = diff if len(diff) <= _DIFF_SHOWN else f"{diff[:_DIFF_SHOWN]}\n[... {len(diff) - _DIFF_SHOWN} more characters]"
    return f"{evidence.session.final_output}\n\n[What the program changed in its files:]\n{cut}"


def _reason(case: LlmRubric, value: float, rated: list[_Rated], missed: list[_Rated]) -> str:
    told = f"{value:.2f} of the rubric, of which {case.pass_threshold:g} is needed"
    worst = min(rated, key=lambda each: each.grade.value)
    if missed:
        return f"{told}; required and missing: {'; '.join(each.item.description for each in missed)}"
    return told if worst.grade.passed else f"{told}; least: {worst.item.description}: {worst.grade.reason}"


def _told(rated: _Rated) -> dict[str, Any]:
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
