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
from math import ceil, exp, log

from whet.grade.comparison import compare_arms, compare_candidates
from whet.grade.sequential import ALPHA, trials_needed, z_after_looks
from whet.grade.until import look
from whet.model.comparison import ArmSamples, RunSamples, Sampled, Until

_BETWEEN = 0.5
_CHECKS = 4
_UNTIL = Until()


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


@dataclass(frozen=True)
class Ended:
    """How runs until decided ended: the shares of better, worse and not worse, and their rounds on average."""

    better: float
    worse: float
    not_worse: float
    rounds: float


def until_decided(setting: Setting, runs: int, seed: int, until: Until = _UNTIL, candidates: int = 1) -> Ended:
    """Simulate runs that look after each round; with several candidates, one that is better or worse counts."""
    chance = random.Random(f"{seed} {setting} {until} {candidates}")
    ends: list[tuple[set[str], int]] = []
    for _ in range(runs):
        world = World(setting, chance)
        arms: dict[str, list[Sampled]] = {"old": []} | {f"new {number}": [] for number in range(candidates)}
        for done in range(1, until.rounds + 1):
            for name in arms:
                arms[name] += world.trials(world.baseline if name == "old" else world.candidate, 1)
            found = look(_samples(world, arms, until), until)
            if found is not None and found.stop:
                ends.append(({each.verdict for each in found.seen}, done))
                break
    said = [verdicts for verdicts, _ in ends]
    shares = [sum(verdict in each for each in said) / runs for verdict in ("better", "worse", "not-worse")]
    return Ended(*shares, rounds=sum(done for _, done in ends) / runs)


def _samples(world: World, arms: dict[str, list[Sampled]], until: Until) -> RunSamples:
    return RunSamples(
        name="simulated",
        arms=tuple(ArmSamples(arm=name, runner="r", trials=tuple(trials)) for name, trials in arms.items()),
        weights=world.weights,
        rounds_planned=until.rounds,
    )


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


def print_until_decided(runs: int, seed: int, *, full: bool) -> None:
    """Print how often runs until decided are wrong if arms are alike, and what they save if arms are not."""
    highest = (-1.0, "")
    sizes, bases = ((5, 8, 12, 20, 50), (0.05, 0.3, 0.5, 0.7, 0.95)) if full else ((5, 20), (0.05, 0.7, 0.95))
    for cases, base, weighted, graded, errored in product(sizes, bases, (False, True), (False, True), (0.0, 0.2)):
        setting = Setting(cases, 1, base, 0.0, weighted, graded, errored)
        found = until_decided(setting, runs, seed)
        highest = max(highest, (found.better + found.worse, str(setting)))
        if found.better + found.worse > ALPHA:
            print(f"  misses: {setting}: called different {found.better + found.worse:.3f}", flush=True)
    print(f"until decided, A against A, most often called different: {highest[0]:.3f} ({highest[1]})")
    for candidates in (2, 4):
        found = until_decided(Setting(20, 1, 0.7), runs, seed, candidates=candidates)
        wrong = f"better {found.better:.3f}, worse {found.worse:.3f}"
        print(f"until decided, {candidates} candidates like the baseline: one called {wrong}", flush=True)
    print("until decided, at most so many rounds that a fixed number of trials would find 10 points in 80 % of runs:")
    for cases, base, effect in product((20, 50), (0.5, 0.7, 0.9), (0.0, 0.05, 0.1, 0.2)):
        if base + effect < 1:
            fixed = trials_needed(cases, base * (1 - base), 0.1).trials
            until = Until(rounds=max(4, ceil(1.25 * fixed)))
            found = until_decided(Setting(cases, 1, base, effect), runs, seed, until)
            share = f"{found.rounds:.1f} rounds, {found.rounds / fixed:.2f} of {fixed}"
            print(f"  {cases} cases, base {base}, effect {effect:+}: better {found.better:.2f}, {share}", flush=True)
    for effect in (-0.05, 0.0):
        found = until_decided(Setting(20, 1, 0.7, effect), runs, seed, Until(rounds=40, margin=0.05))
        said = f"not worse {found.not_worse:.3f}, better {found.better:.3f}, worse {found.worse:.3f}"
        print(
            f"until decided with a margin of 5 points, effect {effect:+}: {said}, {found.rounds:.1f} rounds", flush=True
        )


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
    print_until_decided(runs, seed, full=not chosen.corners)
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
