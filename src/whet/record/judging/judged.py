"""Read what a judge decided from the record of a run: one unit for each statement on a trial."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from statistics import mean
from typing import Any

from msgspec import Struct

from whet.decide.judging.units import JudgedUnit, UnitKey
from whet.grade.judge.questions import Vote
from whet.model import codec
from whet.model.grade import Grade
from whet.model.run import TrialResult
from whet.record.read.run import RecordedRun

# Evidence without it is of no judge.
_MARK = '"judge_id"'


class RecordedJudgement(Struct):
    """What the evidence of a grade says that a judge decided."""

    votes: tuple[Vote, ...]
    judge_id: str
    statement_id: str
    answer_id: str
    judge: dict[str, Any]
    statement: str = ""
    flags: tuple[str, ...] = ()


class _ItemInRecord(Struct):
    judged: RecordedJudgement
    id: str = ""
    description: str = ""
    value: float = 0.0
    reason: str = ""


def judged_units(*runs: RecordedRun) -> list[JudgedUnit]:
    """Return what a judge decided on the trials of *runs* that count in comparisons, in the order of their cases."""
    units: list[JudgedUnit] = []
    for run in runs:
        places = {case: number for number, case in enumerate(run.asked.weights)}
        results = sorted(run.counting_results(), key=lambda result: (places.get(result.key.case, 0), *_order(result)))
        units += _units(run.run_dir.name, results, run.asked.weights)
    return units


def units_of_trial(run: str, result: TrialResult) -> list[JudgedUnit]:
    """Return what a judge decided on one trial of the run called *run*."""
    return list(_units(run, [result], {}))


def _order(result: TrialResult) -> tuple[str, str, int]:
    return result.key.runner, result.key.arm, result.key.number


def _units(run: str, results: Iterable[TrialResult], weights: Mapping[str, float]) -> Iterator[JudgedUnit]:
    units: dict[UnitKey, JudgedUnit] = {}
    for result in results:
        for grade in result.grades:
            for unit in _of_grade(run, result, grade, weights.get(result.key.case, 1.0)):
                # The same statement twice on one trial is one statement.
                units.setdefault(unit.key, unit)
    yield from units.values()


def _of_grade(run: str, result: TrialResult, grade: Grade, weight: float) -> Iterator[JudgedUnit]:
    key = result.key
    items = _items(grade)
    for item in items:
        judged = item.judged
        ratings = tuple(vote.verdict.rating for vote in judged.votes)
        threshold = float(judged.judge.get("threshold") or 0.0)
        yield JudgedUnit(
            run=run,
            suite=key.suite,
            key=UnitKey(
                case=key.case,
                runner=key.runner,
                arm=key.arm,
                trial=key.number,
                check=grade.check,
                item=item.id if len(items) > 1 else "",
            ),
            attempt=result.attempts[-1].number if result.attempts else 1,
            statement=item.description or judged.statement or grade.check,
            passed=item.value >= threshold,
            rating=mean(ratings),
            threshold=threshold,
            ratings=ratings,
            reason=item.reason,
            flags=judged.flags,
            statement_id=judged.statement_id,
            answer_id=judged.answer_id,
            judge_id=judged.judge_id,
            judge=judged.judge,
            artifact_dir=result.artifact_dir,
            weight=weight,
        )


def _items(grade: Grade) -> tuple[_ItemInRecord, ...]:
    """Return the judgements that a grade holds: items of a rubric, or one of its own; none if nobody judged."""
    if grade.evidence is None or _MARK not in grade.evidence:
        return ()
    try:
        if grade.evidence.startswith("["):
            items = codec.decode(grade.evidence, tuple[_ItemInRecord, ...])
        else:
            judged = codec.decode(grade.evidence, RecordedJudgement)
            items = (_ItemInRecord(judged=judged, value=grade.value, reason=grade.reason),)
    except codec.WireError:
        # What looks like a judge's evidence may be a text that a check kept.
        return ()
    return tuple(item for item in items if item.judged.votes)
