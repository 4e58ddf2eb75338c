"""What a skill adds: the score with it minus the score without, case by case and over a suite."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseLift:
    """One case in both variants."""

    case: str
    skill: float
    no_skill: float
    weight: float

    @property
    def value(self) -> float:
        """By how much the skill made it better, or worse."""
        return self.skill - self.no_skill


@dataclass(frozen=True, slots=True, kw_only=True)
class Lift:
    """What the skill adds for one runner, over the cases that have a score in both variants.

    `low` and `high` are a 95 % interval, paired by case; there is none of a single case. `unpaired` are the cases that
    lack a score in one of the variants, because it errored, was not run, or asks about nothing but the skill itself.
    Checks of whether the skill was triggered do not count in it: `triggered` of `asked` held with the skill.
    """

    runner: str
    value: float
    low: float | None
    high: float | None
    skill: float
    no_skill: float
    cases: tuple[CaseLift, ...]
    unpaired: tuple[str, ...] = ()
    triggered: int = 0
    asked: int = 0

    @property
    def better(self) -> int:
        """How many cases the skill made better."""
        return sum(case.value > 0 for case in self.cases)

    @property
    def worse(self) -> int:
        """How many cases the skill made worse."""
        return sum(case.value < 0 for case in self.cases)

    @property
    def same(self) -> int:
        """How many cases it left as they were."""
        return len(self.cases) - self.better - self.worse
