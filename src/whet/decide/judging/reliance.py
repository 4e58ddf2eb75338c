"""How far a decision rests on a judge: what part of the difference is its, and how wrong it would have to be."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from math import isclose

from msgspec.structs import replace

from whet.decide.difference import difference
from whet.decide.doubts import ASSUMED_ERROR
from whet.decide.errored import ErroredOutcomes, values_of
from whet.decide.scores import score_of
from whet.decide.variation import Weights
from whet.model.comparison import Judging, Sampled
from whet.model.grade import Grade
from whet.model.run import TrialResult

# The evidence of a judge has its votes.
_VOTES = '"votes"'


def is_judged(grade: Grade) -> bool:
    """Return whether a model decided a check."""
    return grade.evidence is not None and _VOTES in grade.evidence


def answer_digest(result: TrialResult) -> str | None:
    """Return what identifies the answer of a trial that a model judged."""
    if not any(map(is_judged, result.grades)):
        return None
    return sha256(result.final_output.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def value_without_judge(result: TrialResult) -> float | None:
    """Return how a trial would count had its judge called everything true; None if nobody judged it."""
    value = result.compared
    if value is None or not any(map(is_judged, result.grades)):
        return None
    if result.failure is not None and not result.failure.is_of_checks:
        # Something else than a check decided.
        return value
    score = score_of(result.grades)
    favoured = [replace(grade, value=1.0, passed=True) if is_judged(grade) else grade for grade in result.grades]
    if 0 < value < 1 or (score is not None and isclose(score, value)):
        return score_of(favoured)
    return float(all(grade.passed for grade in favoured))


def judging_of(
    arms: tuple[Sequence[Sampled], Sequence[Sampled]],
    error: float | None,
    favour: float | None,
    ways: ErroredOutcomes,
    weights: Weights | None,
) -> Judging | None:
    """Return what a judge has to do with the difference of two arms; None if no trial was judged by a model.

    *favour* is by how much it would have to favour an arm for the decision not to hold.
    """
    trials = (*arms[0], *arms[1])
    answers = [(trial.case, trial.judged) for trial in trials if trial.judged is not None and trial.value is not None]
    if not answers:
        return None
    return Judging(
        verdicts=len(answers),
        answers=len(set(answers)),
        error=ASSUMED_ERROR if error is None else error,
        assumed=error is None,
        favour=favour,
        of_failures=_of_failures(favour, ways),
        share=_share(arms, weights),
    )


def _of_failures(favour: float | None, ways: ErroredOutcomes) -> float | None:
    """Return the share of failures that a judge would have to pass for such a favour; above 1 if all are too few."""
    if favour is None:
        return None
    arm = ways.rate(lambda way: way.baseline if ways.value >= 0 else way.candidate)
    return favour / (1 - arm.value) if arm.value < 1 else None


def _share(arms: tuple[Sequence[Sampled], Sequence[Sampled]], weights: Weights | None) -> float | None:
    """Return the part of a difference that is not there had the judge called everything true; None without one."""
    whole = difference(values_of(arms[0]), values_of(arms[1]), weights)
    before, after = values_of(map(_without_judge, arms[0])), values_of(map(_without_judge, arms[1]))
    others = difference(before, after, weights)
    if whole is None or others is None or isclose(whole.value, 0.0, abs_tol=1e-12):
        return None
    return min(1.0, max(0.0, 1 - others.value / whole.value))


def _without_judge(trial: Sampled) -> Sampled:
    return trial if trial.unjudged is None else replace(trial, value=trial.unjudged)
