"""`python bench/decisions.py`: simulate comparisons with the functions of whet, and count how often they are right.

Two arms that are alike may be called different in at most 5 %, in every setting: `+3 se` marks one that is further
above than three standard errors of its simulation. Random numbers have a seed, so you can repeat the figures.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, sqrt
from pathlib import Path

from whet.decide.comparison import compare_arms, compare_candidates
from whet.decide.difference import difference
from whet.decide.sequential import ALPHA, trials_needed, z_after_analyses
from whet.decide.until import analyse_round
from whet.model.comparison import Sampled, Until

sys.path.insert(0, str(Path(__file__).parent))
import decision_answers as answers
import decision_lies as lies
from decision_worlds import Setting, World, drawn_rates, samples_of, shifted

_UNTIL = Until()
# The trials of each case, in one arm.
_Arm = dict[str, list[float]]


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
                arms[name] += world.trials(world.baseline if name == "old" else world.candidate, 1, done)
            found = analyse_round(samples_of(world, arms, until), until)
            if found is not None and found.stop:
                ends.append(({each.verdict for each in found.seen}, done))
                break
    said = [verdicts for verdicts, _ in ends]
    shares = [sum(verdict in each for each in said) / runs for verdict in ("better", "worse", "not-worse")]
    return Ended(*shares, rounds=sum(done for _, done in ends) / runs)


def grown(cases: int, between: float, sizes: Sequence[int], runs: int, seed: int) -> float:
    """Return how often A against A is called different if a run without a decision is made longer again and again."""
    chance = random.Random(f"{seed} grown {cases} {between}")
    wrong = 0
    for _ in range(runs):
        rates = drawn_rates(cases, 0.5, between, chance)
        arms: tuple[_Arm, _Arm] = ({}, {})
        for number, size in enumerate(sizes):
            for arm, (case, rate) in product(arms, enumerate(rates)):
                values = arm.setdefault(str(case), [])
                values += (float(chance.random() < rate) for _ in range(size - len(values)))
            found = difference(*arms, z=z_after_analyses(sizes[: number + 1]))
            if found is not None and not found.low <= 0 <= found.high:
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


# A kind of trial: from the rate of a case, its number and the arm, whether it passes or its score.
_Draw = Callable[[random.Random, float, int], float]


@dataclass(frozen=True)
class Alike:
    """Two arms that are alike: how the cases are drawn, their weights, and the trials of each case in each arm."""

    name: str
    rates: Callable[[random.Random], Sequence[float]]
    weights: Sequence[float] | None
    first: Sequence[int]
    second: Sequence[int]
    draw: _Draw = lambda chance, rate, _: float(chance.random() < rate)

    def called_different(self, runs: int, seed: int) -> float:
        """Return the share of comparisons that find a difference."""
        chance = random.Random(f"{seed} {self.name}")
        weights = None if self.weights is None else {str(case): each for case, each in enumerate(self.weights)}
        wrong = 0
        for _ in range(runs):
            rates = self.rates(chance)
            arms = [
                {
                    str(case): [self.draw(chance, rate, case) for _ in range(trials[case])]
                    for case, rate in enumerate(rates)
                }
                for trials in (self.first, self.second)
            ]
            found = difference(arms[0], arms[1], weights)
            wrong += found is not None and not found.low <= 0 <= found.high
        return wrong / runs


def even() -> Iterator[Alike]:
    """Yield settings in which all cases count the same."""
    for cases, trials, base, between in product(
        (3, 5, 12, 20, 60), (1, 2, 3, 5, 10), (0.02, 0.3, 0.5, 0.7, 0.9, 0.98), (0.0, 0.5, 0.9)
    ):
        if cases * trials <= 300:
            yield Alike(
                f"{cases} x {trials} at {base}, {between} between",
                lambda chance, cases=cases, base=base, between=between: drawn_rates(cases, base, between, chance),
                None,
                [trials] * cases,
                [trials] * cases,
            )


def _fixed(rates: Sequence[float]) -> Callable[[random.Random], Sequence[float]]:
    return lambda _: rates


def heavy() -> Iterator[Alike]:
    """Yield settings with one unstable case of a large weight, or a fifth of them; the others hardly vary."""
    for cases, weight, trials in product((3, 10, 20, 60), (2, 5, 10), (1, 2, 5, 10)):
        yield Alike(
            f"one of {cases} weighs {weight}, x {trials}",
            _fixed([0.5] + [1.0] * (cases - 1)),
            [weight] + [1.0] * (cases - 1),
            [trials] * cases,
            [trials] * cases,
        )
    for cases, weight, trials in product((10, 20, 60), (2, 10), (1, 2, 5, 10)):
        fifth = cases // 5
        rates = [0.5] * fifth + [float(number % 2) for number in range(cases - fifth)]
        weights = [float(weight)] * fifth + [1.0] * (cases - fifth)
        yield Alike(f"a fifth of {cases} weighs {weight}, x {trials}", _fixed(rates), weights, *[[trials] * cases] * 2)


def uneven() -> Iterator[Alike]:
    """Yield settings in which unstable cases have few trials, or one arm has."""
    for cases, (few, many) in product((10, 20, 60), ((1, 10), (2, 10), (3, 25), (1, 25))):
        fifth = cases // 5
        rates = [0.5] * fifth + [float(number % 2) for number in range(cases - fifth)]
        trials = [few] * fifth + [many] * (cases - fifth)
        yield Alike(
            f"{fifth} of {cases} cases have {few} trials, the others {many}", _fixed(rates), None, trials, trials
        )
        if cases * many <= 500:
            drawn = lambda chance, cases=cases: drawn_rates(cases, 0.9, 0.3, chance)  # noqa: E731
            name = f"{cases} cases, {many} trials in one arm and {few} in the other"
            yield Alike(name, drawn, None, [many] * cases, [few] * cases)


def lognormal() -> Iterator[Alike]:
    """Yield settings with weights from a lognormal distribution, the heavier the more open a case is."""
    shapes: dict[str, Callable[[random.Random], float]] = {
        "mixture": lambda chance: chance.choices((0.98, 0.03, chance.random()), (55, 20, 25))[0],
        "easy": lambda chance: chance.betavariate(6, 0.4),
        "hard": lambda chance: chance.betavariate(0.3, 3),
        "uniform": lambda chance: chance.random(),
    }
    for (name, shape), cases, trials in product(shapes.items(), (4, 15, 30), (1, 2, 7)):
        drawn = random.Random(cases)
        weights = sorted((drawn.lognormvariate(0, 1) for _ in range(cases)), reverse=True)

        def rates(chance: random.Random, shape=shape, cases=cases) -> Sequence[float]:
            return sorted((shape(chance) for _ in range(cases)), key=lambda rate: abs(rate - 0.5))

        yield Alike(f"{name}, {cases} x {trials}, lognormal weights", rates, weights, *[[trials] * cases] * 2)


def graded() -> Iterator[Alike]:
    """Yield settings with scores: normal, of a scale of eleven, by four checks, and such that collapse at times."""
    draws: dict[str, _Draw] = {
        **{
            f"spread {spread}": lambda chance, rate, _, spread=spread: _within(chance.gauss(rate, spread))
            for spread in (0.03, 0.08, 0.15, 0.3)
        },
        "spread by case": lambda chance, rate, case: _within(chance.gauss(rate, 0.3 if case < 2 else 0.02)),
        "ratings": lambda chance, rate, _: round(10 * _within(chance.gauss(rate, 0.1))) / 10,
        "four checks": lambda chance, rate, _: sum(chance.random() < rate for _ in range(4)) / 4,
        "collapses": lambda chance, rate, _: 0.0 if chance.random() < 0.05 else _within(chance.gauss(rate, 0.05)),
    }
    for (name, draw), (cases, trials), base in product(
        draws.items(), ((3, 2), (5, 3), (20, 1), (20, 3), (60, 5)), (0.7, 0.95)
    ):
        for weights in (None, [5.0] * 2 + [1.0] * (cases - 2)):

            def rates(chance: random.Random, base=base, cases=cases) -> Sequence[float]:
                return [_within(chance.gauss(base, 0.15)) for _ in range(cases)]

            kind = f"scores, {name}, {cases} x {trials} at {base}{', weights' if weights else ''}"
            yield Alike(kind, rates, weights, [trials] * cases, [trials] * cases, draw)


def _within(value: float) -> float:
    return min(1.0, max(0.0, value))


_GRIDS: dict[str, Callable[[], Iterator[Alike]]] = {
    "weights that go with variance": heavy,
    "unequal trials": uneven,
    "lognormal weights": lognormal,
    "scores": graded,
    "equal weights": even,
}
# So many runs say which settings may be high.
_RANKING_RUNS = 100


def print_alike(title: str, every: Iterable[Alike], runs: int, seed: int) -> None:
    """Print how often arms that are alike are called different."""
    found = [(each.called_different(runs, seed), each.name) for each in every]
    error = sqrt(ALPHA * (1 - ALPHA) / runs)
    above = sum(share > ALPHA + 3 * error for share, _ in found)
    average, (highest, name) = sum(share for share, _ in found) / len(found), max(found)
    told = f"on average {average:.3f}, most often {highest:.3f} ({name}); {above} above 5 % +3 se"
    print(f"A against A, {title}, {len(found)} settings: {told}", flush=True)


def print_highest(runs: int, seed: int, number: int) -> None:
    """Print the settings that were highest, measured again with new seeds: the highest of many is above its truth."""
    for title, every in _GRIDS.items():
        ranked = sorted(every(), key=lambda each: -each.called_different(_RANKING_RUNS, seed))
        _print_again(title, [(each.name, each.called_different(runs, seed + 1)) for each in ranked[:number]], runs)
    settings = sorted(_until_settings(), key=lambda each: -_differs(until_decided(each, _RANKING_RUNS // 2, seed)))
    again = [(str(each), _differs(until_decided(each, runs, seed + 1))) for each in settings[:number]]
    _print_again("until decided", again, runs)


def _print_again(title: str, found: Sequence[tuple[str, float]], runs: int) -> None:
    for name, share in found:
        error = sqrt(share * (1 - share) / runs)
        print(f"held out, {title}, {name}: {share:.4f}, standard error {error:.4f}", flush=True)


def _differs(ended: Ended) -> float:
    return ended.better + ended.worse


def print_power(runs: int, seed: int) -> None:
    """Print how often real differences are found, and how often the truth is missed."""
    lowest, passed = (2.0, ""), (-1.0, "")
    for cases, trials, base, between, effect in product(
        (5, 12, 20, 60), (2, 3, 5), (0.7, 0.9), (0.0, 0.5, 0.9), (-0.2, -0.05, 0.05)
    ):
        setting = Setting(cases, trials, base, effect, between=between)
        chance = random.Random(f"{seed} power {setting}")
        held = not_worse = 0
        for _ in range(runs):
            rates = drawn_rates(cases, base, between, chance)
            moved = shifted(rates, effect)
            arms = [
                {str(case): [float(chance.random() < rate) for _ in range(trials)] for case, rate in enumerate(each)}
                for each in (rates, moved)
            ]
            found = difference(*arms)
            assert found is not None
            truth = sum(moved) / cases - sum(rates) / cases
            held += found.low - 1e-9 <= truth <= found.high + 1e-9
            not_worse += found.low > -0.05
        lowest = min(lowest, (held / runs, str(setting)))
        if effect == -0.05:
            passed = max(passed, (not_worse / runs, str(setting)))
    print(f"real differences: the interval holds them in at least {lowest[0]:.3f} ({lowest[1]})")
    print(f"worse by 5 points, called not worse by 5 points at most in {passed[0]:.3f} ({passed[1]})", flush=True)
    print("found, better / worse, and called not worse by 5 points if alike:")
    for cases, trials, base, between in product((12, 20, 60), (3, 5), (0.7, 0.9), (0.0, 0.5, 0.8)):
        found = [lies.verdicts(cases, trials, base, between, effect, runs, seed) for effect in (0.05, -0.1, 0.0)]
        words = f"+5: {found[0]['better']:.2f}, -10: {found[1]['worse']:.2f}, 0: {found[2]['not-worse']:.2f}"
        print(f"  {cases} x {trials} at {base}, {between} between: {words}", flush=True)


def _until_settings(
    sizes: Sequence[int] = (3, 5, 12, 20, 50), bases: Sequence[float] = (0.05, 0.5, 0.7, 0.95)
) -> list[Setting]:
    """Return settings of arms that are alike, with and without weights and scores."""
    return [
        Setting(cases, 1, base, weighted=weighted, graded=is_graded)
        for cases, base, weighted, is_graded in product(sizes, bases, (False, True), (False, True))
    ]


def print_until_decided(runs: int, seed: int, *, full: bool) -> None:
    """Print how often runs until decided are wrong if arms are alike, and what they save if arms are not."""
    settings = _until_settings() if full else _until_settings((5, 20), (0.05, 0.7))
    wrong = [(_differs(until_decided(setting, runs, seed)), str(setting)) for setting in settings]
    above = sum(share > ALPHA + 3 * sqrt(ALPHA * (1 - ALPHA) / runs) for share, _ in wrong)
    average, highest = sum(share for share, _ in wrong) / len(wrong), max(wrong)
    told = f"on average {average:.3f}, most often {highest[0]:.3f} ({highest[1]}); {above} above 5 % +3 se"
    print(f"until decided, A against A, {len(wrong)} settings: {told}", flush=True)
    print("until decided, one of the cases weighs 5 and is unstable:", end=" ")
    print(
        ", ".join(f"{cases} cases {lies.heavy_until_decided(cases, runs, seed):.3f}" for cases in (10, 20)), flush=True
    )
    for candidates in (2, 4):
        found = until_decided(Setting(20, 1, 0.7), runs, seed, candidates=candidates)
        told = f"better {found.better:.3f}, worse {found.worse:.3f}"
        print(f"until decided, {candidates} candidates like the baseline: one called {told}", flush=True)
    print("until decided, at most so many rounds that a fixed number of trials would find 10 points in 80 % of runs:")
    for cases, base, effect in product((20, 50), (0.5, 0.7), (0.0, 0.05, 0.1, 0.2)):
        fixed = trials_needed(cases, base * (1 - base), 0.1).trials
        until = Until(rounds=max(4, ceil(1.25 * fixed)))
        found = until_decided(Setting(cases, 1, base, effect), max(40, runs // 2), seed, until)
        share = f"{found.rounds:.1f} rounds, {found.rounds / fixed:.2f} of {fixed}"
        print(f"  {cases} cases, base {base}, effect {effect:+}: better {found.better:.2f}, {share}", flush=True)


def speed() -> float:
    """Return the seconds of one comparison of 1,000 cases x 20 trials."""
    world = World(Setting(1000, 20, 0.7, 0.02), random.Random(1))
    arms = world.trials(world.baseline), world.trials(world.candidate)
    began = time.perf_counter()
    compare_arms(*arms, world.weights)
    return time.perf_counter() - began


def main() -> None:
    """Simulate, and print the figures of `docs/design/decisions.md`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=300, help="comparisons for each setting (300)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corners", action="store_true", help="only a part of the grid")
    parser.add_argument("--answers", action="store_true", help="only rates, other cases, several runners and history")
    parser.add_argument(
        "--highest", type=int, metavar="N", help="only the N highest of each grid, again with new seeds"
    )
    chosen = parser.parse_args()
    runs, seed, began = chosen.runs, chosen.seed, time.perf_counter()
    if chosen.highest:
        print_highest(runs, seed, chosen.highest)
        print(f"took {time.perf_counter() - began:.0f} s")
        return
    if chosen.answers:
        answers.print_all(runs, seed)
        print(f"took {time.perf_counter() - began:.0f} s")
        return
    print(f"1,000 cases x 20 trials: {speed():.2f} s for one comparison")
    for title, every in _GRIDS.items():
        print_alike(title, every(), runs, seed)
    found = [lies.found_scores(0.08, 0.05, cases, trials, runs, seed) for cases, trials in ((20, 3), (20, 5))]
    print(f"scores, spread .08, +5 points: found in {found[0]:.2f} (20 x 3), {found[1]:.2f} (20 x 5)", flush=True)
    print_power(max(100, runs // 2), seed)
    lies.print_all(max(100, runs // 2), seed)
    answers.print_all(runs, seed)
    print_until_decided(max(60, runs // 4), seed, full=not chosen.corners)
    for cases, between, sizes in ((20, 0.0, [3 * 2**n for n in range(6)]), (20, 0.5, [3 * 2**n for n in range(5)])):
        share = grown(cases, between, sizes, runs, seed)
        print(f"A against A, {cases} cases, {between} between, looked at after {sizes}: {share:.3f}", flush=True)
    for number in (2, 4, 8):
        print(f"{number} candidates like the baseline: one called better {several(number, runs // 2, seed):.3f}")
    print(f"took {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
