"""Which pairs of answers a judge is asked about, by which question, and what they may say at this look."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import erfc, sqrt

from msgspec import Struct
from msgspec.structs import replace

from whet.decide.comparison import analyses_of
from whet.decide.sequential import alpha_of_each
from whet.grade.judge.pairs import USUAL_QUESTION
from whet.model.run import TrialResult
from whet.model.suite import Case, Pairwise
from whet.record.judging.tries import REFERENCE
from whet.record.read.run import RecordedRun


class PairTarget(Struct, frozen=True, kw_only=True):
    """A trial of the candidate and what it is compared with: one of the baseline beside it, or a stored answer.

    `order` is its place by chance.
    """

    candidate: TrialResult
    baseline: TrialResult | None
    question: str
    reference: str | None
    order: bytes

    @property
    def case(self) -> str:
        """The case of both."""
        return self.candidate.key.case

    @property
    def runner(self) -> str:
        """The runner that the comparison is of."""
        return (self.baseline or self.candidate).key.runner

    @property
    def baseline_name(self) -> str:
        """What the candidate is compared with."""
        return REFERENCE if self.baseline is None else self.baseline.key.arm


class PairTargets(Struct, frozen=True, kw_only=True):
    """The pairs in the order in which they are asked, and the error that each comparison may make at this look."""

    targets: tuple[PairTarget, ...]
    looks: int
    level: float


def questions_of(cases: Sequence[Case], question: str | None = None) -> dict[str, Pairwise]:
    """Return what is asked of each case: of those that say so alone, if any does and no other *question* is given."""
    own_questions = {case.id: case.pairwise for case in cases if case.pairwise is not None}
    if question is not None:
        return {case.id: replace(own_questions.get(case.id, Pairwise()), question=question) for case in cases}
    return own_questions or {case.id: Pairwise() for case in cases}


def find_pairs(
    record: RecordedRun, questions: Mapping[str, Pairwise], seed: str, most: int | None = None
) -> PairTargets | None:
    """Return at most so many pairs of *record*, in the order of *seed*; None if it has none that is asked about."""
    arms = record.samples().names
    every = list(_targets(record, arms, questions, seed))
    if not every:
        return None
    comparisons = len({(target.candidate.key.arm, target.baseline_name, target.runner) for target in every})
    looks, z_of_level = analyses_of(record.samples(), comparisons)
    level = erfc(z_of_level(alpha_of_each(comparisons)) / sqrt(2))
    return PairTargets(targets=tuple(_in_turns(every)[:most]), looks=looks, level=level)


def _targets(
    record: RecordedRun, arms: Sequence[str], questions: Mapping[str, Pairwise], seed: str
) -> Iterator[PairTarget]:
    """Yield each trial with the same trial of the baseline: both began in the same round; or with a stored answer."""
    results = {
        (key.case, key.runner, key.arm, key.number): result
        for result in record.counting_results()
        for key in (result.key,)
    }
    runners = {arm: {runner for _, runner, own_arm, _ in results if own_arm == arm} for arm in arms}
    for (case, runner, arm, number), result in results.items():
        pairwise = questions.get(case)
        if pairwise is None:
            continue
        beside = None
        if pairwise.reference is None:
            beside = results.get((case, _runner_beside(runner, runners[arm], runners[arms[0]]), arms[0], number))
            if arm == arms[0] or beside is None:
                continue
        order = hashlib.sha256("\0".join((seed, case, runner, str(number), arm)).encode()).digest()
        yield PairTarget(
            candidate=result,
            baseline=beside,
            question=pairwise.question or USUAL_QUESTION,
            reference=pairwise.reference,
            order=order,
        )


def _runner_beside(runner: str, own: Collection[str], of_baseline: Collection[str]) -> str:
    """Return the runner of the trial to compare with: arms that differ by their runner have one each."""
    differ = len(own) == len(of_baseline) == 1
    return next(iter(of_baseline)) if differ else runner


def _in_turns(targets: Sequence[PairTarget]) -> list[PairTarget]:
    """Return the pairs by chance, and the cases in turn: what is cut off is the same of each case."""
    turns: dict[str, int] = {}
    order: list[tuple[int, bytes, PairTarget]] = []
    for target in sorted(targets, key=lambda entry: entry.order):
        turn = turns[target.case] = turns.get(target.case, 0) + 1
        order.append((turn, target.order, target))
    return [target for *_, target in sorted(order, key=lambda entry: entry[:2])]
