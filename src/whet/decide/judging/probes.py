"""What a judge says when it is asked again, and otherwise: flips, leaks, and what goes beyond its own noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import comb, sqrt
from typing import Literal, get_args

from msgspec import Struct

from whet.decide.judging.units import JudgedUnit
from whet.decide.scores import wilson_interval

ProbeName = Literal["again", "order", "empty", "shrug", "other", "inject", "longer", "swap"]
# Of statements; the last is of pairs of answers.
PROBES: tuple[ProbeName, ...] = get_args(ProbeName)[:-1]
# What shows an answer that cannot be right, or one that was not: whoever passes it is no judge of it.
LEAKS: tuple[ProbeName, ...] = ("empty", "shrug", "other", "inject")
# What is compared with the noise of the judge.
_BEYOND_NOISE: tuple[ProbeName, ...] = ("order",)


class ProbeAnswer(Struct, frozen=True, kw_only=True):
    """What the judge said of a unit in a probe; without a verdict, `problem` says why."""

    probe: ProbeName
    passed: bool | None = None
    rating: float | None = None
    problem: str | None = None


class TriedUnit(Struct, frozen=True, kw_only=True):
    """A judged statement on a trial, its verdict in the record, and what the judge said when it was asked again."""

    case: str
    runner: str
    arm: str
    trial: int
    check: str
    item: str
    statement: str
    passed: bool
    rating: float
    answers: tuple[ProbeAnswer, ...] = ()

    @classmethod
    def of(cls, unit: JudgedUnit, answers: Sequence[ProbeAnswer]) -> TriedUnit:
        """Return what was said of *unit*."""
        key = unit.key
        return cls(
            case=key.case,
            runner=key.runner,
            arm=key.arm,
            trial=key.trial,
            check=key.check,
            item=key.item,
            statement=unit.statement,
            passed=unit.passed,
            rating=unit.rating,
            answers=tuple(answers),
        )

    def answer(self, probe: ProbeName) -> ProbeAnswer | None:
        """Return what was said in *probe*, if it gave a verdict."""
        return next((entry for entry in self.answers if entry.probe == probe and entry.passed is not None), None)

    def flips(self, probe: ProbeName) -> bool | None:
        """Return whether the verdict in *probe* is another than in the record; None without one."""
        answer = self.answer(probe)
        return None if answer is None else answer.passed != self.passed


class TriedPair(Struct, frozen=True, kw_only=True):
    """A pair of answers, who won in the record with the candidate first, and who won when that was asked again.

    `again` is the same order once more, and `swapped` the other one; without a choice, `problem` says why.
    """

    case: str
    runner: str
    candidate: str
    baseline: str
    trial: int
    winner: str
    again: str | None = None
    swapped: str | None = None
    problem: str | None = None


class NoiseDifference(Struct, frozen=True, kw_only=True):
    """By how much more often a probe flips than asking again does, on the same `n` units; `p` of an exact sign test."""

    value: float
    low: float
    high: float
    p: float
    n: int


class ProbeFigures(Struct, frozen=True, kw_only=True):
    """What came of a probe: of `n` verdicts, `count` flipped, or of a leak probe passed; the rate with its interval."""

    probe: ProbeName
    n: int
    count: int
    rate: float | None = None
    low: float | None = None
    high: float | None = None
    # The flips by their direction.
    to_pass: int = 0
    to_fail: int = 0
    no_verdict: int = 0
    beyond_noise: NoiseDifference | None = None

    @property
    def is_leak(self) -> bool:
        """Whether a pass is a leak."""
        return self.probe in LEAKS


def figures_of_probes(units: Sequence[TriedUnit]) -> tuple[ProbeFigures, ...]:
    """Return the figures of each probe, in the order of probes."""
    return tuple(_figures(probe, units) for probe in PROBES)


def _figures(probe: ProbeName, units: Sequence[TriedUnit]) -> ProbeFigures:
    # What was recorded, and what was said now.
    verdicts = Counter((unit.passed, answer.passed) for unit in units if (answer := unit.answer(probe)) is not None)
    to_pass, to_fail = verdicts[False, True], verdicts[True, False]
    n, count = verdicts.total(), to_pass + to_fail
    if probe in LEAKS:
        count = to_pass + verdicts[True, True]
    low, high = wilson_interval(count / n, n) if n else (None, None)
    return ProbeFigures(
        probe=probe,
        n=n,
        count=count,
        rate=count / n if n else None,
        low=low,
        high=high,
        to_pass=to_pass,
        to_fail=to_fail,
        no_verdict=sum(entry.probe == probe and entry.passed is None for unit in units for entry in unit.answers),
        beyond_noise=beyond_noise(probe, units) if probe in _BEYOND_NOISE else None,
    )


def figures_of_swap(pairs: Sequence[TriedPair]) -> ProbeFigures:
    """Return how often another answer wins when the two change places, beyond the noise of asking again."""
    choices = [(pair.again != pair.winner, pair.swapped != pair.winner) for pair in pairs if pair.problem is None]
    n, count = len(choices), sum(swapped for _, swapped in choices)
    low, high = wilson_interval(count / n, n) if n else (None, None)
    return ProbeFigures(
        probe="swap",
        n=n,
        count=count,
        rate=count / n if n else None,
        low=low,
        high=high,
        no_verdict=len(pairs) - n,
        beyond_noise=_beyond([(swapped, again) for again, swapped in choices]),
    )


def beyond_noise(probe: ProbeName, units: Sequence[TriedUnit]) -> NoiseDifference | None:
    """Return how much more *probe* flips than asking again, on the units that have both; None if there is none.

    The interval is Newcombe's for paired shares, from those of Wilson, which is honest for few units.
    """
    return _beyond(
        [
            (flip, noise)
            for unit in units
            if (flip := unit.flips(probe)) is not None and (noise := unit.flips("again")) is not None
        ]
    )


def _beyond(flips: Sequence[tuple[bool, bool]]) -> NoiseDifference | None:
    """Return how much more often the first of each two flips than the second."""
    n = len(flips)
    if not n:
        return None
    counts = Counter(flips)
    only_probe, only_noise = counts[True, False], counts[False, True]
    low, high = _paired_interval(counts[True, True], only_probe, only_noise, n)
    return NoiseDifference(
        value=(only_probe - only_noise) / n, low=low, high=high, p=sign_test(only_probe, only_noise), n=n
    )


def _paired_interval(both: int, first: int, second: int, n: int) -> tuple[float, float]:
    share_1, share_2 = (both + first) / n, (both + second) / n
    (low_1, high_1), (low_2, high_2) = wilson_interval(share_1, n), wilson_interval(share_2, n)
    neither = n - both - first - second
    product = (both + first) * (second + neither) * (both + second) * (first + neither)
    like = (both * neither - first * second) / sqrt(product) if product else 0.0
    down_1, up_1, down_2, up_2 = share_1 - low_1, high_1 - share_1, share_2 - low_2, high_2 - share_2
    value = share_1 - share_2
    low = value - sqrt(max(0.0, down_1**2 - 2 * like * down_1 * up_2 + up_2**2))
    high = value + sqrt(max(0.0, up_1**2 - 2 * like * up_1 * down_2 + down_2**2))
    return max(-1.0, low), min(1.0, high)


def sign_test(more: int, less: int) -> float:
    """Return the two-sided exact p of so many differences in each direction, if both were equally likely."""
    n = more + less
    tail = sum(comb(n, number) for number in range(min(more, less) + 1))
    return min(1.0, float(tail) / float(2 ** (n - 1)) if n else 1.0)


def leaks_of(units: Sequence[TriedUnit]) -> Iterator[tuple[ProbeName, TriedUnit]]:
    """Yield each leak: a probe, and the unit whose statement the judge found true of what cannot be."""
    for probe in LEAKS:
        for unit in units:
            answer = unit.answer(probe)
            if answer is not None and answer.passed:
                yield probe, unit


def says_always(units: Sequence[TriedUnit]) -> bool | None:
    """Return the one verdict that a judge gave to everything it was asked; None if it gave both, or none at all."""
    verdicts: set[bool | None] = set()
    for unit in units:
        verdicts |= {unit.passed, *(entry.passed for entry in unit.answers)}
    verdicts.discard(None)
    return verdicts.pop() if len(verdicts) == 1 else None
