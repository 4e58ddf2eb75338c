"""What a run comes to for each runner and variant: the mean of the scores of its cases, by weight."""

from __future__ import annotations

from dataclasses import dataclass

from whet.model.event import Results


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmScore:
    """The score of one runner in one variant, over the cases that have one; none where no case has."""

    runner: str
    variant: str
    score: float | None
    cases: int


def arm_scores(results: Results) -> tuple[ArmScore, ...]:
    """A score for each runner and variant, in the order of the plan."""
    sums: dict[tuple[str, str], list[float]] = {}
    for summary in results.summaries():
        execution = summary.execution
        found = sums.setdefault((execution.runner.id, execution.variant), [0.0, 0.0, 0])
        if summary.score is not None:
            found[0] += summary.score * execution.case.weight
            found[1] += execution.case.weight
            found[2] += 1
    return tuple(
        ArmScore(runner=runner, variant=variant, score=total / weight if weight else None, cases=int(count))
        for (runner, variant), (total, weight, count) in sums.items()
    )
