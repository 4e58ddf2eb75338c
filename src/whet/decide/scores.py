"""Turn grades into scores, and verdicts into rates with honest intervals: pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import frexp, ldexp, sqrt

from msgspec import Struct
from msgspec.structs import astuple, replace

from whet.errors import UsageError
from whet.model.callable import Sample
from whet.model.grade import AS_EXPECTED, Grade, Rate, Status
from whet.model.run_events import Results
from whet.reading.fields import is_number

# The two-sided 95 % quantile of the normal distribution.
Z95 = 1.959963984540054


def score_of(grades: Sequence[Grade]) -> float | None:
    """Return the weighted mean of the grades; None without grades."""
    return weighted_mean((grade.value, grade.weight) for grade in grades)


def weighted_mean(pairs: Iterable[tuple[float, float]]) -> float | None:
    """Return the mean of (value, weight) pairs; None if all weights are 0."""
    entries = list(pairs)
    unit = weight_unit(weight for _, weight in entries)
    shares = [(value, weight / unit) for value, weight in entries]
    total = sum(share for _, share in shares)
    return sum(value * share for value, share in shares) / total if total > 0 else None


def weight_unit(weights: Iterable[float]) -> float:
    """Return what to divide weights by before adding them, because a sum of large ones may overflow.

    The unit is a power of two, so that nothing is rounded.
    """
    largest = max(weights, default=0.0)
    return ldexp(1.0, frexp(largest)[1] - 1) if largest > 0 else 1.0


def mean(values: Iterable[float]) -> float | None:
    """Return the mean; None of no values."""
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else None


def rate_of(trials: Sequence[tuple[Status, Status]], successes: Collection[Status] = AS_EXPECTED) -> Rate | None:
    """Return the rate of trials, from how each and its first attempt ended; none if none counts."""
    ends = [end for end, _ in trials]
    firsts = [first for _, first in trials if first != "errored"]
    passes, errors = sum(end in successes for end in ends), ends.count("errored")
    if errors == len(ends):
        return None
    first_passed = sum(first in successes for first in firsts)
    flaky = sum(end in successes and first not in successes for end, first in trials)
    rate = wilson(passes, len(ends) - errors, errored=errors)
    return replace(rate, first_passed=first_passed, first_total=len(firsts), flaky=flaky)


def wilson(passed: int, total: int, *, errored: int = 0) -> Rate:
    """Return the share of successes with Wilson's 95 % interval, which is honest for few trials and at 0 and 1."""
    if total <= 0:
        raise ValueError("a rate needs at least one trial")
    share = passed / total
    low, high = wilson_interval(share, total)
    return Rate(
        passed=passed,
        total=total,
        value=share,
        low=low,
        high=high,
        errored=errored,
        if_errored_failed=passed / (total + errored),
        if_errored_passed=(passed + errored) / (total + errored),
        first_passed=passed,
        first_total=total,
        flaky=0,
    )


def wilson_interval(share: float, total: float, z: float = Z95) -> tuple[float, float]:
    """Return Wilson's interval of a share; *total* may be an effective number of trials, such as 7.5."""
    z2 = z * z
    middle = (share + z2 / (2 * total)) / (1 + z2 / total)
    half = z / (1 + z2 / total) * sqrt(share * (1 - share) / total + z2 / (4 * total * total))
    low = 0.0 if share <= 0 else max(0.0, min(share, middle - half))
    high = 1.0 if share >= 1 else min(1.0, max(share, middle + half))
    return low, high


def combined_status(statuses: Iterable[Status]) -> Status | None:
    """Return the worst status of several trials; failed is worse than errored."""
    distinct = set(statuses)
    worst_first: tuple[Status, ...] = ("failed", "unexpected-passed", "errored", "expected-failed", "passed")
    return next((status for status in worst_first if status in distinct), None)


def drop_errored(samples: Iterable[Sample]) -> list[Sample]:
    """Return the samples that say something about the skill."""
    return [sample for sample in samples if sample.status != "errored"]


def by_task(samples: Iterable[Sample]) -> dict[str, list[Sample]]:
    """Return the counted samples of each task, in the order of the first samples."""
    samples_by_task: dict[str, list[Sample]] = {}
    for sample in drop_errored(samples):
        samples_by_task.setdefault(sample.task, []).append(sample)
    return samples_by_task


class Weights(Struct, frozen=True, kw_only=True):
    """How much each part of the composite counts; they are divided by their sum."""

    completion: float = 0.5
    speed: float = 0.2
    reliability: float = 0.3
    consistency: float = 0.0

    def __post_init__(self) -> None:
        values = astuple(self)
        if not all(is_number(value) and value >= 0 for value in values) or not any(values):
            raise UsageError("the weights of the composite must be at least 0, and one of them more than 0")


def composite(
    weights: Weights, *, completion: float, speed: float, error_rate: float, consistency: float | None
) -> float:
    """Return the weighted mean of completion, speed, reliability and consistency, if that is known.

    Consistency counts only as far as calls are answered: a skill that never answers is consistent, and of no use.
    """
    reliability = 1 - error_rate
    parts = [(completion, weights.completion), (speed, weights.speed), (reliability, weights.reliability)]
    if consistency is not None:
        parts.append((consistency * reliability, weights.consistency))
    return weighted_mean(parts) or 0.0


class ArmScore(Struct, frozen=True, kw_only=True):
    """The score of one runner in one arm, over the cases that have a score."""

    runner: str
    arm: str
    score: float | None
    cases: int


def arm_scores(results: Results) -> tuple[ArmScore, ...]:
    """Return a score for each runner and arm, in the order of the plan."""
    scores_by_arm: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for summary in results.summaries():
        execution = summary.execution
        pairs = scores_by_arm.setdefault((execution.runner.id, execution.arm), [])
        if summary.score is not None:
            pairs.append((summary.score, execution.case.weight))
    return tuple(
        ArmScore(runner=runner, arm=arm, score=weighted_mean(pairs), cases=len(pairs))
        for (runner, arm), pairs in scores_by_arm.items()
    )
