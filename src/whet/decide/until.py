"""Analyse a run after one of its rounds (an interim analysis), and say whether it may stop.

A comparison is decided if its interval, as wide as the boundary of this analysis asks for, is without zero; or lies
above the margin, if the run was asked for one. With a goal, what the arms take must be decided too. A comparison is
hopeless if the last round would hardly find the effect that you look for, even if it is real. A run stops if each
comparison is one or the other at the same analysis, so that what `whet compare` says afterwards, by the boundary of the
last analysis, is what stopped it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import ceil, isinf, log

from msgspec.structs import replace

from whet.decide.comparison import decide, margin_of, on_runners, sample_trial
from whet.decide.difference import Difference
from whet.decide.doubts import doubt_about, error_of_judge
from whet.decide.errored import differences
from whet.decide.goals import aim_at, amounts_of
from whet.decide.sequential import (
    FIRST_ANALYSIS,
    alpha_of_each,
    effect_by_end,
    is_hopeless,
    power_by_end,
    z_at,
)
from whet.model.callable import Interval
from whet.model.comparison import ArmSamples, RoundAnalysis, RunSamples, Sampled, Seen, Stop, Until
from whet.model.run import Plan, TrialResult
from whet.reading.text import count


def analyse_round(samples: RunSamples, until: Until) -> RoundAnalysis | None:
    """Return what is seen after the last round of *samples*; None if it is too early for an analysis."""
    rounds_done = samples.rounds
    if rounds_done < FIRST_ANALYSIS:
        return None
    states = tuple(_compare_candidates(samples, until, rounds_done))
    return RoundAnalysis(round=rounds_done, seen=states, stop=_stop(states, until, rounds_done))


def _stop(states: Sequence[Seen], until: Until, rounds_done: int) -> Stop | None:
    open_states = [state for state in states if state.is_open]
    if states and not open_states:
        return "decided"
    if rounds_done >= until.rounds:
        return "rounds"
    hopeless = all(is_hopeless(state.chance, rounds_done=rounds_done, rounds=until.rounds) for state in open_states)
    return "hopeless" if states and hopeless else None


def _compare_candidates(samples: RunSamples, until: Until, rounds_done: int) -> Iterator[Seen]:
    # Not Holm: the level of an analysis must not depend on what the other candidates show.
    runners = list(on_runners(samples, samples.names[0]))
    alpha = alpha_of_each(sum(len(candidates) for _, _, candidates in runners), error=until.error)
    z = z_at(rounds_done, until.rounds, alpha)
    for runner, baseline, candidates in runners:
        for name, trials in candidates.items():
            doubt = doubt_about(baseline, trials, samples.weights, judge_error=samples.judge_error)
            ways = differences(baseline, trials, samples.weights, z=z, doubt=doubt)
            if ways is None:
                continue
            verdict = decide(ways.low, ways.high, until.margin or 0.0)
            aim = None if until.goal is None else aim_at(until.goal, verdict, amounts_of(baseline, trials, z))
            # A decision must hold in all ways, so the worst chance counts.
            chances = [_chance(way, until, rounds_done, alpha) for way in ways.possibilities]
            if aim is not None:
                # What is known of one half does not hold up the other.
                chances = [1.0] if verdict in {"better", "not-worse"} else chances
                chances.append(_chance_of_ratio(aim.ratio, z, until, rounds_done, alpha))
            yield Seen(
                candidate=name,
                runner=runner,
                difference=ways.value,
                low=ways.low,
                high=ways.high,
                verdict=verdict,
                chance=min(chances),
                progress=None if aim is None else aim.progress,
                # JSON has no infinity, and the journal must be read again.
                ratio=aim.ratio if aim and aim.ratio and not isinf(aim.ratio.high) else None,
            )


def _chance(difference: Difference, until: Until, rounds_done: int, alpha: float) -> float:
    """Return the chance to decide by the last round, if the effect is real; with a margin, also if arms are alike."""
    goals = [(difference, until.effect)]
    if until.margin:
        goals.append((replace(difference, value=difference.value + until.margin), until.margin))
    return max(
        power_by_end(
            goal_difference.value,
            goal_difference.error,
            rounds_done=rounds_done,
            rounds=until.rounds,
            effect=effect,
            alpha=alpha,
        )
        for goal_difference, effect in goals
    )


def _chance_of_ratio(ratio: Interval | None, z: float, until: Until, rounds_done: int, alpha: float) -> float:
    """Return the chance that the last round tells a ratio from 1, if it is as far away as the effect asks for."""
    if ratio is None or isinf(ratio.high):
        return 0.0
    if ratio.high < 1 or ratio.low > 1:
        return 1.0
    error = log(ratio.high / ratio.low) / 2 / z
    return power_by_end(
        log(ratio.value), error, rounds_done=rounds_done, rounds=until.rounds, effect=until.effect, alpha=alpha
    )


def out_of_reach(plan: Plan) -> Iterator[str]:
    """Yield a warning if the rounds of a run until decided are too few for the effect that it looks for."""
    until = plan.until
    cases = len({execution.case.id for execution in plan.executions if execution.case.weight > 0})
    if until is None or not cases:
        return
    # With a goal, the question is whether an arm is not worse.
    smallest = until.effect if until.goal is None else margin_of(until)
    alpha = alpha_of_each(len(plan.arms) - 1, _runners(plan), error=until.error)
    reach = effect_by_end(cases, until.rounds, alpha)
    if reach > smallest:
        rounds = f"{until.rounds} rounds of {count(cases, 'case')}"
        # Not rounded down: "20 points, and you look for 20" would be no reason to warn.
        limit = f"{rounds} find {ceil(100 * reach)} points or more in 80 % of runs"
        words = ("look for", "look for more (--effect)") if until.goal is None else ("allow", "allow more (--margin)")
        yield (
            f"{limit}, and you {words[0]} {100 * smallest:g}: "
            f"allow more rounds (--max-rounds), add cases, or {words[1]}"
        )


def _runners(plan: Plan) -> int:
    """Return on how many runners arms are compared; arms that differ by their runner are compared once."""
    arms = {(execution.runner.id, execution.arm) for execution in plan.executions}
    return max(1, sum((runner, plan.baseline) in arms for runner in {runner for runner, _ in arms}))


class InterimAnalysis:
    """Follows the trials of a run until decided, and analyses each complete round."""

    def __init__(self, plan: Plan, until: Until, results: Iterable[TrialResult]) -> None:
        self.until = until
        self._plan = plan
        baseline_first = sorted(plan.executions, key=lambda execution: execution.arm != plan.baseline)
        self._trials: dict[tuple[str, str], list[Sampled]] = {
            (execution.arm, execution.runner.id): [] for execution in baseline_first
        }
        self._trial_counts: Counter[int] = Counter()
        for result in results:
            self._add(result)

    def _add(self, result: TrialResult) -> None:
        if result.key.case not in self._plan.voided:
            self._trials[result.key.arm, result.key.runner].append(sample_trial(result))
        self._trial_counts[result.number] += 1

    def after(self, result: TrialResult) -> RoundAnalysis | None:
        """Return what is seen with *result*, if it completes a round."""
        self._add(result)
        return analyse_round(self._samples(), self.until) if self.is_complete(result.number) else None

    def is_complete(self, number: int) -> bool:
        """Return whether every trial of that round has ended."""
        return self._trial_counts[number] == len(self._plan.executions)

    def _samples(self) -> RunSamples:
        return RunSamples(
            name=self._plan.suite.name,
            arms=tuple(
                ArmSamples(arm=arm, runner=runner, trials=tuple(trials))
                for (arm, runner), trials in self._trials.items()
            ),
            weights={execution.case.id: execution.case.weight for execution in self._plan.executions},
            rounds_planned=self.until.rounds,
            error=self.until.error,
            judge_error=error_of_judge(self._plan.suite.judge),
        )
