"""Simulate judges of known error, and measure what whet says of them: `python bench/judges.py`.

Runs are drawn at random, statement by statement, and go through the functions that decide: the draw of what people are
asked, the difference counted by labels, Rogan-Gladen, kappa. It prints how many intervals hold the truth, how wide they
are, and how often a difference is claimed that is none. `--repeats 50` is a short look; the tables take some minutes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import fsum
from random import Random

from msgspec import Struct

from whet.decide.judging.agreement import Stratum, agreement_with_people, rates_against_people
from whet.decide.judging.counted import better_than_coin, counted_difference, raw_difference, rogan_gladen
from whet.decide.judging.draw import draw, strata_of
from whet.decide.judging.units import JudgedUnit, Place, UnitKey
from whet.model.callable import Interval

TRIALS = 5
_THRESHOLD = 7.0


class World(Struct, frozen=True, kw_only=True):
    """A run and its judge: the rate of the baseline, what the candidate adds, and how right the judge is.

    `favour` is how many more of the candidate's failures it passes. `clusters` makes its errors those of cases: each
    has rates of its own. Statements of a trial are `alike` in that share.
    """

    cases: int = 20
    labels: int = 60
    tpr: float = 0.9
    tnr: float = 0.9
    base: float = 0.5
    lift: float = 0.2
    favour: float = 0.0
    statements: int = 1
    alike: float = 0.0
    clusters: float | None = None


class SimulatedRun(Struct, frozen=True, kw_only=True):
    """What a world came out as once: units of both arms, and what is true of each."""

    baseline: list[JudgedUnit]
    candidate: list[JudgedUnit]
    truth: dict[Place, bool]

    def labels(self, n: int, seed: str) -> dict[Place, bool]:
        """Return what people say of *n* units that whet draws."""
        drawn = draw([*self.baseline, *self.candidate], n, seed)
        return {entry.unit.place: self.truth[entry.unit.place] for entry in drawn}


def simulate(world: World, random: Random) -> SimulatedRun:
    """Draw a run of *world*."""
    reach = min(0.3, world.base, 1 - world.base - max(0.0, world.lift))
    truth: dict[Place, bool] = {}
    arms: dict[str, list[JudgedUnit]] = {"old": [], "new": []}
    for case in range(world.cases):
        base = world.base + random.uniform(-reach, reach)
        rates = _judge_rates(world, random)
        for arm, units in arms.items():
            rate = base + (world.lift if arm == "new" else 0.0)
            tpr, tnr = rates[0], max(0.0, rates[1] - (world.favour if arm == "new" else 0.0))
            for trial in range(TRIALS):
                together = random.random() < rate
                for place in range(world.statements):
                    holds = together if random.random() < world.alike else random.random() < rate
                    passed = random.random() < (tpr if holds else 1 - tnr)
                    unit = _unit(f"case-{case}", arm, trial + 1, f"It is {place}.", passed, random)
                    truth[unit.place] = holds
                    units.append(unit)
    return SimulatedRun(baseline=arms["old"], candidate=arms["new"], truth=truth)


def _judge_rates(world: World, random: Random) -> tuple[float, float]:
    if world.clusters is None:
        return world.tpr, world.tnr
    strength = world.clusters
    return tuple(random.betavariate(strength * rate, strength * (1 - rate)) for rate in (world.tpr, world.tnr))  # type: ignore[return-value]


def _unit(case: str, arm: str, trial: int, check: str, passed: bool, random: Random) -> JudgedUnit:
    rating = random.uniform(_THRESHOLD, 10) if passed else random.uniform(0, _THRESHOLD - 0.01)
    return JudgedUnit(
        run="run",
        suite="suite",
        key=UnitKey(case, "agent", arm, trial, check, ""),
        attempt=1,
        statement=check,
        passed=passed,
        rating=rating,
        threshold=_THRESHOLD / 10,
        ratings=(rating,),
        reason="",
        flags=(),
        statement_id=check,
        answer_id=f"{case} {arm} {trial}",
        judge_id="judge",
        judge={},
        artifact_dir="",
    )


def strata_with_labels(units: Sequence[JudgedUnit], truths: Mapping[Place, bool]) -> list[Stratum]:
    """Return the strata of *units* with their labels."""
    strata: list[Stratum] = []
    for members in strata_of(units).values():
        known = [truths[unit.place] for unit in members if unit.place in truths]
        strata.append(
            Stratum(
                arm=members[0].key.arm,
                passed=members[0].passed,
                units=len(members),
                labels=len(known),
                true=sum(known),
            )
        )
    return strata


class Tally(Struct):
    """How intervals of one kind did: how many there were, held the truth, excluded zero, and their widths."""

    given: int = 0
    held: int = 0
    claimed: int = 0
    width: float = 0.0

    def note(self, interval: Interval | None, truth: float) -> None:
        """Count an interval, if there is one."""
        if interval is None:
            return
        self.given += 1
        self.held += interval.low - 1e-12 <= truth <= interval.high + 1e-12
        self.claimed += interval.low > 0 or interval.high < 0
        self.width += min(2.0, interval.high - interval.low)

    @property
    def coverage(self) -> float:
        """The share that held the truth."""
        return self.held / self.given if self.given else 1.0


class Measured(Struct, frozen=True, kw_only=True):
    """What a world was found to be in many runs."""

    repeats: int
    raw: Tally
    rogan_gladen: Tally
    counted: Tally
    kappa: Tally


def measure(world: World, repeats: int, seed: int = 1) -> Measured:
    """Simulate *world* so many times, and count what its intervals say."""
    random = Random(f"{world} {seed}")
    found = Measured(repeats=repeats, raw=Tally(), rogan_gladen=Tally(), counted=Tally(), kappa=Tally())
    for number in range(repeats):
        run = simulate(world, random)
        labels = run.labels(world.labels, str(number))
        _note(found, world, run, labels)
    return found


def _note(found: Measured, world: World, run: SimulatedRun, labels: Mapping[Place, bool]) -> None:
    raw = raw_difference(run.baseline, run.candidate)
    assert raw is not None
    seen = Interval(value=raw.value, low=raw.low, high=raw.high)
    found.raw.note(seen, world.lift)
    strata = strata_with_labels([*run.baseline, *run.candidate], labels)
    rates = rates_against_people(strata)
    found.rogan_gladen.note(rogan_gladen(seen, better_than_coin(rates)), world.lift)
    counted = counted_difference(run.baseline, run.candidate, labels)
    if counted is not None and counted.value is not None and counted.low is not None and counted.high is not None:
        found.counted.note(Interval(value=counted.value, low=counted.low, high=counted.high), world.lift)
    agreement = agreement_with_people(strata)
    if agreement is not None:
        found.kappa.note(agreement.kappa, _true_kappa(run))


def _true_kappa(run: SimulatedRun) -> float:
    """Return the kappa that labels on all units would show."""
    units = [*run.baseline, *run.candidate]
    people = fsum(run.truth.values()) / len(units)
    judge = sum(unit.passed for unit in units) / len(units)
    agreed = sum(unit.passed == run.truth[unit.place] for unit in units) / len(units)
    expected = people * judge + (1 - people) * (1 - judge)
    return (agreed - expected) / (1 - expected) if expected < 1 else 0.0


JUDGES = ((0.7, 0.7), (0.8, 0.9), (0.9, 0.8), (0.9, 0.9), (0.98, 0.98))
SIZES = tuple(
    (cases, labels) for cases in (10, 20, 40) for labels in (30, 60, 100, 200) if labels <= cases * TRIALS * 2
)


def coverage_lines(repeats: int) -> Iterator[str]:
    """Yield the table of coverage for judges that err alike in both arms."""
    yield "cases labels  judge    raw   Rogan-Gladen (width; given)   counted (width)   decided raw / counted   kappa"
    for (cases, labels), (tpr, tnr) in product(SIZES, JUDGES):
        found = measure(World(cases=cases, labels=labels, tpr=tpr, tnr=tnr), repeats)
        yield f"{cases:5} {labels:6}  {tpr:g}/{tnr:g}  {_row(found)}"


def favour_lines(repeats: int) -> Iterator[str]:
    """Yield what a judge does that passes 20 points more of the candidate's failures."""
    yield "a judge that favours the candidate (TPR .9, TNR .8, 20 points), 20 cases"
    for lift, base, labels in product((0.0, 0.2), (0.5,), (30, 60, 100, 200)):
        found = measure(World(labels=labels, tnr=0.8, lift=lift, base=base, favour=0.2), repeats)
        yield f"lift {lift:g} labels {labels:4}  {_row(found)}"
    for base in (0.2, 0.85):
        found = measure(World(tnr=0.8, lift=0.0, base=base), repeats)
        yield f"lift 0 base {base:g} labels 60  {_row(found)}"


