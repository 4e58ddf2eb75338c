"""Worlds for `bench/improve.py`: the true rates of versions of a skill on all cases, and a workbench that draws trials.

The loop over this workbench is the product's own, and so is everything that decides.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from decision_worlds import BETWEEN, drawn_rates, moved_by, shifted

from whet.decide.improve.accept import default_rule
from whet.decide.improve.spending import error_of_step
from whet.decide.until import analyse_round
from whet.improve.figures import confirm_record, practice_scores, until_of
from whet.improve.loop import LoopEnd, improve_in_rounds
from whet.model.comparison import ArmSamples, RunSamples, Sampled
from whet.record.improve.document import (
    CURRENT,
    AcceptRule,
    CandidateRecord,
    ConfirmRecord,
    ImproveGoal,
    ImproveOptions,
    PracticeScore,
    SealedRecord,
)


@dataclass(frozen=True)
class Version:
    """The true rates of a version on each practice case and on each held-out case, and what a trial costs."""

    practice: list[float]
    held_out: list[float]
    cost: float = 1.0


# Makes a version from the one that the round started from.
Planted = Callable[[Version, random.Random], Version]


def same(current: Version, _: random.Random) -> Version:
    """Change nothing that counts."""
    return current


def better_by(effect: float) -> Planted:
    """Move the mean of both parts, as far as cases allow."""

    def plant(current: Version, _: random.Random) -> Version:
        # In one piece, so that an edit does not know which cases are held out.
        rates = shifted([*current.practice, *current.held_out], effect)
        count = len(current.practice)
        return Version(rates[:count], rates[count:], current.cost)

    return plant


def on_practice_only(effect: float, elsewhere: float = 0.0) -> Planted:
    """Move practice cases by *effect*, as a skill does that has their answers, and held-out ones by *elsewhere*."""

    def plant(current: Version, _: random.Random) -> Version:
        return Version(shifted(current.practice, effect), shifted(current.held_out, elsewhere), current.cost)

    return plant


def helps_and_hurts(deviation: float) -> Planted:
    """Move each case by an effect of its own, with a mean of zero on the logit scale."""

    def plant(current: Version, chance: random.Random) -> Version:
        practice, held_out = (
            [moved_by(rate, chance.gauss(0, deviation)) for rate in rates]
            for rates in (current.practice, current.held_out)
        )
        return Version(practice, held_out, current.cost)

    return plant


def cheaper_to(share: float, effect: float = 0.0) -> Planted:
    """Cost *share* of what the current version does, and move its rates by *effect*."""

    def plant(current: Version, chance: random.Random) -> Version:
        moved = better_by(effect)(current, chance) if effect else current
        return Version(moved.practice, moved.held_out, current.cost * share)

    return plant


@dataclass(frozen=True)
class World:
    """What loops go through: cases, and the candidates of each round."""

    name: str
    # Of the candidates of a round; the rest of them are the same as the current version.
    planted: tuple[Planted, ...] = ()
    candidates: int = 6
    rounds: int = 1
    # Improve runs one after the other on the same split.
    runs: int = 1
    practice: int = 12
    held_out: int = 12
    base: float = 0.5
    between: float = BETWEEN
    errored: float = 0.0
    goal: ImproveGoal = "better"
    accept: AcceptRule | None = None

    @property
    def rule(self) -> AcceptRule:
        """On which cases a version must be better."""
        return self.accept or default_rule(self.held_out)

    @property
    def options(self) -> ImproveOptions:
        """What an improve run in this world is asked for."""
        return ImproveOptions(
            part="body",
            goal=self.goal,
            candidates=self.candidates,
            rounds=self.rounds,
            max_cost_usd=None,
            accept=self.rule,
            max_rounds=10 if self.goal == "better" else 20,
        )

    def first_version(self, chance: random.Random) -> Version:
        """Draw the cases."""
        rates = drawn_rates(self.practice + self.held_out, self.base, self.between, chance)
        return Version(rates[: self.practice], rates[self.practice :])


@dataclass
class DrawnBench:
    """Draws the trials that a `Workbench` would run; the lock of the split is the number of its `steps`."""

    world: World
    chance: random.Random
    current: Version
    steps: int = 0
    trials: int = 0
    _made: dict[str, Version] = field(default_factory=dict)
    _raced: dict[str, list[Sampled]] = field(default_factory=dict)

    def measure_current(self) -> PracticeScore:
        """Draw three trials of each practice case."""
        return practice_scores({CURRENT: self._draw(CURRENT, self.current.practice, 3)})[CURRENT]

    def propose(self, round_number: int) -> Sequence[CandidateRecord]:
        """Make the planted versions, and others that are the same as the current one, in any order."""
        makers = [*self.world.planted, *[same] * (self.world.candidates - len(self.world.planted))]
        self.chance.shuffle(makers)
        self._made = {f"{round_number}.{number}": make(self.current, self.chance) for number, make in enumerate(makers)}
        self._raced = {}
        return [CandidateRecord(id=name, digest=name, fate="proposed") for name in self._made]

    def lint(self, round_number: int, candidates: Sequence[CandidateRecord]) -> Sequence[CandidateRecord]:
        """Refuse nothing: what the lint lets through is what has to be found out."""
        return [CandidateRecord(id=candidate.id, digest=candidate.digest, fate="fit") for candidate in candidates]

    def most_kept(self, round_number: int, candidates: int) -> int:
        """Have the money for all."""
        return candidates

    def race(self, round_number: int, leg: int, versions: Sequence[str], trials: int) -> Mapping[str, PracticeScore]:
        """Draw trials of practice cases."""
        for name in versions:
            self._raced.setdefault(name, []).extend(self._draw(name, self._version(name).practice, trials))
        scores = practice_scores(self._raced)
        return {name: scores[name] for name in versions}

    def next_error(self, round_number: int) -> tuple[int, float]:
        """Count a confirm step on this split."""
        self.steps += 1
        return self.steps, error_of_step(self.steps)

    def confirm(self, round_number: int, candidate: str, step: int, error: float) -> ConfirmRecord:
        """Draw rounds of held-out cases until a look decides."""
        until = until_of(self.world.options, error)
        arms: dict[str, list[Sampled]] = {CURRENT: [], candidate: []}
        for done in range(1, until.rounds + 1):
            for name in arms:
                arms[name] += self._draw(name, self._version(name).held_out, 1, first_round=done)
            samples = RunSamples(
                name="drawn",
                arms=tuple(ArmSamples(arm=name, runner="r", trials=tuple(trials)) for name, trials in arms.items()),
                weights={},
                rounds_planned=until.rounds,
                error=until.error,
            )
            look = analyse_round(samples, until)
            if look is not None and look.stop is not None:
                return confirm_record(samples, until, candidate, step=step, stop=look.stop)
        raise AssertionError("the last round ends a run")

    def accept(self, round_number: int, candidate: str) -> None:
        """Go on from *candidate*."""
        self.current = self._made[candidate]

    def seal(self) -> SealedRecord | None:
        """Have no sealed cases."""
        return None

    def _version(self, name: str) -> Version:
        return self.current if name == CURRENT else self._made[name]

    def _draw(self, name: str, rates: Sequence[float], count: int, first_round: int | None = None) -> list[Sampled]:
        self.trials += len(rates) * count
        cost = self._version(name).cost
        return [
            Sampled(
                case=str(case),
                value=None if self.chance.random() < self.world.errored else float(self.chance.random() < rate),
                # Trials of one version differ by about a third.
                cost_usd=cost * self.chance.lognormvariate(0, 0.3) if self.world.goal == "cheaper" else None,
                round=None if first_round is None else first_round + trial,
            )
            for case, rate in enumerate(rates)
            for trial in range(count)
        ]


@dataclass(frozen=True)
class LoopOutcome:
    """How the improve runs of one world ended, and how many agent runs they took."""

    ends: tuple[LoopEnd, ...]
    trials: int
    # Of the last version less the first one, on held-out cases.
    gain: float

    @property
    def reported(self) -> float:
        """What the accepted versions were said to gain, one on top of the other."""
        records = (record for end in self.ends for record in end.rounds)
        return sum(record.confirm.difference for record in records if record.accepted and record.confirm)

    @property
    def is_accepted(self) -> bool:
        """Whether any of them accepted a version."""
        return any(end.outcome == "succeeded" for end in self.ends)

    @property
    def is_called_worse(self) -> bool:
        """Whether any confirm step said that a version is worse."""
        return any(record.confirm and record.confirm.verdict == "worse" for end in self.ends for record in end.rounds)


def go_through(world: World, seed: str) -> LoopOutcome:
    """Go through the improve runs of *world* once."""
    chance = random.Random(f"{seed} {world.name}")
    bench = DrawnBench(world, chance, world.first_version(chance))
    first = bench.current
    ends = tuple(improve_in_rounds(bench, world.options) for _ in range(world.runs))
    return LoopOutcome(ends, bench.trials, _mean(bench.current.held_out) - _mean(first.held_out))


def _mean(rates: Sequence[float]) -> float:
    return sum(rates) / len(rates)
