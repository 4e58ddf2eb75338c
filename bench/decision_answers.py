"""What else whet answers, for `bench/decisions.py`: rates, other cases, several runners, weighted tasks and history."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from math import exp

from decision_worlds import Setting, World, drawn_rates, moved_by

from whet.callable._summary import rate
from whet.decide.comparison import compare_arms, comparisons_of
from whet.decide.gate import gate_comparison, gate_like_these, rates_of
from whet.decide.resampling import paired_difference
from whet.model.callable import Sample
from whet.model.comparison import ArmSamples, RunSamples, Sampled
from whet.view.history.document import decided_changes


def on_runners(runners: int, runs: int, seed: int, *, per_runner: bool) -> tuple[float, float]:
    """Return how often arms that are alike are called different on any runner, and how often the gate fails."""
    chance = random.Random(f"{seed} runners {runners}")
    decided = failed = 0
    for _ in range(runs):
        world = World(Setting(20, 3, 0.7), chance)
        samples = RunSamples(
            name="run",
            arms=tuple(
                ArmSamples(arm=arm, runner=str(runner), trials=tuple(world.trials(world.baseline, first_round=1)))
                for arm, runner in product(("old", "new"), range(runners))
            ),
            weights={},
        )
        seen = comparisons_of(samples, per_runner=per_runner)
        decided += any(not comparison.low <= 0 <= comparison.high for comparison in seen)
        failed += any(gate_comparison(comparison) == "fail" for comparison in seen)
    return decided / runs, failed / runs


def rated(setting: Setting, runners: int, runs: int, seed: int, *, mood: float = 0.0) -> tuple[float, float]:
    """Return how often the rate of any runner is above its interval, and how often below: a gate lets it pass, or not.

    With a *mood*, its spread on the logit scale, all trials of a round move together; the true rate is that over all.
    """
    chance = random.Random(f"{seed} rated {setting} {runners} {mood}")
    too_high = too_low = 0
    for _ in range(runs):
        world, arms, truths = World(setting, chance), [], []
        for runner in range(runners):
            moods = [chance.gauss(0, mood) for _ in range(setting.trials)]
            moved = [[moved_by(each, by) for each in world.baseline] for by in moods]
            trials = tuple(
                Sampled(case=str(case), value=float(chance.random() < value), round=number)
                for number, values in enumerate(moved)
                for case, value in enumerate(values)
            )
            arms.append(ArmSamples(arm="only", runner=str(runner), trials=trials))
            truths.append(_over_moods(world.baseline, mood))
        rates = rates_of(RunSamples(name="run", arms=tuple(arms), weights={}))
        pairs = [(rates["only", str(runner)], truth) for runner, truth in enumerate(truths)]
        too_high += any(found.low > truth + 1e-9 for found, truth in pairs)
        too_low += any(found.high < truth - 1e-9 for found, truth in pairs)
    return too_high / runs, too_low / runs


def _over_moods(rates: Sequence[float], mood: float) -> float:
    """Return the mean of *rates* over all moods of a provider."""
    if not mood:
        return sum(rates) / len(rates)
    points = [-3 + 6 * number / 40 for number in range(41)]
    weights = [exp(-point * point / 2) for point in points]
    means = [sum(moved_by(each, mood * point) for each in rates) / len(rates) for point in points]
    return sum(weight * mean for weight, mean in zip(weights, means, strict=True)) / sum(weights)


def on_other_cases(cases: int, trials: int, spread: float, runs: int, seed: int) -> tuple[float, float, float]:
    """Return how often what holds for other cases is told of arms that differ only from case to case, by *spread*.

    Also how wide that interval is on average, and how often a gate on other cases passes.
    """
    chance = random.Random(f"{seed} other cases {cases} {trials} {spread}")
    held = passed = 0
    width = 0.0
    for _ in range(runs):
        rates = drawn_rates(cases, 0.5, 0.2, chance)
        changed = [min(1.0, max(0.0, each + chance.choice((-1, 1)) * spread)) for each in rates]
        arms = [
            [
                Sampled(case=str(case), value=float(chance.random() < each))
                for case, each in enumerate(arm)
                for _ in range(trials)
            ]
            for arm in (rates, changed)
        ]
        seen = compare_arms(*arms)
        assert seen is not None
        assert seen.like_these is not None
        held += not seen.like_these.low <= 0 <= seen.like_these.high
        passed += gate_like_these(seen).answer == "pass"
        width += seen.like_these.high - seen.like_these.low
    return held / runs, width / runs, passed / runs


def covered(cases: int, trials: int, base: float, between: float, runs: int, seed: int) -> tuple[float, float]:
    """Return how often the interval of a rate holds what it is of: in `whet eval` tasks like these, in gates these."""
    chance = random.Random(f"{seed} covered {cases} {trials} {base} {between}")
    like_these = on_these = 0
    for _ in range(runs):
        world = World(Setting(cases, trials, base, between=between), chance)
        drawn = world.trials(world.baseline, first_round=1)
        seen = rate(
            [
                Sample(task=trial.case, run=trial.round or 1, status="pass" if trial.value else "fail")
                for trial in drawn
            ],
            lambda sample: sample.status == "pass",
        )
        assert seen is not None
        like_these += seen.low - 1e-9 <= base <= seen.high + 1e-9
        run = RunSamples(name="run", arms=(ArmSamples(arm="only", runner="r", trials=tuple(drawn)),), weights={})
        found, truth = rates_of(run)["only", "r"], sum(world.baseline) / cases
        on_these += found.low - 1e-9 <= truth <= found.high + 1e-9
    return like_these / runs, on_these / runs


def changed_reports(cases: int, trials: int, runs: int, seed: int) -> tuple[float, float]:
    """Return how often reports of a skill that is as good as before say regressed, and of one that is better.

    The first task weighs 10 and is unstable; of the better skill it passes more often, and one light task fails.
    """
    chance = random.Random(f"{seed} reports {cases} {trials}")
    weights = {str(case): 10.0 if case == 0 else 1.0 for case in range(cases)}
    wrong = [0, 0]
    for _ in range(runs):
        for number, after in enumerate(([0.5] + [1.0] * (cases - 1), [0.95] + [1.0] * (cases - 2) + [0.0])):
            arms = [
                {str(case): [float(chance.random() < each) for _ in range(trials)] for case, each in enumerate(rates)}
                for rates in ([0.5] + [1.0] * (cases - 1), after)
            ]
            seen = paired_difference(*arms, weights=weights)
            wrong[number] += seen is not None and seen.high < 0
    return wrong[0] / runs, wrong[1] / runs


def remembered(
    cases: int, trials: int, effect: float, mood: float, runs: int, seed: int, *, same_content: bool
) -> Counter[str]:
    """Return how often a history of 12 runs that changes by *effect* in its middle is marked.

    That is there or one run beside, or elsewhere. Its runs are on the same content, or each is on its own, and each is
    in a *mood* of its provider, with that spread on the logit scale.
    """
    chance, points = random.Random(f"{seed} history {cases} {trials} {effect} {mood} {same_content}"), 12
    found: Counter[str] = Counter()
    for _ in range(runs):
        world = World(Setting(cases, trials, 0.8, effect, between=0.3), chance)
        history = [
            RunSamples(
                name=f"run{number:03}",
                arms=(ArmSamples(arm="a", runner="r", trials=tuple(world.trials(rates, first_round=1))),),
                weights={},
            )
            for number, rates in enumerate(_in_moods(world, points, mood, chance))
        ]
        segments = [history] if same_content else [[run] for run in history]
        marked = {int(run[3:]) for run, change in decided_changes([segments]).items() if _is_marked(change.verdict)}
        near = {number for number in marked if effect and abs(number - points // 2) <= 1}
        found["there"] += bool(near)
        found["elsewhere"] += bool(marked - near)
    return Counter({name: number / runs for name, number in found.items()})  # type: ignore[misc]


def _in_moods(world: World, points: int, mood: float, chance: random.Random) -> Iterator[list[float]]:
    """Yield the rates of each run: those of the candidate from the middle on."""
    for number in range(points):
        by = chance.gauss(0, mood)
        yield [moved_by(rate, by) for rate in (world.baseline if number < points // 2 else world.candidate)]


def _is_marked(verdict: str) -> bool:
    return verdict in {"better", "worse"}


def print_all(runs: int, seed: int) -> None:
    """Print how often each of these answers is right."""
    for runners in (1, 3, 5, 10):
        shared, apart = (on_runners(runners, runs, seed, per_runner=per_runner) for per_runner in (False, True))
        told = f"any decided {shared[0]:.3f}, gate fails {shared[1]:.3f}; --per-runner {apart[0]:.3f}, {apart[1]:.3f}"
        print(f"A against A, 20 x 3 on {runners} runners: {told}", flush=True)
    for (cases, trials), runners in product(((20, 3), (20, 5), (60, 5)), (1, 5)):
        high, low = rated(Setting(cases, trials, 0.8), runners, runs, seed)
        told = f"{high:.3f} taken for more than it is, {low:.3f} for less"
        print(f"rate of one arm, {cases} x {trials} at 0.8, {runners} runners: {told}", flush=True)
    for (cases, trials), mood in product(((20, 3), (20, 5), (60, 5)), (0.5, 1.0)):
        high, low = rated(Setting(cases, trials, 0.8), 1, runs, seed, mood=mood)
        print(
            f"rate of one arm, {cases} x {trials} at 0.8, moods of {mood}: {high:.3f} for more, {low:.3f} for less",
            flush=True,
        )
    for cases, (trials, spread) in product((5, 10, 20), ((1, 0.0), (5, 0.0), (25, 0.0), (5, 0.3))):
        held, width, passed = on_other_cases(cases, trials, spread, runs, seed)
        told = f"called different {held:.3f}, gate passes {passed:.3f}, width {width:.2f}"
        print(f"other cases like these, {cases} x {trials}, arms differ by +-{spread} a case: {told}", flush=True)
    for (cases, trials), between in product(((5, 1), (5, 5), (20, 3), (20, 10), (60, 5)), (0.2, 0.5)):
        others, these = covered(cases, trials, 0.7, between, runs, seed)
        told = f"of whet eval holds tasks like these {others:.3f}, of a gate these cases {these:.3f}"
        print(f"interval of a rate, {cases} x {trials} at 0.7, {between} between: {told}", flush=True)
    for cases, trials in ((10, 3), (20, 5)):
        alike, better = changed_reports(cases, trials, runs, seed)
        print(f"whet report diff, {cases} x {trials}, weights: alike {alike:.3f}, better called regressed {better:.3f}")
    for (cases, trials), effect, (mood, same) in product(
        ((10, 3), (20, 3), (20, 5)), (0.0, -0.1, -0.2), ((0.0, True), (0.5, True), (0.0, False))
    ):
        seen = remembered(cases, trials, effect, mood, max(40, runs // 2), seed, same_content=same)
        kind = f"on one content{f', moods of {mood} by run' if mood else ''}" if same else "each on its own content"
        told = f"marked there {seen['there']:.2f}, elsewhere {seen['elsewhere']:.2f}"
        print(f"history of 12 runs of {cases} x {trials} {kind}, {effect:+} in the middle: {told}", flush=True)
