"""Decide between two arms: better, not worse, worse, or inconclusive; the lift of a skill is such a comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import erfc, sqrt

from whet.errors import Contaminated
from whet.grade.difference import (
    Difference,
    Values,
    Weights,
    case_chance,
    chance,
    difference,
    difference_like_these,
    holm,
    holm_levels,
    ratio_of_means,
    shared_cases,
)
from whet.grade.quantiles import z_of
from whet.grade.scores import Z95
from whet.grade.sequential import ALPHA, FIRST_LOOK, z_after_looks, z_at
from whet.model.benchmark import Interval
from whet.model.comparison import (
    AMOUNTS,
    Amount,
    AmountChange,
    ArmSamples,
    CaseChange,
    Comparison,
    Decision,
    Errored,
    RunSamples,
    Sampled,
)
from whet.model.event import Results
from whet.model.grade import CaseLift, Lift
from whet.model.run import TrialResult
from whet.model.suite import NO_SKILL, SKILL

# How much worse a candidate may be and still count as not worse, unless you say otherwise.
MARGIN = 0.05


def decide(low: float, high: float, margin: float) -> Decision:
    """Return what an interval of the difference says."""
    if low > 0:
        return "better"
    if low > -margin:
        return "not-worse"
    return "worse" if high < 0 else "inconclusive"


def compare_arms(
    baseline: Sequence[Sampled],
    candidate: Sequence[Sampled],
    weights: Weights | None = None,
    *,
    names: tuple[str, str] = ("baseline", "candidate"),
    margin: float = MARGIN,
    z: float = Z95,
) -> Comparison | None:
    """Compare two arms; None if no case has a trial in both."""
    if_failed, if_passed = (
        difference(values_of(baseline, errored), values_of(candidate, errored), weights, z=z) for errored in (0.0, 1.0)
    )
    if if_failed is None or if_passed is None:
        return None
    # An arm of which all trials errored says nothing, and is not left out.
    found = difference(values_of(baseline), values_of(candidate), weights, z=z) or if_failed
    low, high = min(if_failed.low, if_passed.low), max(if_failed.high, if_passed.high)
    verdict = decide(low, high, margin)
    both = (*baseline, *candidate)
    return Comparison(
        baseline=names[0],
        candidate=names[1],
        verdict=verdict,
        difference=found.value,
        low=low,
        high=high,
        margin=margin,
        level=1 - erfc(z / sqrt(2)),
        like_these=difference_like_these(values_of(baseline), values_of(candidate), weights),
        baseline_rate=found.baseline,
        candidate_rate=found.candidate,
        cases=_changes(values_of(baseline), values_of(candidate), weights or {}),
        amounts=tuple(_amounts(baseline, candidate)),
        errored=Errored(
            baseline=sum(trial.value is None for trial in baseline),
            candidate=sum(trial.value is None for trial in candidate),
            if_failed=_interval(if_failed),
            if_passed=_interval(if_passed),
            decisive=decide(found.low, found.high, margin) != verdict,
        ),
        spread=found.spread,
        trials=sum(trial.value is not None for trial in both),
        contaminated=sum(trial.contaminated for trial in both),
    )


def compare_candidates(
    baseline: Sequence[Sampled],
    candidates: Mapping[str, Sequence[Sampled]],
    weights: Weights | None = None,
    *,
    name: str = "baseline",
    margin: float = MARGIN,
    z_of_level: Callable[[float], float] = z_of,
) -> dict[str, Comparison]:
    """Compare each candidate with the baseline; all together they err as often as one alone would (Holm).

    *z_of_level* says how far an interval of a level reaches, which is farther if this is one of several looks.
    """
    chances = [chance(values_of(baseline), values_of(trials), weights) for trials in candidates.values()]
    levels = holm_levels(chances, ALPHA)
    compared = {
        candidate: compare_arms(baseline, trials, weights, names=(name, candidate), margin=margin, z=z_of_level(level))
        for (candidate, trials), level in zip(candidates.items(), levels, strict=True)
    }
    return {candidate: found for candidate, found in compared.items() if found is not None}


def comparisons_of(
    samples: RunSamples, *, baseline: str | None = None, candidates: Sequence[str] = (), margin: float = MARGIN
) -> tuple[Comparison, ...]:
    """Compare arms of a run, on each runner that both have; without names, all others with the first one."""
    first = baseline or samples.names[0]
    # All of them, also those that are not asked for: they were tried too.
    others = tuple(name for name in samples.names if name != first)
    looks, z_of_level = _looks(samples, len(others))
    found: list[Comparison] = []
    for runner, trials in samples.of_arm(first).items():
        against = {name: arm for name in others if (arm := _on_runner(samples, name, first, runner)) is not None}
        compared = compare_candidates(
            trials, against, samples.weights, name=first, margin=margin, z_of_level=z_of_level
        )
        found += (
            replace(
                each,
                runner=runner if runner in samples.of_arm(name) else None,
                looks=looks,
                interleaved=samples.interleaved,
                notes=samples.notes,
            )
            for name, each in compared.items()
            if not candidates or name in candidates
        )
    return tuple(found)


def _on_runner(samples: RunSamples, arm: str, baseline: str, runner: str) -> tuple[Sampled, ...] | None:
    """Return the trials of *arm* to compare with those of the *baseline* on *runner*."""
    found = samples.of_arm(arm)
    if runner in found:
        return found[runner]
    # Arms that differ by their runner have one each.
    return next(iter(found.values())) if len(found) == 1 == len(samples.of_arm(baseline)) else None


def _looks(samples: RunSamples, candidates: int) -> tuple[int, Callable[[float], float]]:
    """Return how often the run was looked at, and what that means for an interval."""
    done, planned = samples.rounds, samples.rounds_planned
    if planned is not None and not samples.grown_from and done >= FIRST_LOOK:
        return done - FIRST_LOOK + 1, lambda _: z_at(done, planned, ALPHA / max(1, candidates))
    sizes = (*samples.grown_from, done)
    return len(sizes), lambda level: z_after_looks(sizes, level)


def samples_of(results: Results) -> RunSamples:
    """Return what the trials of a run say, its baseline first."""
    plan = results.plan
    trials: dict[tuple[str, str], list[Sampled]] = {}
    for execution in sorted(plan.executions, key=lambda each: each.arm != plan.baseline):
        found = trials.setdefault((execution.arm, execution.runner.id), [])
        found += (sampled(result) for result in results.trials(execution))
    return RunSamples(
        name=plan.suite.name,
        arms=tuple(ArmSamples(arm=arm, runner=runner, trials=tuple(each)) for (arm, runner), each in trials.items()),
        weights={execution.case.id: execution.case.weight for execution in plan.executions},
        grown_from=plan.grown_from,
        interleaved=plan.seed is not None,
    )


def comparisons_in(results: Results) -> tuple[Comparison, ...]:
    """Return the comparisons of a run; none if it has one arm."""
    return comparisons_of(samples_of(results)) if results.plan.baseline is not None else ()


def sampled(result: TrialResult) -> Sampled:
    """Return what a trial says in a comparison."""
    usage = result.usage
    return Sampled(
        case=result.key.case,
        value=result.compared,
        cost_usd=usage.cost_usd,
        seconds=result.session_s,
        tokens=usage.total_tokens,
        steps=result.steps,
        contaminated=result.failure is not None and result.failure.code == Contaminated.code,
    )


def values_of(trials: Iterable[Sampled], errored: float | None = None) -> Values:
    """Return the values of each case; errored trials count as *errored*, or not at all."""
    values: dict[str, list[float]] = {}
    for trial in trials:
        value = errored if trial.value is None else trial.value
        if value is not None:
            values.setdefault(trial.case, []).append(value)
    return values


def _interval(found: Difference) -> Interval:
    return Interval(value=found.value, low=found.low, high=found.high)


def _changes(baseline: Values, candidate: Values, weights: Weights) -> tuple[CaseChange, ...]:
    """Return every case that an arm has, those of both first judged together: many cases move by chance."""
    both = shared_cases(baseline, candidate)
    chances = holm([case_chance(baseline[case], candidate[case]) for case in both])
    likely = dict(zip(both, chances, strict=True))
    return tuple(
        CaseChange(
            case=case,
            baseline=_mean(baseline.get(case, ())),
            candidate=_mean(candidate.get(case, ())),
            baseline_trials=len(baseline.get(case, ())),
            candidate_trials=len(candidate.get(case, ())),
            weight=weights.get(case, 1.0),
            may_be_chance=likely.get(case, 1.0) >= ALPHA,
        )
        for case in dict.fromkeys((*baseline, *candidate))
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _amounts(baseline: Sequence[Sampled], candidate: Sequence[Sampled]) -> Iterable[AmountChange]:
    """Yield what both arms took, of the trials that did not error."""
    for amount in AMOUNTS:
        first, second = _taken(baseline, amount), _taken(candidate, amount)
        cases = shared_cases(first, second)
        if any(sum(arm[case]) for arm in (first, second) for case in cases):
            yield AmountChange(
                amount=amount,
                baseline=sum(_mean(first[case]) or 0.0 for case in cases) / len(cases),
                candidate=sum(_mean(second[case]) or 0.0 for case in cases) / len(cases),
                ratio=ratio_of_means(first, second),
            )


def _taken(trials: Iterable[Sampled], amount: Amount) -> Values:
    values: dict[str, list[float]] = {}
    for trial in trials:
        taken: float | None = getattr(trial, amount)
        if taken is not None and trial.value is not None:
            values.setdefault(trial.case, []).append(taken)
    return values


def lifts_of(results: Results) -> tuple[Lift, ...]:
    """A lift for each runner that some case was run by with the skill and without; it compares the two arms."""
    given = {arm.name: arm.facts().get("skill") != "none" for arm in results.plan.arms}
    if given != {SKILL: True, NO_SKILL: False}:
        return ()
    triggers: dict[str, list[bool]] = {}
    arms: dict[str, dict[str, set[str]]] = {}
    for execution in results.plan.executions:
        runner, case = execution.runner.id, execution.case
        arms.setdefault(runner, {}).setdefault(case.id, set()).add(execution.arm)
        apart = {check.label for check in case.checks if not check.compared}
        if apart and execution.arm == SKILL:
            asked = triggers.setdefault(runner, [])
            asked += (
                each.passed for trial in results.trials(execution) for each in trial.grades if each.check in apart
            )
    return tuple(
        _lift(found, [case for case, ran in arms[found.runner].items() if len(ran) > 1], triggers.get(found.runner, []))
        for found in comparisons_in(results)
        if found.runner is not None
        and any(each.baseline is not None and each.candidate is not None for each in found.cases)
    )


def _lift(found: Comparison, both: Sequence[str], triggers: Sequence[bool]) -> Lift:
    paired = {
        each.case: CaseLift(case=each.case, skill=each.candidate, no_skill=each.baseline, weight=each.weight)
        for each in found.cases
        if each.candidate is not None and each.baseline is not None
    }
    return Lift(
        runner=found.runner or "",
        value=found.difference,
        low=found.low,
        high=found.high,
        skill=found.candidate_rate.value,
        no_skill=found.baseline_rate.value,
        cases=tuple(paired.values()),
        unpaired=tuple(case for case in both if case not in paired),
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
