"""`python bench/decisions.py`: simulate comparisons with the functions of whet, and count how often they are right.

Cases differ: their rates are drawn from a beta distribution, and half of the variance lies between cases. Trials of a
case vary. The interval must hold the true difference on these cases in at least 92 % of comparisons, and two arms that
are alike may be called different in at most 5 %. Random numbers have a seed, so you can repeat the figures.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import exp, log

from whet.grade.comparison import compare_arms, compare_candidates, decide
from whet.grade.difference import difference
from whet.grade.sequential import ALPHA, is_hopeless, trials_needed, z_after_looks, z_at
from whet.model.comparison import Sampled

_BETWEEN = 0.5
_CHECKS = 4


@dataclass(frozen=True)
class Setting:
    """What is simulated."""

    cases: int
    trials: int
    base: float
    effect: float = 0.0
    weighted: bool = False
    graded: bool = False
    errored: float = 0.0

    def __str__(self) -> str:
        words = [f"{self.cases:3} x {self.trials:2}", f"base {self.base:.2f}", f"effect {self.effect:+.2f}"]
        words += (
            ["weights"] * self.weighted
            + ["graded"] * self.graded
            + [f"errored {self.errored:.0%}"] * (self.errored > 0)
        )
        return ", ".join(words)


class World:
    """The true rates of cases in both arms, and trials drawn from them."""

    def __init__(self, setting: Setting, chance: random.Random) -> None:
        self.setting, self.chance = setting, chance
        size = (1 - _BETWEEN) / _BETWEEN
        rates = [chance.betavariate(setting.base * size, (1 - setting.base) * size) for _ in range(setting.cases)]
        self.baseline = [min(max(rate, 1e-4), 1 - 1e-4) for rate in rates]
        self.candidate = _shifted(self.baseline, setting.effect)
        self.weights = {
            str(number): chance.choice((1.0, 2.0, 5.0)) if setting.weighted else 1.0 for number in range(setting.cases)
        }

    @property
    def truth(self) -> float:
        """The true difference on these cases."""
        whole = sum(self.weights.values())
        pairs = zip(self.baseline, self.candidate, self.weights.values(), strict=True)
        return sum(weight * (after - before) for before, after, weight in pairs) / whole

    def trials(self, rates: Sequence[float], count: int | None = None) -> list[Sampled]:
        """Draw the trials of one arm."""
        return [
            Sampled(case=str(number), value=None if self.chance.random() < self.setting.errored else self._value(rate))
            for number, rate in enumerate(rates)
            for _ in range(count or self.setting.trials)
        ]

    def _value(self, rate: float) -> float:
        if not self.setting.graded:
            return float(self.chance.random() < rate)
        # Checks of one trial go together: half of them are decided by one draw.
        together = self.chance.random() < rate
        held = sum(together if number % 2 else self.chance.random() < rate for number in range(_CHECKS))
        return held / _CHECKS


def _shifted(rates: Sequence[float], effect: float) -> list[float]:
    """Move all rates on the logit scale, so that their mean moves by *effect*, or as far as it can."""
    if not effect:
        return list(rates)
    low, high = -12.0, 12.0
    moved = list(rates)
    for _ in range(50):
        by = (low + high) / 2
        moved = [1 / (1 + exp(-(log(rate / (1 - rate)) + by))) for rate in rates]
        if sum(moved) / len(moved) - sum(rates) / len(rates) < effect:
            low = by
        else:
            high = by
    return moved


def cover(setting: Setting, runs: int, seed: int) -> tuple[float, float]:
    """Return how often the interval holds the truth, and how often a difference from zero is claimed."""
    chance = random.Random(f"{seed} {setting}")
    held = claimed = 0
    for _ in range(runs):
        world = World(setting, chance)
        found = compare_arms(world.trials(world.baseline), world.trials(world.candidate), world.weights, margin=0.0)
        if found is None:
            held += 1
            continue
        held += found.low - 1e-9 <= world.truth <= found.high + 1e-9
        claimed += found.low > 0 or found.high < 0
    return held / runs, claimed / runs


def until_decided(
    setting: Setting, rounds: int, runs: int, seed: int, effect: float = 0.1
) -> tuple[float, float, float]:
    """Return how often a run that looks after each round ends with better, with worse, and its rounds on average."""
    chance = random.Random(f"{seed} {setting} {rounds}")
    better = worse = spent = 0
    for _ in range(runs):
        world = World(setting, chance)
        first: dict[str, list[float]] = {case: [] for case in world.weights}
        second: dict[str, list[float]] = {case: [] for case in world.weights}
        done = 0
        for done in range(1, rounds + 1):
            for arm, rates in ((first, world.baseline), (second, world.candidate)):
                for trial in world.trials(rates, 1):
                    if trial.value is not None:
                        arm[trial.case].append(trial.value)
            if done < 2:
                continue
            found = difference(first, second, world.weights, z=z_at(done, rounds))
            assert found is not None
            said = decide(found.low, found.high, 0.0)
            if said != "inconclusive":
                better, worse = better + (said == "better"), worse + (said == "worse")
                break
            if is_hopeless(found, done=done, rounds=rounds, effect=effect):
                break
        spent += done
    return better / runs, worse / runs, spent / runs


def grown(setting: Setting, runs: int, seed: int) -> float:
    """Return how often A against A is called different if a run without a decision is made twice as long, twice."""
    chance = random.Random(f"{seed} {setting} grown")
    wrong = 0
    for _ in range(runs):
        world = World(setting, chance)
        arms: list[list[Sampled]] = [[], []]
        sizes: list[int] = []
        for _ in range(3):
            more = sizes[-1] if sizes else setting.trials
            arms[0] += world.trials(world.baseline, more)
            arms[1] += world.trials(world.candidate, more)
            sizes.append(setting.trials * 2 ** len(sizes))
            found = compare_arms(arms[0], arms[1], world.weights, margin=0.0, z=z_after_looks(sizes))
            if found is not None and found.verdict != "inconclusive":
                wrong += 1
                break
    return wrong / runs


def several(candidates: int, runs: int, seed: int) -> float:
    """Return how often any of several candidates like the baseline is called better."""
    chance = random.Random(f"{seed} several {candidates}")
    setting = Setting(20, 5, 0.7)
    wrong = 0
    for _ in range(runs):
        world = World(setting, chance)
        trials = {str(number): world.trials(world.baseline) for number in range(candidates)}
        found = compare_candidates(world.trials(world.baseline), trials, margin=0.0)
        wrong += any(each.verdict == "better" for each in found.values())
    return wrong / runs


def hidden_failures(share: float, runs: int, seed: int) -> float:
    """Return how often a candidate that turns a share of its failures into errors is called better, and is not."""
    chance = random.Random(f"{seed} hidden {share}")
    setting = Setting(20, 5, 0.7)
    wrong = 0
    for _ in range(runs):
        world = World(setting, chance)
        second = [
            Sampled(case=trial.case, value=None if not trial.value and chance.random() < share else trial.value)
            for trial in world.trials(world.baseline)
        ]
        found = compare_arms(world.trials(world.baseline), second, margin=0.0)
        wrong += found is not None and found.verdict == "better"
    return wrong / runs


def settings(full: bool) -> Iterator[Setting]:
    """Yield what is simulated; the whole grid, or its corners."""
    sizes = product((5, 12, 20, 50), (1, 3, 5, 10, 25)) if full else ((5, 1), (5, 5), (20, 1), (20, 3))
    bases = (0.05, 0.3, 0.5, 0.7, 0.95) if full else (0.05, 0.7, 0.95)
    for (cases, trials), base, weighted, graded, errored in product(
        list(sizes), bases, (False, True), (False, True), (0.0, 0.2)
    ):
        yield Setting(cases, trials, base, 0.0, weighted, graded, errored)
        if base + 0.1 < 1:
            yield Setting(cases, trials, base, 0.1, weighted, graded, errored)


def speed() -> float:
    """Return the seconds of one comparison of 1,000 cases x 20 trials."""
    world = World(Setting(1000, 20, 0.7, 0.02), random.Random(1))
    arms = world.trials(world.baseline), world.trials(world.candidate)
    began = time.perf_counter()
    compare_arms(*arms, world.weights)
    return time.perf_counter() - began


def main() -> None:
    """Simulate, and print a line for each setting that misses, and the figures of all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=400, help="comparisons for each setting (400)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corners", action="store_true", help="only a part of the grid")
    chosen = parser.parse_args()
    runs, seed = chosen.runs, chosen.seed
    print(f"1,000 cases x 20 trials: {speed():.2f} s for one comparison")
    lowest, highest = (2.0, ""), (-1.0, "")
    for setting in settings(not chosen.corners):
        covered, claimed = cover(setting, runs, seed)
        lowest = min(lowest, (covered, str(setting)))
        if not setting.effect:
            highest = max(highest, (claimed, str(setting)))
        if covered < 0.92 or (not setting.effect and claimed > ALPHA):
            print(f"  misses: {setting}: cover {covered:.3f}, called different {claimed:.3f}", flush=True)
    print(f"lowest cover {lowest[0]:.3f} ({lowest[1]})")
    print(f"A against A, most often called different: {highest[0]:.3f} ({highest[1]})")
    print("until decided, at most 10 rounds:")
    for cases, base, effect in product((5, 20), (0.3, 0.7, 0.9), (0.0, 0.05, 0.1, 0.2)):
        if base + effect < 1:
            setting = Setting(cases, 1, base, effect)
            better, worse, spent = until_decided(setting, 10, runs, seed)
            print(f"  {setting}: better {better:.3f}, worse {worse:.3f}, {spent:.1f} rounds", flush=True)
    print("A against A, grown twice to double the size where nothing was decided:")
    for cases, trials, base in product((5, 20), (3, 5), (0.3, 0.7, 0.9)):
        setting = Setting(cases, trials, base)
        print(f"  {setting}: called different {grown(setting, runs, seed):.3f}", flush=True)
    for number in (2, 4, 8):
        print(f"{number} candidates like the baseline: one called better {several(number, runs, seed):.3f}")
    for share in (0.1, 0.3, 0.5):
        print(f"{share:.0%} of failures hidden as errors: called better {hidden_failures(share, runs, seed):.3f}")
    print("plans for 20 cases:")
    for effect in (0.05, 0.1, 0.2):
        needed = trials_needed(20, 0.2, effect)
        _, power = cover(Setting(20, needed.trials, 0.7, effect), runs, seed)
        trials = f"{needed.least} to {needed.most} trials, {needed.trials} find it"
        print(f"  effect {effect:+.2f}: {trials} in {power:.2f}")


if __name__ == "__main__":
    main()
