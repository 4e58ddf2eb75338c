"""What a run comes to for each runner and variant: the mean of the scores of its cases, by weight."""

from __future__ import annotations

from dataclasses import dataclass

from whet.model.event import Results
from whet.score import weighted_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmScore:
    """The score of one runner in one variant, over the cases that have one; none where no case has."""

    runner: str
    variant: str
    score: float | None
    cases: int


def arm_scores(results: Results) -> tuple[ArmScore, ...]:
    """A score for each runner and variant, in the order of the plan."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for summary in results.summaries():
        execution = summary.execution
        weighed = found.setdefault((execution.runner.id, execution.variant), [])
        if summary.score is not None:
            weighed.append((summary.score, execution.case.weight))
    return tuple(
        ArmScore(runner=runner, variant=variant, score=weighted_mean(weighed), cases=len(weighed))
        for (runner, variant), weighed in found.items()
    )
