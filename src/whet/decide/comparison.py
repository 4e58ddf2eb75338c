"""Decide between two arms: better, not worse, worse, or inconclusive; the lift of a skill is such a comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from math import erfc, inf, sqrt
from typing import TypeAlias, TypeVar

from whet.errors import Contaminated
from whet.grade.amounts import ratio_of_means
from whet.grade.difference import Difference, case_chance, chance, holm
from whet.grade.doubts import doubt_about, error_of_judge
from whet.grade.errored import Ways, differences, is_blameless, values_of
from whet.grade.like_these import difference_like_these
from whet.grade.quantiles import z_of
from whet.grade.scores import Z95
from whet.grade.sequential import ALPHA, FIRST_LOOK, alpha_of_each, z_after_looks, z_at
from whet.grade.variation import Values, Weights, shared_cases
from whet.model.benchmark import Interval
from whet.model.comparison import (
    AMOUNTS,
    MOST_TAKEN,
    Amount,
    AmountChange,
    ArmSamples,
    CaseChange,
    Comparison,
    Decision,
    Errored,
    Judging,
    RunSamples,
    Sampled,
    notes_on,
)
from whet.model.event import Results
from whet.model.grade import PASSED, CaseLift, Lift
from whet.model.run import TrialResult
from whet.model.skills import loads_of
from whet.model.suite import NO_SKILL, SKILL

# How much worse a candidate may be and still count as not worse, unless you say otherwise.
MARGIN = 0.05
_EACH_ITS_OWN = "each runner has its own 5 %: with several of them, one is wrong more often than that"
# The evidence of a judge has its votes.
_VOTES = '"votes"'


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
    found = ways.counted
    verdict = decide(ways.low, ways.high, margin)
    both = (*baseline, *candidate)
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
        baseline_rate=ways.rate(lambda each: each.baseline),
        candidate_rate=ways.rate(lambda each: each.candidate),
        cases=_changes(baseline, candidate, weights or {}),
        amounts=tuple(_amounts(baseline, candidate, z)),
        errored=Errored(
            baseline=sum(trial.value is None for trial in baseline),
            candidate=sum(trial.value is None for trial in candidate),
            if_failed=_interval(ways.if_failed),
            if_passed=_interval(ways.if_passed),
            decisive=found is None or decide(found.low, found.high, margin) != verdict,
            blameless=sum(trial.value is None and trial.blameless for trial in both),
        ),
        spread=(found or ways.if_failed).spread,
        trials=sum(trial.value is not None for trial in both),
        scored=any(trial.value is not None and 0 < trial.value < 1 for trial in both),
        contaminated=sum(trial.contaminated for trial in both),
        judging=_judging(both, judge_error, _favour(verdict, ways.low, ways.high, margin)),
        stretch=found.stretch if found else 1.0,
    )


def _at_least_as_wide(like_these: Interval | None, ways: Ways) -> Interval | None:
    """Return what holds for other cases: never more than for these, since chance moves both."""
    if like_these is None:
        return None
    return replace(like_these, low=min(like_these.low, ways.low), high=max(like_these.high, ways.high))


def _judging(trials: Sequence[Sampled], error: float | None, favour: float | None) -> Judging | None:
    answers = [(trial.case, trial.judged) for trial in trials if trial.judged is not None and trial.value is not None]
    return Judging(verdicts=len(answers), answers=len(set(answers)), error=error, favour=favour) if answers else None


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
    found = compare_pairs(pairs, weights, margin=margin, z_of_level=z_of_level, judge_error=judge_error)
    return {candidate: each for (_, candidate), each in found.items()}


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
    compared: dict[_Names, Comparison | None] = {}
    remaining = len(pairs)
    for likely in sorted(set(chances.values())):
        # Those that are as likely have the same level, whatever their order.
        z = z_of_level(alpha_of_each(remaining))
        for names in (names for names in pairs if chances[names] == likely):
            first, second = pairs[names]
            found = compared[names] = compare_arms(
                first, second, weights, names=(names[-2], names[-1]), margin=margin, z=z, judge_error=judge_error
            )
            # Only what is decided, also if its errored trials had gone the other way, makes it easier for the next.
            remaining -= found is not None and (found.low > 0 or found.high < 0)
    return {names: found for names in pairs if (found := compared[names]) is not None}


def comparisons_of(
    samples: RunSamples,
    *,
    baseline: str | None = None,
    candidates: Sequence[str] = (),
    pairs: Sequence[Pair] = (),
    margin: float = MARGIN,
    per_runner: bool = False,
) -> tuple[Comparison, ...]:
    """Compare arms of a run, on each runner that both have: *pairs* of them, or all others with the *baseline*.

    Without a name, the baseline is the first one. All comparisons share one error, unless *per_runner* gives each
    runner its own.
    """
    first = baseline or samples.names[0]
    # All of them, also those that are not asked for: they were tried too.
    pairs = pairs or tuple((first, name) for name in samples.names if name != first)
    against = {
        (runner, *pair): both
        for runner in dict.fromkeys(runner for name, _ in pairs for runner in samples.of_arm(name))
        for pair in pairs
        if (both := _on_runner(samples, pair, runner)) is not None
    }
    runners = tuple(dict.fromkeys(runner for runner, _, _ in against))
    apart = [{key: both for key, both in against.items() if key[0] == runner} for runner in runners]
    own_error = (_EACH_ITS_OWN,) if per_runner and len(runners) > 1 else ()
    found: list[Comparison] = []
    for together in apart if per_runner else [against]:
        looks, z_of_level = looks_at(samples, len(together))
        compared = compare_pairs(
            together, samples.weights, margin=margin, z_of_level=z_of_level, judge_error=samples.judge_error
        )
        found += (
            replace(
                each,
                runner=runner if runner in samples.of_arm(name) else None,
                looks=looks,
                interleaved=samples.interleaved,
                notes=(
                    *_alike(samples, before, name),
                    *_apart(samples, before, name),
                    *own_error,
                    *samples.notes,
                    *_never_loaded(samples, before, name, runner),
                ),
            )
            for (runner, before, name), each in compared.items()
            if not candidates or name in candidates
        )
    return tuple(found)


def on_runners(
    samples: RunSamples, first: str
) -> Iterable[tuple[str, tuple[Sampled, ...], dict[str, tuple[Sampled, ...]]]]:
    """Yield each runner of the baseline *first*, its trials, and those of each candidate to compare them with."""
    for runner, trials in samples.of_arm(first).items():
        arms = {name: _on_runner(samples, (first, name), runner) for name in samples.names if name != first}
        yield runner, trials, {name: both[1] for name, both in arms.items() if both is not None}


def _alike(samples: RunSamples, *pair: str) -> tuple[str, ...]:
    both = any(set(pair) <= set(group) for group in samples.alike)
    return ("the arms do not differ in anything",) if both else ()


def _apart(samples: RunSamples, *pair: str) -> Iterable[str]:
    """Yield on which runners only one of two arms ran, and so is not compared."""
    before, after = (samples.of_arm(name) for name in pair)
    if before.keys().isdisjoint(after):
        if not samples.interleaved:
            yield f"{pair[0]} ran on {', '.join(before)}, and {pair[1]} on {', '.join(after)}"
        return
    for name, own, other in ((pair[0], before, after), (pair[1], after, before)):
        if alone := [runner for runner in own if runner not in other]:
            yield f"only {name} ran on {', '.join(alone)}, so that is not compared"


def _never_loaded(samples: RunSamples, baseline: str, candidate: str, runner: str) -> Iterable[str]:
    """Yield which of two arms has a skill that was never loaded; the candidate may have a runner of its own."""
    own = runner if runner in samples.of_arm(candidate) else next(iter(samples.of_arm(candidate)))
    compared = ((baseline, runner), (candidate, own))
    return (said for each in samples.arms if (each.arm, each.runner) in compared and (said := each.never_loaded))


def _on_runner(samples: RunSamples, pair: Pair, runner: str) -> tuple[tuple[Sampled, ...], tuple[Sampled, ...]] | None:
    """Return the trials of a baseline on *runner*, and those of the candidate to compare them with."""
    before, after = (samples.of_arm(name) for name in pair)
    if runner not in before:
        return None
    if runner in after:
        return before[runner], after[runner]
    # Arms that differ by their runner have one each.
    return (before[runner], next(iter(after.values()))) if len(after) == 1 == len(before) else None


def looks_at(samples: RunSamples, candidates: int = 1) -> tuple[int, Callable[[float], float]]:
    """Return how often the run was looked at, and what that means for an interval."""
    done, planned = samples.rounds, samples.rounds_planned
    if planned is not None:
        # An earlier look counts as if it were the first.
        at = max(FIRST_LOOK, done)
        return at - FIRST_LOOK + 1, lambda _: z_at(at, planned, alpha_of_each(candidates))
    sizes = (*samples.grown_from, done)
    return len(sizes), lambda level: z_after_looks(sizes, level)


def samples_of(results: Results) -> RunSamples:
    """Return what the trials of a run say, its baseline first."""
    plan = results.plan
    trials: dict[tuple[str, str], list[Sampled]] = {}
    mistaken: list[tuple[str, str]] = []
    # A round that is not complete was not looked at, and does not count.
    last = results.looks[-1].round if plan.until and results.looks else inf
    compared = {arm.name for arm in plan.arms}
    executions = (each for each in plan.executions if each.arm in compared)
    for execution in sorted(executions, key=lambda each: each.arm != plan.baseline):
        found = trials.setdefault((execution.arm, execution.runner.id), [])
        if execution.case.id not in plan.voided:
            own = [result for result in results.trials(execution) if result.number <= last]
            found += map(sampled, own)
            mistaken += ((execution.case.id, execution.arm) for result in own if result.mistaken)
    return RunSamples(
        name=plan.suite.name,
        arms=tuple(ArmSamples(arm=arm, runner=runner, trials=tuple(each)) for (arm, runner), each in trials.items()),
        weights={execution.case.id: execution.case.weight for execution in plan.executions},
        grown_from=plan.grown_from,
        rounds_planned=plan.until.rounds if plan.until else None,
        interleaved=plan.seed is not None,
        judge_error=error_of_judge(plan.suite.judge),
        notes=tuple(notes_on(voided=plan.voided, missing=missing_of(results), mistaken=mistaken)),
    )


def missing_of(results: Results) -> int:
    """Return how many trials of a run have not ended; those after a look that stopped it were never due."""
    return 0 if any(look.stop for look in results.looks) else results.counts.get("not-run", 0)


def comparisons_in(results: Results) -> tuple[Comparison, ...]:
    """Return the comparisons of a run; none if it has one arm."""
    return comparisons_of(samples_of(results)) if results.plan.baseline is not None else ()


def sampled(result: TrialResult) -> Sampled:
    """Return what a trial says in a comparison."""
    usage = result.usage
    return Sampled(
        case=result.key.case,
        value=result.compared,
        cost_usd=_possible(usage.cost_usd),
        seconds=_possible(result.session_s),
        tokens=_possible(usage.reported("total_tokens")),
        steps=_possible(result.steps),
        contaminated=result.failure is not None and result.failure.code == Contaminated.code,
        loads=loads_of(result.key.arm, result.key.runner, result),
        blameless=is_blameless(result.failure),
        judged=_judged(result),
        round=result.number,
        held=_held(result),
    )


def _held(result: TrialResult) -> bool | None:
    """Return whether the checks of its first attempt held that did not error; None if all did."""
    return next((attempt.status in PASSED for attempt in result.attempts if attempt.status != "errored"), None)


def _judged(result: TrialResult) -> str | None:
    """Return what stands for the answer of a trial that a model judged."""
    if not any(_VOTES in (grade.evidence or "") for grade in result.grades):
        return None
    return sha256(result.final_output.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _possible(amount: float | None) -> float | None:
    """Return an amount that a trial can have taken; agents say what they like, and the rest of it counts."""
    return amount if amount is not None and amount <= MOST_TAKEN else None


def _interval(found: Difference) -> Interval:
    return Interval(value=found.value, low=found.low, high=found.high)


def _changes(before: Sequence[Sampled], after: Sequence[Sampled], weights: Weights) -> tuple[CaseChange, ...]:
    """Return every case that an arm has, those of both first judged together: many cases move by chance."""
    baseline, candidate = values_of(before), values_of(after)
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
        # Also those that only errored.
        for case in dict.fromkeys(trial.case for trial in (*before, *after))
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _amounts(baseline: Sequence[Sampled], candidate: Sequence[Sampled], z: float) -> Iterable[AmountChange]:
    """Yield what both arms took, of the trials that did not error; looks and candidates widen these intervals too."""
    for amount in AMOUNTS:
        first, second = _taken(baseline, amount), _taken(candidate, amount)
        cases = shared_cases(first, second)
        if any(sum(arm[case]) for arm in (first, second) for case in cases):
            yield AmountChange(
                amount=amount,
                baseline=sum(_mean(first[case]) or 0.0 for case in cases) / len(cases),
                candidate=sum(_mean(second[case]) or 0.0 for case in cases) / len(cases),
                ratio=ratio_of_means(first, second, z=z),
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
        if case.id in results.plan.voided:
            continue
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


def lift_line(lift: Lift) -> str:
    """Return the lift in one line."""
    interval = f" ({lift.low:+.2f} to {lift.high:+.2f})" if lift.low is not None and lift.high is not None else ""
    counts = f"{lift.better} better, {lift.worse} worse, {lift.same} the same"
    rest = f"; {len(lift.unpaired)} without a score in both" if lift.unpaired else ""
    line = f"{lift.value:+.2f}{interval}: {lift.skill:.2f} with the skill, {lift.no_skill:.2f} without; {counts}{rest}"
    held = f"trigger checks: {lift.triggered} of {lift.asked} held, not counted"
    return f"{line}; {held}" if lift.asked else line
