"""Comparisons: what trials of two arms say, and what was decided from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Literal

from whet.dataclass import dataclass
from whet.model.benchmark import Interval

Decision = Literal["better", "not-worse", "worse", "inconclusive"]
# What is measured beside the verdicts, and the unit that people read it in.
Amount = Literal["cost_usd", "seconds", "tokens", "steps"]
AMOUNTS: tuple[Amount, ...] = ("cost_usd", "seconds", "tokens", "steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """What one trial says: `value` is from 0 to 1, or None if the trial errored; amounts are None if unknown.

    A `contaminated` trial errored because it found a skill that its arm should not have.
    """

    case: str
    value: float | None
    cost_usd: float | None = None
    seconds: float | None = None
    tokens: float | None = None
    steps: float | None = None
    contaminated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSamples:
    """The trials of one arm on one runner."""

    arm: str
    runner: str
    trials: tuple[Sampled, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSamples:
    """All that a comparison needs of a run; `arms` are in their order, the baseline first.

    `grown_from` are the rounds that were done each time the run was made longer, since somebody had looked at it then.
    A run until decided looked after each of its rounds, of which there were to be `rounds_planned` at most.
    """

    name: str
    arms: tuple[ArmSamples, ...]
    weights: Mapping[str, float]
    grown_from: tuple[int, ...] = ()
    rounds_planned: int | None = None
    interleaved: bool = True
    # Arms that do not differ in anything, and the like.
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arms."""
        return tuple(dict.fromkeys(each.arm for each in self.arms))

    @property
    def rounds(self) -> int:
        """The largest number of trials that a case has in an arm."""
        counts = Counter((each.arm, each.runner, trial.case) for each in self.arms for trial in each.trials)
        return max(counts.values(), default=0)

    def of_arm(self, name: str) -> dict[str, tuple[Sampled, ...]]:
        """Return the trials of an arm, by runner."""
        return {each.runner: each.trials for each in self.arms if each.arm == name}


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseChange:
    """One case in both arms: mean values, how many trials each is from, and whether it may be chance.

    An arm of which no trial counted has no value.
    """

    case: str
    baseline: float | None
    candidate: float | None
    baseline_trials: int
    candidate_trials: int
    weight: float
    may_be_chance: bool

    @property
    def value(self) -> float:
        """By how much the candidate is better, or worse."""
        return 0.0 if self.baseline is None or self.candidate is None else self.candidate - self.baseline


@dataclass(frozen=True, slots=True, kw_only=True)
class AmountChange:
    """What a trial takes in both arms, on average over cases, and how many times as much the candidate takes."""

    amount: Amount
    baseline: float
    candidate: float
    ratio: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Errored:
    """The trials that errored, and the difference if all of them had failed, or had passed."""

    baseline: int
    candidate: int
    if_failed: Interval
    if_passed: Interval
    # Whether leaving them out would have led to the same decision.
    decisive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two arms on one runner, and the decision; the interval covers both ways in which errored trials could have gone.

    `level` is that of the interval: 0.95, or more if several candidates or several looks share one error.
    """

    baseline: str
    candidate: str
    verdict: Decision
    difference: float
    low: float
    high: float
    margin: float
    level: float
    like_these: Interval | None
    baseline_rate: Interval
    candidate_rate: Interval
    cases: tuple[CaseChange, ...]
    amounts: tuple[AmountChange, ...]
    errored: Errored
    # The variance of a trial within its case, summed over both arms, and the trials that it is known from.
    spread: float
    trials: int
    runner: str | None = None
    contaminated: int = 0
    looks: int = 1
    interleaved: bool = True
    # What a reader must know before relying on it, one sentence each.
    notes: tuple[str, ...] = ()
