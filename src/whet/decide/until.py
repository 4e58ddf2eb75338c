"""Look at a run after one of its rounds, and say whether it may stop.

A comparison is decided if its interval, as wide as the boundary of this look asks for, is without zero; or lies above
the margin, if the run was asked for one. It is hopeless if the wanted effect, were it real, would hardly be found by
the last round. A run stops if each comparison is one or the other at the same look, so that what `whet compare` says
afterwards, by the boundary of the last look, is what stopped it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import ceil, erfc, sqrt

from whet.grade.comparison import decide, on_runners, sampled
from whet.grade.difference import Difference
from whet.grade.doubts import doubt_about, error_of_judge
from whet.grade.errored import differences
from whet.grade.sequential import (
    FIRST_LOOK,
    USUAL_SPREAD,
    alpha_of_each,
    effect_within_reach,
    is_hopeless,
    power_by_end,
    z_at,
)
from whet.model.comparison import ArmSamples, Look, RunSamples, Sampled, Seen, Stop, Until
from whet.model.run import Plan, TrialResult
from whet.reading.text import count


def look(samples: RunSamples, until: Until) -> Look | None:
    """Return what is seen after the last round of *samples*; None if it is too early to look."""
    done = samples.rounds
    if done < FIRST_LOOK:
        return None
    seen = tuple(_seen(samples, until, done))
    return Look(round=done, seen=seen, stop=_stop(seen, until, done))


def _stop(seen: Sequence[Seen], until: Until, done: int) -> Stop | None:
    undecided = [each for each in seen if each.verdict == "inconclusive"]
    if seen and not undecided:
        return "decided"
    if done >= until.rounds:
        return "rounds"
    hopeless = all(is_hopeless(each.chance, done=done, rounds=until.rounds) for each in undecided)
    return "hopeless" if seen and hopeless else None


def _seen(samples: RunSamples, until: Until, done: int) -> Iterator[Seen]:
    # Not Holm: the level of a look must not depend on what the other candidates show.
    compared = list(on_runners(samples, samples.names[0]))
    alpha = alpha_of_each(sum(len(candidates) for _, _, candidates in compared))
    z = z_at(done, until.rounds, alpha)
    for runner, baseline, candidates in compared:
        for name, trials in candidates.items():
            doubt = doubt_about(baseline, trials, samples.weights, judge_error=samples.judge_error)
            ways = differences(baseline, trials, samples.weights, z=z, doubt=doubt)
            if ways is None:
                continue
            yield Seen(
                candidate=name,
                runner=runner,
                difference=ways.value,
                low=ways.low,
                high=ways.high,
                verdict=decide(ways.low, ways.high, until.margin or 0.0),
                # A decision must hold in all ways, so the worst chance counts.
                chance=min(_chance(each, until, done, alpha) for each in ways.all),
            )


def _chance(found: Difference, until: Until, done: int, alpha: float) -> float:
    """Return the chance to decide by the last round, if the effect is real; with a margin, also if arms are alike."""
    asked = [(found, until.effect)]
    if until.margin:
        asked.append((replace(found, value=found.value + until.margin), until.margin))
    return max(power_by_end(each, done=done, rounds=until.rounds, effect=effect, alpha=alpha) for each, effect in asked)


def out_of_reach(plan: Plan) -> Iterator[str]:
    """Yield a warning if the rounds of a run until decided are too few for the effect that it looks for."""
    until = plan.until
    cases = len({execution.case.id for execution in plan.executions if execution.case.weight > 0})
    if until is None or not cases:
        return
    last = z_at(until.rounds, until.rounds, alpha_of_each(len(plan.arms) - 1, _runners(plan)))
    reach = effect_within_reach(cases, USUAL_SPREAD, until.rounds, alpha=erfc(last / sqrt(2)))
    if reach > until.effect:
        rounds = f"{until.rounds} rounds of {count(cases, 'case')}"
        # Not rounded down: "20 points, and you look for 20" would be no reason to warn.
        found = f"{rounds} find {ceil(100 * reach)} points or more in 80 % of runs"
        yield (
            f"{found}, and you look for {100 * until.effect:g}: "
            "allow more rounds (--max-rounds), add cases, or look for more (--effect)"
        )


def _runners(plan: Plan) -> int:
    """Return on how many runners arms are compared; arms that differ by their runner are compared once."""
    arms = {(each.runner.id, each.arm) for each in plan.executions}
    return max(1, sum((runner, plan.baseline) in arms for runner in {runner for runner, _ in arms}))


class Looking:
    """Follows the trials of a run until decided, and looks when a round is complete."""

    def __init__(self, plan: Plan, until: Until, ended: Iterable[TrialResult]) -> None:
        self.until = until
        self._plan = plan
        baseline_first = sorted(plan.executions, key=lambda each: each.arm != plan.baseline)
        self._trials: dict[tuple[str, str], list[Sampled]] = {(each.arm, each.runner.id): [] for each in baseline_first}
        self._ended: Counter[int] = Counter()
        for result in ended:
            self._add(result)

    def _add(self, result: TrialResult) -> None:
        if result.key.case not in self._plan.voided:
            self._trials[result.key.arm, result.key.runner].append(sampled(result))
        self._ended[result.number] += 1

    def after(self, result: TrialResult) -> Look | None:
        """Return what is seen with *result*, if it completes a round."""
        self._add(result)
        return look(self._samples(), self.until) if self.is_complete(result.number) else None

    def is_complete(self, number: int) -> bool:
        """Return whether every trial of that round has ended."""
        return self._ended[number] == len(self._plan.executions)

    def _samples(self) -> RunSamples:
        return RunSamples(
            name=self._plan.suite.name,
            arms=tuple(
                ArmSamples(arm=arm, runner=runner, trials=tuple(each)) for (arm, runner), each in self._trials.items()
            ),
            weights={execution.case.id: execution.case.weight for execution in self._plan.executions},
            rounds_planned=self.until.rounds,
            judge_error=error_of_judge(self._plan.suite.judge),
        )
