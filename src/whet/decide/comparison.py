"""Decide between two arms: better, not worse, worse, or inconclusive; the lift of a skill is such a comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import erfc, inf, sqrt
from typing import TypeAlias, TypeVar

from msgspec.structs import replace

from whet.decide.difference import Difference, case_chance, chance, holm
from whet.decide.doubts import doubt_about, error_of_judge
from whet.decide.errored import ErroredOutcomes, differences, is_blameless, values_of
from whet.decide.goals import aim_at, amounts_of
from whet.decide.judging.reliance import answer_digest, judging_of, value_without_judge
from whet.decide.like_these import difference_like_these
from whet.decide.quantiles import z_of
from whet.decide.scores import Z95
from whet.decide.sequential import ALPHA, FIRST_ANALYSIS, alpha_of_each, z_after_analyses, z_at
from whet.decide.variation import Weights, shared_cases
from whet.errors import Contaminated
from whet.model.callable import Interval
from whet.model.comparison import (
    MOST_TAKEN,
    ArmSamples,
    CaseChange,
    Comparison,
    Decision,
    Errored,
    Goal,
    PairFigures,
    RunSamples,
    Sampled,
    Until,
    count_parts,
    loads_of_side,
    notes_on,
    notes_on_parts,
)
from whet.model.grade import PASSED, CaseLift, Lift
from whet.model.run import TrialResult
from whet.model.run_events import Results
from whet.model.skills import loads_of
from whet.model.suite import NO_SKILL, SKILL, edited_of, parts_of
from whet.reading.text import percent

# How much worse a candidate may be and still count as not worse, unless you say otherwise.
MARGIN = 0.05


def each_its_own(error: float) -> str:
    """Return what to know of a comparison that gives each runner an *error* of its own."""
    return f"each runner has its own {percent(error)}: with several of them, one is wrong more often than that"


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
    judge_error: float | None = None,
) -> Comparison | None:
    """Compare two arms; None if no case has a trial in both."""
    doubt = doubt_about(baseline, candidate, weights, judge_error=judge_error)
    ways = differences(baseline, candidate, weights, z=z, doubt=doubt)
    if ways is None:
        return None
    counted_difference = ways.without_errors
    verdict = decide(ways.low, ways.high, margin)
    trials = (*baseline, *candidate)
    return Comparison(
        baseline=names[0],
        candidate=names[1],
        verdict=verdict,
        difference=ways.value,
        low=ways.low,
        high=ways.high,
        margin=margin,
        level=1 - erfc(z / sqrt(2)),
        like_these=_at_least_as_wide(difference_like_these(values_of(baseline), values_of(candidate), weights), ways),
        baseline_rate=ways.rate(lambda difference: difference.baseline),
        candidate_rate=ways.rate(lambda difference: difference.candidate),
        cases=_changes(baseline, candidate, weights or {}),
        amounts=tuple(amounts_of(baseline, candidate, z)),
        errored=Errored(
            baseline=sum(trial.value is None for trial in baseline),
            candidate=sum(trial.value is None for trial in candidate),
            if_failed=_interval(ways.if_failed),
            if_passed=_interval(ways.if_passed),
            decisive=counted_difference is None
            or decide(counted_difference.low, counted_difference.high, margin) != verdict,
            blameless=sum(trial.value is None and trial.blameless for trial in trials),
        ),
        spread=(counted_difference or ways.if_failed).spread,
        trials=sum(trial.value is not None for trial in trials),
        scored=any(trial.value is not None and 0 < trial.value < 1 for trial in trials),
        contaminated=sum(trial.contaminated for trial in trials),
        loads=(*loads_of_side(names[0], baseline), *loads_of_side(names[1], candidate)),
        judging=judging_of(
            (baseline, candidate), judge_error, _favour(verdict, ways.low, ways.high, margin), ways, weights
        ),
        stretch=counted_difference.stretch if counted_difference else 1.0,
    )


def _at_least_as_wide(like_these: Interval | None, ways: ErroredOutcomes) -> Interval | None:
    """Return what holds for other cases: never more than for these, since chance moves both."""
    if like_these is None:
        return None
    return replace(like_these, low=min(like_these.low, ways.low), high=max(like_these.high, ways.high))


def _favour(verdict: Decision, low: float, high: float, margin: float) -> float | None:
    """Return by how much a judge would have to favour an arm for a decision not to hold."""
    ends: dict[Decision, float | None] = {
        "better": low,
        "not-worse": low + margin,
        "worse": -high,
        "inconclusive": None,
    }
    return ends[verdict]


def compare_candidates(
    baseline: Sequence[Sampled],
    candidates: Mapping[str, Sequence[Sampled]],
    weights: Weights | None = None,
    *,
    name: str = "baseline",
    margin: float = MARGIN,
    z_of_level: Callable[[float], float] = z_of,
    judge_error: float | None = None,
) -> dict[str, Comparison]:
    """Compare each candidate with one baseline."""
    pairs = {(name, candidate): (baseline, trials) for candidate, trials in candidates.items()}
    comparisons = compare_pairs(pairs, weights, margin=margin, z_of_level=z_of_level, judge_error=judge_error)
    return {candidate: comparison for (_, candidate), comparison in comparisons.items()}


# The names of a baseline and its candidate, and the same after the runner that they are compared on.
Pair: TypeAlias = tuple[str, str]
OnRunner: TypeAlias = tuple[str, str, str]
_Names = TypeVar("_Names", Pair, OnRunner)


def compare_pairs(
    pairs: Mapping[_Names, tuple[Sequence[Sampled], Sequence[Sampled]]],
    weights: Weights | None = None,
    *,
    margin: float = MARGIN,
    z_of_level: Callable[[float], float] = z_of,
    judge_error: float | None = None,
) -> dict[_Names, Comparison]:
    """Compare two arms at a time; all together they err as often as one comparison alone would (Holm).

    *z_of_level* says how far an interval of a level reaches, which is farther if this is one of several looks.
    """
    chances = {
        names: chance(
            values_of(first),
            values_of(second),
            weights,
            doubt=doubt_about(first, second, weights, judge_error=judge_error),
        )
        for names, (first, second) in pairs.items()
    }
    comparisons: dict[_Names, Comparison | None] = {}
    remaining = len(pairs)
    for likely in sorted(set(chances.values())):
        # Arms that are as likely have the same level, whatever their order.
        z = z_of_level(alpha_of_each(remaining))
        for names in (names for names in pairs if chances[names] == likely):
            first, second = pairs[names]
            comparison = comparisons[names] = compare_arms(
                first, second, weights, names=(names[-2], names[-1]), margin=margin, z=z, judge_error=judge_error
            )
            # Only what is decided, also if its errored trials had gone the other way, makes it easier for the next.
            remaining -= comparison is not None and (comparison.low > 0 or comparison.high < 0)
    return {names: comparison for names in pairs if (comparison := comparisons[names]) is not None}


def comparisons_of(
    samples: RunSamples,
    *,
    baseline: str | None = None,
    candidates: Sequence[str] = (),
    pairs: Sequence[Pair] = (),
    margin: float = MARGIN,
    per_runner: bool = False,
    goal: Goal | None = None,
) -> tuple[Comparison, ...]:
    """Compare arms of a run, on each runner that both have: *pairs* of them, or all others with the *baseline*.

    Without a name, the baseline is the first one. All comparisons share one error, unless *per_runner* gives each
    runner its own. With a *goal*, each says whether its candidate reaches it.
    """
    first = baseline or samples.names[0]
    # All of them, also those that are not asked for: they were tried too.
    pairs = pairs or tuple((first, name) for name in samples.names if name != first)
    against = {
        (runner, *pair): trials
        for runner in dict.fromkeys(runner for name, _ in pairs for runner in samples.of_arm(name))
        for pair in pairs
        if (trials := _on_runner(samples, pair, runner)) is not None
    }
    runners = tuple(dict.fromkeys(runner for runner, _, _ in against))
    apart = [{key: trials for key, trials in against.items() if key[0] == runner} for runner in runners]
    error_note = (each_its_own(samples.error),) if per_runner and len(runners) > 1 else ()
    comparisons: list[Comparison] = []
    for group in apart if per_runner else [against]:
        looks, z_of_level = analyses_of(samples, len(group))
        by_pair = compare_pairs(
            group, samples.weights, margin=margin, z_of_level=z_of_level, judge_error=samples.judge_error
        )
        comparisons += (
            replace(
                comparison,
                splits=count_parts(samples.splits, shared_cases_of(comparison)),
                runner=runner if runner in samples.of_arm(name) else None,
                looks=looks,
                interleaved=samples.interleaved,
                aim=None if goal is None else aim_at(goal, comparison.verdict, comparison.amounts),
                notes=(
                    *_alike(samples, before, name),
                    *_apart(samples, before, name),
                    *error_note,
                    *samples.notes,
                    *notes_on_parts(samples, shared_cases_of(comparison)),
                    *_never_loaded(samples, before, name, runner),
                ),
            )
            for (runner, before, name), comparison in by_pair.items()
            if not candidates or name in candidates
        )
    return tuple(comparisons)


def shared_cases_of(comparison: Comparison) -> tuple[str, ...]:
    """Return the cases that have a value in both arms, so that a decision is on them."""
    return tuple(case.case for case in comparison.cases if case.baseline is not None and case.candidate is not None)


def on_runners(
    samples: RunSamples, first: str
) -> Iterable[tuple[str, tuple[Sampled, ...], dict[str, tuple[Sampled, ...]]]]:
    """Yield each runner of the baseline *first*, its trials, and those of each candidate to compare them with."""
    for runner, trials in samples.of_arm(first).items():
        arms = {name: _on_runner(samples, (first, name), runner) for name in samples.names if name != first}
        yield runner, trials, {name: pair_trials[1] for name, pair_trials in arms.items() if pair_trials is not None}


def _alike(samples: RunSamples, *pair: str) -> tuple[str, ...]:
    are_alike = any(set(pair) <= set(group) for group in samples.alike)
    return ("the arms do not differ in anything",) if are_alike else ()


def _apart(samples: RunSamples, *pair: str) -> Iterable[str]:
    """Yield on which runners only one of two arms ran, and so is not compared."""
    before, after = (samples.of_arm(name) for name in pair)
    if before.keys().isdisjoint(after):
        if not samples.interleaved:
            yield f"{pair[0]} ran on {', '.join(before)}, and {pair[1]} on {', '.join(after)}"
        return
    for name, runners, other_runners in ((pair[0], before, after), (pair[1], after, before)):
        if alone := [runner for runner in runners if runner not in other_runners]:
            yield f"only {name} ran on {', '.join(alone)}, so that is not compared"


def _never_loaded(samples: RunSamples, baseline: str, candidate: str, runner: str) -> Iterable[str]:
    """Yield which of two arms has a skill that was never loaded; the candidate may have a runner of its own."""
    candidate_runner = runner if runner in samples.of_arm(candidate) else next(iter(samples.of_arm(candidate)))
    places = ((baseline, runner), (candidate, candidate_runner))
    return (
        note
        for arm_samples in samples.arms
        if (arm_samples.arm, arm_samples.runner) in places and (note := arm_samples.never_loaded)
    )


def _on_runner(samples: RunSamples, pair: Pair, runner: str) -> tuple[tuple[Sampled, ...], tuple[Sampled, ...]] | None:
    """Return the trials of a baseline on *runner*, and those of the candidate to compare them with."""
    before, after = (samples.of_arm(name) for name in pair)
    if runner not in before:
        return None
    if runner in after:
        return before[runner], after[runner]
    # Arms that differ by their runner have one each.
    return (before[runner], next(iter(after.values()))) if len(after) == 1 == len(before) else None


def analyses_of(samples: RunSamples, candidates: int = 1) -> tuple[int, Callable[[float], float]]:
    """Return how often the run was looked at, and what that means for an interval."""
    rounds_done, rounds_planned = samples.rounds, samples.rounds_planned
    if rounds_planned is not None:
        # An earlier look counts as if it were the first.
        at = max(FIRST_ANALYSIS, rounds_done)
        z = z_at(at, rounds_planned, alpha_of_each(candidates, error=samples.error))
        return at - FIRST_ANALYSIS + 1, lambda _: z
    sizes = (*samples.grown_from, rounds_done)
    return len(sizes), lambda level: z_after_analyses(sizes, level)


def samples_of(results: Results) -> RunSamples:
    """Return what the trials of a run say, its baseline first."""
    plan = results.plan
    trials: dict[tuple[str, str], list[Sampled]] = {}
    mistaken: list[tuple[str, str]] = []
    # A round that is not complete was not looked at, and does not count.
    last = results.looks[-1].round if plan.until and results.looks else inf
    arm_names = {arm.name for arm in plan.arms}
    executions = (arm_execution for arm_execution in plan.executions if arm_execution.arm in arm_names)
    for execution in sorted(executions, key=lambda arm_execution: arm_execution.arm != plan.baseline):
        arm_trials = trials.setdefault((execution.arm, execution.runner.id), [])
        if execution.case.id not in plan.voided:
            counting_results = [result for result in results.trials(execution) if result.number <= last]
            arm_trials += map(sample_trial, counting_results)
            mistaken += ((execution.case.id, execution.arm) for result in counting_results if result.mistaken)
    return RunSamples(
        name=plan.suite.name,
        arms=tuple(
            ArmSamples(arm=arm, runner=runner, trials=tuple(arm_trials)) for (arm, runner), arm_trials in trials.items()
        ),
        weights={execution.case.id: execution.case.weight for execution in plan.executions},
        splits=parts_of(plan.suite.cases),
        edited=edited_of(plan.suite.cases),
        grown_from=plan.grown_from,
        rounds_planned=plan.until.rounds if plan.until else None,
        error=plan.until.error if plan.until else ALPHA,
        interleaved=plan.seed is not None,
        judge_error=error_of_judge(plan.suite.judge),
        notes=tuple(notes_on(voided=plan.voided, missing=missing_of(results), mistaken=mistaken)),
    )


def missing_of(results: Results) -> int:
    """Return how many trials of a run have not ended; those after a look that stopped it were never due."""
    return 0 if any(look.stop for look in results.looks) else results.counts.get("not-run", 0)


def comparisons_in(results: Results) -> tuple[Comparison, ...]:
    """Return the comparisons of a run, with what a judge said of pairs; none if it has one arm."""
    plan = results.plan
    if plan.baseline is None:
        return ()
    goal = plan.until.goal if plan.until else None
    return with_pairs(comparisons_of(samples_of(results), margin=margin_of(plan.until), goal=goal), results.pairwise)


def with_pairs(comparisons: Sequence[Comparison], pairs: Sequence[PairFigures]) -> tuple[Comparison, ...]:
    """Return *comparisons*, each with what *pairs* say of its two arms at its look."""
    return tuple(
        replace(comparison, pairs=next((entry for entry in pairs if _is_of(entry, comparison)), None))
        for comparison in comparisons
    )


def _is_of(figures: PairFigures, comparison: Comparison) -> bool:
    same_arms = (figures.candidate, figures.baseline) == (comparison.candidate, comparison.baseline)
    is_at_look = figures.looks == comparison.looks and not figures.reference
    return same_arms and comparison.runner in (None, figures.runner) and is_at_look


def margin_of(until: Until | None) -> float:
    """Return how much worse still counts as not worse; a run that may stop by a margin is held to the same one."""
    return MARGIN if until is None or until.margin is None else until.margin


def sample_trial(result: TrialResult) -> Sampled:
    """Return what a trial says in a comparison."""
    # What a session takes that was ended early says nothing about the agent.
    usage, is_whole = result.usage, result.ended_early is None
    return Sampled(
        case=result.key.case,
        value=result.compared,
        cost_usd=_possible(usage.cost_usd) if is_whole else None,
        seconds=_possible(result.session_s) if is_whole else None,
        tokens=_possible(usage.reported("total_tokens")) if is_whole else None,
        steps=_possible(result.steps) if is_whole else None,
        contaminated=result.failure is not None and result.failure.code == Contaminated.code,
        loads=loads_of(result.key.arm, result.key.runner, result),
        blameless=is_blameless(result.failure),
        judged=answer_digest(result),
        round=result.number,
        held=_first_attempt_held(result),
        unjudged=value_without_judge(result),
    )


def _first_attempt_held(result: TrialResult) -> bool | None:
    """Return whether the checks of its first attempt held that did not error; None if all did."""
    return next((attempt.status in PASSED for attempt in result.attempts if attempt.status != "errored"), None)


def _possible(amount: float | None) -> float | None:
    """Return an amount that a trial can have taken; agents say what they like, and the rest of it counts."""
    return amount if amount is not None and amount <= MOST_TAKEN else None


def _interval(difference: Difference) -> Interval:
    return Interval(value=difference.value, low=difference.low, high=difference.high)


def _changes(before: Sequence[Sampled], after: Sequence[Sampled], weights: Weights) -> tuple[CaseChange, ...]:
    """Return every case that an arm has, those of both first judged together: many cases move by chance."""
    baseline, candidate = values_of(before), values_of(after)
    common_cases = shared_cases(baseline, candidate)
    chances = holm([case_chance(baseline[case], candidate[case]) for case in common_cases])
    likely = dict(zip(common_cases, chances, strict=True))
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
        # Also those that only errored.
        for case in dict.fromkeys(trial.case for trial in (*before, *after))
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def lifts_of(results: Results) -> tuple[Lift, ...]:
    """A lift for each runner that some case was run by with the skill and without; it compares the two arms."""
    has_skill = {arm.name: arm.facts().get("skill") != "none" for arm in results.plan.arms}
    if has_skill != {SKILL: True, NO_SKILL: False}:
        return ()
    triggers: dict[str, list[bool]] = {}
    arms: dict[str, dict[str, set[str]]] = {}
    for execution in results.plan.executions:
        runner, case = execution.runner.id, execution.case
        if case.id in results.plan.voided:
            continue
        arms.setdefault(runner, {}).setdefault(case.id, set()).add(execution.arm)
        apart = {check.label for check in case.checks if not check.compared}
        if apart and execution.arm == SKILL:
            trigger_grades = triggers.setdefault(runner, [])
            trigger_grades += (
                grade.passed for trial in results.trials(execution) for grade in trial.grades if grade.check in apart
            )
    lifts: list[Lift] = []
    for comparison in comparisons_in(results):
        compares = any(change.baseline is not None and change.candidate is not None for change in comparison.cases)
        if comparison.runner is None or not compares:
            continue
        cases = [case for case, case_arms in arms[comparison.runner].items() if len(case_arms) > 1]
        lifts.append(_lift(comparison, cases, triggers.get(comparison.runner, [])))
    return tuple(lifts)


def _lift(comparison: Comparison, cases: Sequence[str], triggers: Sequence[bool]) -> Lift:
    case_lifts = {
        change.case: CaseLift(case=change.case, skill=change.candidate, no_skill=change.baseline, weight=change.weight)
        for change in comparison.cases
        if change.candidate is not None and change.baseline is not None
    }
    return Lift(
        runner=comparison.runner or "",
        value=comparison.difference,
        low=comparison.low,
        high=comparison.high,
        skill=comparison.candidate_rate.value,
        no_skill=comparison.baseline_rate.value,
        cases=tuple(case_lifts.values()),
        unpaired=tuple(case for case in cases if case not in case_lifts),
        triggered=sum(triggers),
        asked=len(triggers),
    )


def lift_line(lift: Lift) -> str:
    """Return the lift in one line."""
    interval = f" ({lift.low:+.2f} to {lift.high:+.2f})" if lift.low is not None and lift.high is not None else ""
    counts = f"{lift.better} better, {lift.worse} worse, {lift.same} the same"
    unpaired_note = f"; {len(lift.unpaired)} without a score in both" if lift.unpaired else ""
    rates = f"{lift.skill:.2f} with the skill, {lift.no_skill:.2f} without"
    line = f"{lift.value:+.2f}{interval}: {rates}; {counts}{unpaired_note}"
    trigger_note = f"trigger checks: {lift.triggered} of {lift.asked} held, not counted"
    return f"{line}; {trigger_note}" if lift.asked else line
