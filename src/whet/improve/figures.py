"""Turn trials into what an improve run keeps of them: scores on practice cases, and the decision on held-out ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import fsum, isinf

from whet.decide.comparison import comparisons_of, margin_of
from whet.decide.errored import values_of
from whet.decide.goals import amounts_by_case
from whet.decide.improve.accept import regressions
from whet.decide.variation import Values, mean
from whet.model.callable import Interval
from whet.model.comparison import Comparison, RunSamples, Sampled, Stop, Until
from whet.record.improve.document import CURRENT, ConfirmRecord, HeldOutCase, ImproveOptions, PracticeScore


def practice_scores(trials: Mapping[str, Sequence[Sampled]]) -> dict[str, PracticeScore]:
    """Return the score of each version from its trials: the mean over cases, each case alike.

    A trial that errored counts as the others of its case, and if there are none, as those of all versions: to be
    scored on easier cases would be an advantage.
    """
    all_trials = [trial for own_trials in trials.values() for trial in own_trials]
    usual_values, usual_costs = values_of(all_trials), amounts_by_case(all_trials, "cost_usd")
    scores: dict[str, PracticeScore] = {}
    for version, own_trials in trials.items():
        values, costs = values_of(own_trials), amounts_by_case(own_trials, "cost_usd")
        scores[version] = PracticeScore(
            score=_mean_of_cases({**usual_values, **values}) or 0.0,
            trials=sum(map(len, values.values())),
            cost_usd=_mean_of_cases({**usual_costs, **costs}) if costs else None,
        )
    return scores


def _mean_of_cases(values: Values) -> float | None:
    return fsum(map(mean, values.values())) / len(values) if values else None


def until_of(options: ImproveOptions, error: float) -> Until:
    """Return when a confirm step of *options* stops, and how often it may be wrong."""
    if options.goal == "better":
        return Until(effect=options.effect, rounds=options.max_rounds, error=error)
    return Until(effect=options.effect, rounds=options.max_rounds, margin=options.margin, goal="cheaper", error=error)


def confirm_record(
    samples: RunSamples,
    until: Until,
    candidate: str,
    *,
    step: int,
    stop: Stop | None,
    protected: Collection[str] = (),
    run: str = "",
) -> ConfirmRecord:
    """Return what *samples* say of *candidate* beside the current version; *protected* cases must not regress."""
    comparisons = comparisons_of(samples, baseline=CURRENT, candidates=(candidate,), margin=margin_of(until))
    arms = {arm.arm: arm.trials for arm in samples.arms}
    counted_trials = sum(len(arm_trials) for arm_trials in arms.values())
    if not comparisons:
        return ConfirmRecord(
            step=step,
            error=until.error,
            verdict="inconclusive",
            difference=0.0,
            low=-1.0,
            high=1.0,
            trials=counted_trials,
            stop=stop,
            run=run,
        )
    comparison = comparisons[0]
    return ConfirmRecord(
        step=step,
        error=until.error,
        verdict=comparison.verdict,
        difference=comparison.difference,
        low=comparison.low,
        high=comparison.high,
        like_these=comparison.like_these,
        cost_ratio=_cost_ratio(comparison),
        looks=comparison.looks,
        trials=counted_trials,
        stop=stop,
        cases=tuple(
            HeldOutCase(case=change.case, before=change.baseline, after=change.candidate)
            for change in comparison.cases
            if change.baseline is not None and change.candidate is not None
        ),
        regressed=regressions(arms[CURRENT], arms[candidate], protected),
        run=run,
    )


def _cost_ratio(comparison: Comparison) -> Interval | None:
    ratios = [change.ratio for change in comparison.amounts if change.amount == "cost_usd"]
    ratio = next(iter(ratios), None)
    # JSON has no infinity; a ratio without an end says nothing anyway.
    return None if ratio is None or isinf(ratio.high) else ratio