def cluster_lines(repeats: int) -> Iterator[str]:
    """Yield what errors do that cluster by case, and statements that go together in a trial."""
    yield "errors by case (Beta of strength 2 around .85), three statements a trial, and both"
    kinds = ({"clusters": 2.0}, {"statements": 3}, {"statements": 3, "alike": 0.7}, {"statements": 3, "clusters": 2.0})
    for kind, cases, labels, lift in product(kinds, (10, 20, 40), (60, 200), (0.0, 0.2)):
        found = measure(World(cases=cases, labels=labels, lift=lift, tpr=0.85, tnr=0.85, **kind), repeats)  # type: ignore[arg-type]
        yield f"{kind} cases {cases} labels {labels} lift {lift:g}  {_row(found)}"


def _row(found: Measured) -> str:
    raw, rg, counted = found.raw, found.rogan_gladen, found.counted
    return (
        f"{raw.coverage:.3f}  {rg.coverage:.3f} ({_mean(rg):.2f}; {rg.given / found.repeats:.0%})  "
        f"{counted.coverage:.3f} ({_mean(counted):.2f}; {counted.given / found.repeats:.0%})  "
        f"{raw.claimed / found.repeats:.0%} / {counted.claimed / found.repeats:.1%}  {found.kappa.coverage:.3f}"
    )


def _mean(tally: Tally) -> float:
    return tally.width / tally.given if tally.given else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=500)
    asked = parser.parse_args()
    for lines in (coverage_lines, favour_lines, cluster_lines):
        for line in lines(asked.repeats):
            print(line)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
