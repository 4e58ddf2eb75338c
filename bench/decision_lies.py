"""What a comparison could be fooled by, for `bench/decisions.py`: errors, judges, moods, long tails and promises."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from math import exp

from decision_worlds import Setting, World, drawn_rates, moved_by, samples_of, shifted
from msgspec.structs import replace

from whet.decide.amounts import ratio_of_means
from whet.decide.comparison import compare_arms, comparisons_of
from whet.decide.difference import difference
from whet.decide.gate import gate_comparison, more_to_decide
from whet.decide.sequential import trials_needed, z_after_analyses
from whet.decide.until import analyse_round
from whet.model.comparison import ArmSamples, RunSamples, Sampled, Until

_MOST_PLANNED = 400


def verdicts(  # noqa: PLR0917 - one setting, as a row of a table has it
    cases: int, trials: int, base: float, between: float, effect: float, runs: int, seed: int
) -> Counter[str]:
    """Return the shares of better, worse and not worse by 5 points, which a better one is too."""
    setting = Setting(cases, trials, base, effect, between=between)
    chance = random.Random(f"{seed} verdicts {setting}")
    found: Counter[str] = Counter()
    for _ in range(runs):
        rates = drawn_rates(cases, base, between, chance)
        arms = [
            {str(case): [float(chance.random() < rate) for _ in range(trials)] for case, rate in enumerate(each)}
            for each in (rates, shifted(rates, effect))
        ]
        seen = difference(*arms)
        assert seen is not None
        found.update({"better": seen.low > 0, "worse": seen.high < 0, "not-worse": seen.low > -0.05})
    return Counter({name: number / runs for name, number in found.items()})  # type: ignore[misc]


def found_scores(spread: float, effect: float, cases: int, trials: int, runs: int, seed: int) -> float:
    """Return how often scores that vary by *spread* within their case show that one arm is better by *effect*."""
    chance = random.Random(f"{seed} scores {spread} {effect} {cases} {trials}")
    wins = 0
    for _ in range(runs):
        means = [min(0.98, max(0.02, chance.gauss(0.7, 0.15))) for _ in range(cases)]
        arms = [
            {
                str(case): [min(1.0, max(0.0, chance.gauss(middle + by, spread))) for _ in range(trials)]
                for case, middle in enumerate(means)
            }
            for by in (0.0, effect)
        ]
        seen = difference(*arms)
        wins += seen is not None and seen.low > 0
    return wins / runs


def heavy_until_decided(cases: int, runs: int, seed: int) -> float:
    """Return how often arms that are alike are called different until decided, if an unstable case weighs 5."""
    chance = random.Random(f"{seed} heavy {cases}")
    until, wrong = Until(), 0
    for _ in range(runs):
        world = World(Setting(cases, 1, 0.5), chance)
        world.baseline = [0.5] + [1.0] * (cases - 1)
        world.weights = {"0": 5.0}
        arms: dict[str, list[Sampled]] = {"old": [], "new": []}
        for done in range(1, until.rounds + 1):
            for name in arms:
                arms[name] += world.trials(world.baseline, 1, done)
            found = analyse_round(samples_of(world, arms, until), until)
            if found is not None and found.stop:
                wrong += found.seen[0].verdict != "inconclusive"
                break
    return wrong / runs


def erring(
    cases: int, trials: int, first: dict[str, float], second: dict[str, float], runs: int, seed: int
) -> Counter[str]:
    """Return the shares of verdicts on arms that are alike and err: `any` of their trials, or their `failed` ones."""
    chance = random.Random(f"{seed} erring {cases} {trials} {first} {second}")
    found: Counter[str] = Counter()
    for _ in range(runs):
        rates = drawn_rates(cases, 0.7, 0.5, chance)

        def arm(shares: dict[str, float], rates: Sequence[float] = rates) -> list[Sampled]:
            made = []
            for case, rate in enumerate(rates):
                for _ in range(trials):
                    value = float(chance.random() < rate)
                    hidden = not value and chance.random() < shares.get("failed", 0)
                    errs = hidden or chance.random() < shares.get("any", 0)
                    down = not errs and chance.random() < shares.get("down", 0)
                    made.append(Sampled(case=str(case), value=None if errs or down else value, blameless=down))
            return made

        seen = compare_arms(arm(first), arm(second))
        assert seen is not None
        found[seen.verdict] += 1
    return Counter({name: number / runs for name, number in found.items()})  # type: ignore[misc]


def hidden_failures(share: float, runs: int, seed: int) -> float:
    """Return how often a candidate that turns a share of its failures into errors is called better, and is not."""
    return erring(20, 5, {}, {"failed": share}, runs, seed)["better"]


def misjudged(
    cases: int,
    trials: int,
    answers: int | None,
    runs: int,
    seed: int,
    *,
    wrong_about: float,
    error: float | None,
    stable: bool = True,
) -> float:
    """Return how often arms that are alike are called different by a judge that is *wrong_about* a share of answers.

    A case has so many *answers* in each arm, or a new one for each trial; what is known of the judge is *error*.
    """
    chance = random.Random(f"{seed} judge {cases} {trials} {answers} {stable}")
    wrong = 0
    for _ in range(runs):
        rates = [float(chance.random() < 0.7) if stable else rate for rate in drawn_rates(cases, 0.7, 0.5, chance)]
        arms: list[list[Sampled]] = []
        for name in ("old", "new"):
            flips: dict[str, bool] = {}
            trials_of_arm = []
            for case, rate in enumerate(rates):
                for trial in range(trials):
                    answer = f"{name} {case} {trial if answers is None else chance.randrange(answers)}"
                    flip = flips.setdefault(answer, chance.random() < wrong_about)
                    value = float((chance.random() < rate) != flip)
                    trials_of_arm.append(Sampled(case=str(case), value=value, judged=answer, round=trial))
            arms.append(trials_of_arm)
        seen = compare_arms(*arms, judge_error=error)
        assert seen is not None
        wrong += not seen.low <= 0 <= seen.high
    return wrong / runs


def moody(cases: int, trials: int, mood: float, runs: int, seed: int, *, told: bool = True) -> float:
    """Return how often arms that are alike are called different if the provider of each has its moods by round.

    *mood* is their spread on the logit scale; a comparison is *told* the rounds, or not.
    """
    chance = random.Random(f"{seed} mood {cases} {trials} {mood}")
    wrong = 0
    for _ in range(runs):
        rates = drawn_rates(cases, 0.7, 0.5, chance)
        arms: list[list[Sampled]] = []
        for _ in range(2):
            moods = [chance.gauss(0, mood) for _ in range(trials)]
            arms.append(
                [
                    Sampled(
                        case=str(case),
                        value=float(chance.random() < moved_by(rate, by)),
                        round=number if told else None,
                    )
                    for case, rate in enumerate(rates)
                    for number, by in enumerate(moods)
                ]
            )
        seen = compare_arms(*arms)
        assert seen is not None
        wrong += not seen.low <= 0 <= seen.high
    return wrong / runs


def stretched(cases: int, trials: int, runs: int, seed: int, *, times: float) -> float:
    """Return how often rounds without moods make the interval of arms that are alike more than *times* as wide."""
    chance = random.Random(f"{seed} stretched {cases} {trials}")
    wide = 0
    for _ in range(runs):
        world = World(Setting(cases, trials, 0.7), chance)
        seen = compare_arms(*(world.trials(world.baseline, first_round=1) for _ in range(2)))
        assert seen is not None
        wide += seen.stretch > times
    return wide / runs


def costly(
    cases: int, trials: int, draw: Callable[[random.Random], float], limit: float, runs: int, seed: int
) -> tuple[float, float]:
    """Return how often a ratio of costs that is 1 is missed, and how often it is called at most *limit* as drawn."""
    chance = random.Random(f"{seed} cost {cases} {trials} {limit}")
    missed = passed = 0
    for _ in range(runs):
        middles = [chance.gauss(0, 1) for _ in range(cases)]
        arms = [
            {str(case): [exp(middle) * draw(chance) for _ in range(trials)] for case, middle in enumerate(middles)}
            for _ in range(2)
        ]
        seen = ratio_of_means(*arms)
        assert seen is not None
        missed += not seen.low <= 1 <= seen.high
        passed += seen.high <= limit
    return missed / runs, passed / runs


def aimed(cases: int, trials: int, effect: float, ratio: float, runs: int, seed: int) -> Counter[str]:
    """Return how often a candidate reaches or misses the goal to be cheaper, with that effect and ratio of costs."""
    chance = random.Random(f"{seed} aimed {cases} {trials} {effect} {ratio}")
    found: Counter[str] = Counter()
    for _ in range(runs):
        world = World(Setting(cases, trials, 0.7, effect), chance)
        arms = {
            name: [
                replace(trial, cost_usd=times * exp(chance.gauss(0, 0.5)))
                for trial in world.trials(rates, first_round=1)
            ]
            for name, rates, times in (("old", world.baseline, 1.0), ("new", world.candidate, ratio))
        }
        (seen,) = comparisons_of(_run(arms), goal="cheaper")
        assert seen.aim is not None
        found[seen.aim.progress] += 1
    return Counter({name: number / runs for name, number in found.items()})  # type: ignore[misc]


def cost_looks(runs: int, seed: int) -> tuple[float, float]:
    """Return how often a cost ratio just at the limit ever passes and ever fails, if looked at ten times."""
    chance = random.Random(f"{seed} cost looks")
    sizes, limit, ended = list(range(3, 31, 3)), 1.2, Counter[str]()
    for _ in range(runs):
        arms: list[dict[str, list[float]]] = [{str(case): [] for case in range(20)} for _ in range(2)]
        for number, size in enumerate(sizes):
            for arm, times in zip(arms, (1.0, limit), strict=True):
                for values in arm.values():
                    values.extend([times * exp(chance.gauss(0, 0.5)) for _ in range(size - len(values))])
            seen = ratio_of_means(*arms, z=z_after_analyses(sizes[: number + 1]))
            assert seen is not None
            if seen.high <= limit or seen.low > limit:
                ended["pass" if seen.high <= limit else "fail"] += 1
                break
    return ended["pass"] / runs, ended["fail"] / runs


def promised(cases: int, between: float, runs: int, seed: int) -> dict[str, tuple[float, float, int]]:
    """Return what chances to decide were told on average, how often that came true, and how many there were."""
    chance = random.Random(f"{seed} promised {cases} {between}")
    until, told = Until(rounds=12), list[tuple[float, bool]]()
    for _ in range(runs):
        world = World(Setting(cases, 1, 0.7, 0.1, between=between), chance)
        arms: dict[str, list[Sampled]] = {"old": [], "new": []}
        said: list[float] = []
        for done in range(1, until.rounds + 1):
            for name, rates in (("old", world.baseline), ("new", world.candidate)):
                arms[name] += world.trials(rates, 1, done)
            found = analyse_round(samples_of(world, arms, until), until)
            if found is None:
                continue
            is_open = found.seen[0].verdict == "inconclusive"
            if is_open and 3 <= done <= 8:
                said.append(found.seen[0].chance)
            if found.stop:
                told += ((each, not is_open) for each in said)
                break
    parts: dict[str, tuple[float, float, int]] = {}
    for low, high in ((0.1, 0.3), (0.3, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 1.01)):
        here = [each for each in told if low <= each[0] < high]
        if len(here) >= 30:
            share = sum(said for said, _ in here) / len(here), sum(came for _, came in here) / len(here)
            parts[f"{low}-{min(1.0, high)}"] = (*share, len(here))
    return parts


def advised(cases: int, trials: int, effect: float | None, runs: int, seed: int) -> tuple[float, float]:
    """Return how often the trials that a gate says would decide do so, and how many of its runs were open.

    Without an effect, each run has one of its own, with a spread of 20 points.
    """
    chance = random.Random(f"{seed} advised {cases} {trials} {effect}")
    decided = asked = 0
    for _ in range(runs):
        true = min(0.25, max(-0.5, chance.gauss(0, 0.2))) if effect is None else effect
        world = World(Setting(cases, trials, 0.7, true), chance)
        arms = {"old": world.trials(world.baseline), "new": world.trials(world.candidate)}
        samples = _run(arms)
        (found,) = comparisons_of(samples)
        if gate_comparison(found) != "unknown":
            continue
        more = more_to_decide(found, samples, parallel=1)
        if more is None or more.trials > _MOST_PLANNED:
            continue
        asked += 1
        grown = {
            "old": arms["old"] + world.trials(world.baseline, more.trials),
            "new": arms["new"] + world.trials(world.candidate, more.trials),
        }
        (after,) = comparisons_of(_run(grown, (trials,)))
        decided += gate_comparison(after) != "unknown"
    return decided / max(1, asked), asked / runs


def _run(arms: dict[str, list[Sampled]], grown_from: tuple[int, ...] = ()) -> RunSamples:
    every = tuple(ArmSamples(arm=name, runner="r", trials=tuple(trials)) for name, trials in arms.items())
    return RunSamples(name="run", arms=every, weights={}, grown_from=grown_from)


def planned(cases: int, between: float, pilot: int, runs: int, seed: int) -> tuple[float, float]:
    """Return how often a plan for 10 points finds them, and how often its range holds what is needed."""
    chance = random.Random(f"{seed} planned {cases} {between} {pilot}")
    needed = _really_needed(cases, between, seed)
    found = held = 0
    for _ in range(runs):
        world = World(Setting(cases, pilot, 0.7, 0.1, between=between), chance)
        arms = [_values(world.trials(world.baseline)) for _ in range(2)]
        seen = difference(*arms)
        assert seen is not None
        plan = trials_needed(cases, seen.spread, 0.1, pilot_trials=2 * cases * pilot)
        held += plan.least <= needed <= plan.most
        after = difference(
            _values(world.trials(world.baseline, plan.trials)), _values(world.trials(world.candidate, plan.trials))
        )
        found += after is not None and after.low > 0
    return found / runs, held / runs


def _values(trials: Sequence[Sampled]) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for trial in trials:
        values.setdefault(trial.case, []).append(trial.value or 0.0)
    return values


def _really_needed(cases: int, between: float, seed: int) -> int:
    """Return how many trials find 10 points in 80 % of 200 runs."""
    low, high = 1, 100
    while low < high:
        middle = (low + high) // 2
        if verdicts(cases, middle, 0.7, between, 0.1, 200, seed)["better"] >= 0.8:
            high = middle
        else:
            low = middle + 1
    return low


def print_all(runs: int, seed: int) -> None:
    """Print how often each of these fools a comparison."""
    for cases, trials in ((20, 5), (60, 5)):
        kinds: dict[str, tuple[dict[str, float], dict[str, float]]] = {
            "B hides half of its failures, A errs in 15 %": ({"any": 0.15}, {"failed": 0.5}),
            "B hides 30 % of its failures, A errs as often": ({"any": 0.09}, {"failed": 0.3}),
            "B hides half of its failures, A does not err": ({}, {"failed": 0.5}),
            "both err in 20 %": ({"any": 0.2}, {"any": 0.2}),
            "the provider is down in 20 % of both": ({"down": 0.2}, {"down": 0.2}),
        }
        for name, (first, second) in kinds.items():
            found = erring(cases, trials, first, second, runs, seed)
            told = ", ".join(f"{verdict} {found[verdict]:.3f}" for verdict in ("better", "worse", "not-worse"))
            print(f"errors, alike, {cases} x {trials}, {name}: {told}", flush=True)
    for (cases, trials), answers, stable in product(((20, 3), (20, 5), (20, 25)), (1, 3, None), (True, False)):
        kind = f"{cases} x {trials}, {answers or 'new'} answers{'' if stable else ', open cases'}"
        never, known, assumed = (
            misjudged(cases, trials, answers, runs, seed, wrong_about=share, error=error, stable=stable)
            for share, error in ((0.1, 0.0), (0.1, 0.1), (0.05, None))
        )
        told = f"wrong about 10 %: {never:.3f} if taken as never wrong, with judge.error {known:.3f}"
        print(f"judge, {kind}: {told}; wrong about 5 %, as assumed: {assumed:.3f}", flush=True)
    for (cases, trials), mood in product(((20, 3), (20, 5), (60, 5)), (0.0, 0.5, 1.0)):
        untold, told = (moody(cases, trials, mood, runs, seed, told=each) for each in (False, True))
        print(f"moods of {mood} by round and arm, {cases} x {trials}: {untold:.3f}, by rounds {told:.3f}", flush=True)
    for spread, (cases, trials) in product((0.3, 1.0, 2.0), ((3, 3), (20, 1), (20, 3), (60, 5))):
        missed, _ = costly(cases, trials, lambda chance, s=spread: exp(chance.gauss(0, s)), 1.2, 2 * runs, seed)
        print(f"costs with a spread of {spread} (log), {cases} x {trials}: ratio missed {missed:.3f}", flush=True)
    passed, failed = cost_looks(runs, seed)
    print(
        f"a cost ratio at its limit, looked at ten times: ever passes {passed:.3f}, ever fails {failed:.3f}", flush=True
    )
    for effect, ratio in ((0.0, 1.0), (-0.05, 0.7), (0.0, 0.7)):
        found = aimed(20, 5, effect, ratio, runs, seed)
        told = f"reached {found['reached']:.3f}, missed {found['missed']:.3f}"
        print(f"goal cheaper, 20 x 5, true {effect:+}, {ratio} times the cost: {told}", flush=True)
    for cases, between in ((20, 0.5), (20, 0.8), (10, 0.5)):
        parts = promised(cases, between, runs // 2, seed)
        told = "; ".join(f"{said:.2f} said, {came:.2f} came ({number})" for said, came, number in parts.values())
        print(f"chance to decide, {cases} cases, {between} between: {told}", flush=True)
    for effect in (None, 0.1, 0.0, -0.05):
        share, asked = advised(20, 3, effect, runs // 2, seed)
        true = "whatever is usual" if effect is None else f"{effect:+}"
        print(f"to decide it, 20 x 3, true {true}: open {asked:.2f}, then decided {share:.2f}", flush=True)
    for cases, between, pilot in product((10, 20), (0.5, 0.8), (1, 3, 10)):
        power, held = planned(cases, between, pilot, runs // 2, seed)
        told = f"finds 10 points in {power:.2f}, range holds what is needed in {held:.2f}"
        print(f"plan for {cases} cases, {between} between, pilot of {pilot}: {told}", flush=True)
