"""Worlds for `bench/decisions.py`: the true rates of cases in two arms, and trials that are drawn from them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

from whet.model.comparison import ArmSamples, RunSamples, Sampled, Until

BETWEEN = 0.5
_CHECKS = 4


@dataclass(frozen=True)
class Setting:
    """What is simulated; `between` is the share of variance that lies between cases."""

    cases: int
    trials: int
    base: float
    effect: float = 0.0
    weighted: bool = False
    graded: bool = False
    errored: float = 0.0
    between: float = BETWEEN

    def __str__(self) -> str:
        words = [f"{self.cases:3} x {self.trials:2}", f"base {self.base:.2f}", f"effect {self.effect:+.2f}"]
        words += (
            ["weights"] * self.weighted
            + ["graded"] * self.graded
            + [f"errored {self.errored:.0%}"] * (self.errored > 0)
            + [f"between {self.between:g}"] * (self.between != BETWEEN)
        )
        return ", ".join(words)


class World:
    """The true rates of cases in both arms, and trials drawn from them."""

    def __init__(self, setting: Setting, chance: random.Random) -> None:
        self.setting, self.chance = setting, chance
        self.baseline = drawn_rates(setting.cases, setting.base, setting.between, chance)
        self.candidate = shifted(self.baseline, setting.effect)
        self.weights = {
            str(number): chance.choice((1.0, 2.0, 5.0)) if setting.weighted else 1.0 for number in range(setting.cases)
        }

    @property
    def truth(self) -> float:
        """The true difference on these cases."""
        whole = sum(self.weights.values())
        pairs = zip(self.baseline, self.candidate, self.weights.values(), strict=True)
        return sum(weight * (after - before) for before, after, weight in pairs) / whole

    def trials(self, rates: Sequence[float], count: int | None = None, first_round: int | None = None) -> list[Sampled]:
        """Draw the trials of one arm; with a first round, each knows its own."""
        return [
            Sampled(
                case=str(number),
                value=None if self.chance.random() < self.setting.errored else self._value(rate),
                round=None if first_round is None else first_round + trial,
            )
            for number, rate in enumerate(rates)
            for trial in range(count or self.setting.trials)
        ]

    def _value(self, rate: float) -> float:
        if not self.setting.graded:
            return float(self.chance.random() < rate)
        # Checks of one trial go together: half of them are decided by one draw.
        together = self.chance.random() < rate
        held = sum(together if number % 2 else self.chance.random() < rate for number in range(_CHECKS))
        return held / _CHECKS


def drawn_rates(cases: int, base: float, between: float, chance: random.Random) -> list[float]:
    """Draw the rates of cases from a beta distribution; without variance between them they are alike."""
    if between <= 0:
        return [base] * cases
    size = (1 - between) / between
    return [min(max(chance.betavariate(base * size, (1 - base) * size), 1e-4), 1 - 1e-4) for _ in range(cases)]


def shifted(rates: Sequence[float], effect: float) -> list[float]:
    """Move all rates on the logit scale, so that their mean moves by *effect*, or as far as it can."""
    if not effect:
        return list(rates)
    low, high = -12.0, 12.0
    moved = list(rates)
    for _ in range(50):
        by = (low + high) / 2
        moved = [moved_by(rate, by) for rate in rates]
        if sum(moved) / len(moved) - sum(rates) / len(rates) < effect:
            low = by
        else:
            high = by
    return moved


def moved_by(rate: float, by: float) -> float:
    """Move one rate on the logit scale."""
    return 1 / (1 + exp(-(log(rate / (1 - rate)) + by)))


def samples_of(world: World, arms: dict[str, list[Sampled]], until: Until) -> RunSamples:
    """Return the trials as those of a run until decided."""
    return RunSamples(
        name="simulated",
        arms=tuple(ArmSamples(arm=name, runner="r", trials=tuple(trials)) for name, trials in arms.items()),
        weights=world.weights,
        rounds_planned=until.rounds,
    )
