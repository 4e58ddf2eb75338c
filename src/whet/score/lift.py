"""The lift of a run: what the skill adds, paired by case, with an interval."""

from __future__ import annotations

from collections.abc import Mapping

from whet.model.event import ExecutionSummary, Results
from whet.model.lift import CaseLift, Lift
from whet.model.suite import NO_SKILL, SKILL
from whet.score import mean, score_of, weighted_mean
from whet.score.resample import paired_difference

_Scores = dict[str, dict[str, float | None]]


def lifts_of(results: Results) -> tuple[Lift, ...]:
    """A lift for each runner that some case was run by in both variants; none where there is nothing to compare."""
    if not any(execution.control for execution in results.plan.executions):
        return ()
    scores: dict[str, _Scores] = {}
    weights: dict[str, float] = {}
    triggers: dict[str, list[bool]] = {}
    for summary in results.summaries():
        execution = summary.execution
        weights[execution.case.id] = execution.case.weight
        score = _compared_score(results, summary, triggers.setdefault(execution.runner.id, []))
        scores.setdefault(execution.runner.id, {}).setdefault(execution.case.id, {})[execution.variant] = score
    found = (_lift(runner, cases, weights, triggers[runner]) for runner, cases in scores.items())
    return tuple(lift for lift in found if lift is not None)


def _compared_score(results: Results, summary: ExecutionSummary, triggers: list[bool]) -> float | None:
    """The score without checks that ask about the skill itself; with the skill, *triggers* notes how those went."""
    execution = summary.execution
    apart = {check.label for check in execution.case.checks if not check.compared}
    if not apart:
        return summary.score
    scores: list[float | None] = []
    for trial in results.trials(execution):
        if trial.score is None:
            continue
        counted = [grade for grade in trial.grades if grade.check not in apart]
        # A trial in which nobody asked about the skill, such as one that was cut off, has one score either way.
        scores.append(score_of(counted) if len(counted) < len(trial.grades) else trial.score)
        if execution.variant == SKILL:
            triggers += [grade.passed for grade in trial.grades if grade.check in apart]
    return mean(score for score in scores if score is not None)


def _lift(
    runner: str, cases: Mapping[str, Mapping[str, float | None]], weights: Mapping[str, float], triggers: list[bool]
) -> Lift | None:
    both = {case: found for case, found in cases.items() if SKILL in found and NO_SKILL in found}
    paired = tuple(
        CaseLift(case=case, skill=with_it, no_skill=without, weight=weights[case])
        for case, found in both.items()
        if (with_it := found[SKILL]) is not None and (without := found[NO_SKILL]) is not None
    )
    difference = paired_difference(
        {case.case: [case.no_skill] for case in paired},
        {case.case: [case.skill] for case in paired},
        weights={case.case: case.weight for case in paired},
    )
    if difference is None:
        return None
    compared = {case.case for case in paired}
    return Lift(
        runner=runner,
        # Not -0.0, which would be told with its sign.
        value=difference.value + 0.0,
        low=difference.low,
        high=difference.high,
        skill=weighted_mean((case.skill, case.weight) for case in paired) or 0.0,
        no_skill=weighted_mean((case.no_skill, case.weight) for case in paired) or 0.0,
        cases=paired,
        unpaired=tuple(case for case in both if case not in compared),
        triggered=sum(triggers),
        asked=len(triggers),
    )


def told_lift(lift: Lift) -> str:
    """The lift in one line."""
    interval = f" ({lift.low:+.2f} to {lift.high:+.2f})" if lift.low is not None and lift.high is not None else ""
    counts = f"{lift.better} better, {lift.worse} worse, {lift.same} the same"
    rest = f"; {len(lift.unpaired)} without a score in both" if lift.unpaired else ""
    told = f"{lift.value:+.2f}{interval}: {lift.skill:.2f} with the skill, {lift.no_skill:.2f} without; {counts}{rest}"
    return f"{told}; triggered {lift.triggered} of {lift.asked}, not counted" if lift.asked else told
