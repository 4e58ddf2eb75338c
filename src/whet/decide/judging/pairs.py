"""Which of two arms answers better, as a judge said of pairs in both orders: by an exact test over cases.

Only directions count, never by how much an answer is better.
It is a figure of its own, and enters no rate and no other difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from math import erfc, fsum, sqrt
from typing import Literal

from msgspec import Struct

from whet.decide.difference import Doubt, difference
from whet.decide.quantiles import z_of
from whet.decide.scores import mean
from whet.decide.sequential import ALPHA
from whet.decide.variation import shares_of, thinning
from whet.model.callable import Interval
from whet.model.comparison import PairFigures, PairsVerdict
from whet.reading.text import count, percent

Winner = Literal["candidate", "baseline", "tie"]
# Of more cases than this, the signs are too many to go through.
_MOST_EXACT = 20
_MOST_LEFT_OUT = 0.1
_ROUNDING = 1e-9


class JudgedPair(Struct, frozen=True, kw_only=True):
    """One trial of the candidate beside one of the baseline, and what the judge said with each of them first.

    Without both answers, `problem` says why. With a `reference` it is beside a stored answer, and the baseline no arm.
    """

    case: str
    runner: str
    candidate: str
    baseline: str
    trial: int
    reference: bool = False
    # What the judge was asked, with the stored answer; and what it was shown of both.
    question: str = ""
    statement_id: str = ""
    answer_ids: tuple[str, ...] = ()
    candidate_first: Winner | None = None
    baseline_first: Winner | None = None
    reasons: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    problem: str | None = None

    @property
    def identity(self) -> tuple[str, ...]:
        """What identifies the question about these two answers, whoever is asked."""
        return (self.case, self.statement_id, *self.answer_ids)

    @property
    def depends_on_order(self) -> bool:
        """Whether the judge says another thing when the two answers change places."""
        return self.winner is not None and self.candidate_first != self.baseline_first

    @property
    def winner(self) -> Winner | None:
        """Who won: what both orders say, and a tie if they disagree; None if one of them said nothing."""
        if self.candidate_first is None or self.baseline_first is None:
            return None
        return self.candidate_first if self.candidate_first == self.baseline_first else "tie"


def figures_of_pairs(
    pairs: Sequence[JudgedPair], weights: Mapping[str, float] | None = None, level: float = ALPHA, looks: int = 1
) -> tuple[PairFigures, ...]:
    """Return the figures of each runner and candidate at so many *looks*; each counts by *level* alone."""
    ordered = sorted(pairs, key=_comparison_of)
    return tuple(_figures(list(group), weights, level, looks) for _, group in groupby(ordered, key=_comparison_of))


def _comparison_of(pair: JudgedPair) -> tuple[bool, str, str, str]:
    return pair.reference, pair.runner, pair.baseline, pair.candidate


def _figures(pairs: Sequence[JudgedPair], weights: Mapping[str, float] | None, level: float, looks: int) -> PairFigures:
    by_case: dict[str, list[int]] = {}
    for pair in pairs:
        if pair.winner is not None:
            by_case.setdefault(pair.case, []).append({"candidate": 1, "baseline": -1, "tie": 0}[pair.winner])
    signs = [sign for case_signs in by_case.values() for sign in case_signs]
    scores = [_weight(case, weights) * (mean(case_signs) or 0.0) for case, case_signs in by_case.items()]
    deciding = [score for score in scores if score]
    left_out = len(pairs) - len(signs)
    p = sign_flip_test(deciding)
    verdict, reason = _decide(deciding, p, level, share_left_out=left_out / len(pairs))
    return PairFigures(
        candidate=pairs[0].candidate,
        baseline=pairs[0].baseline,
        runner=pairs[0].runner,
        reference=pairs[0].reference,
        verdict=verdict,
        reason=reason,
        pairs=len(signs),
        wins=signs.count(1),
        losses=signs.count(-1),
        ties=signs.count(0),
        depend_on_order=sum(pair.depends_on_order for pair in pairs),
        left_out=left_out,
        cases=len(by_case),
        deciding=len(deciding),
        level=level,
        looks=looks,
        p=p,
        difference=win_difference(by_case, weights, level),
    )


def _decide(scores: Sequence[float], p: float, level: float, *, share_left_out: float) -> tuple[PairsVerdict, str]:
    if share_left_out > _MOST_LEFT_OUT:
        return "errored", f"{percent(share_left_out)} of the pairs have no winner, and {percent(_MOST_LEFT_OUT)} may"
    if 2.0 ** (1 - len(scores)) > level:
        return "inconclusive", f"{count(len(scores), 'case')} with a winner can show nothing at {100 * level:.3g} %"
    if p > level:
        return "inconclusive", f"p = {p:.2g}, and {level:.2g} decides"
    return ("better" if fsum(scores) > 0 else "worse"), f"p = {p:.2g}"


def sign_flip_test(scores: Sequence[float]) -> float:
    """Return the two-sided p of the sum of *scores* if each was as likely to have the other sign.

    All signs are gone through for up to twenty; for more, the sum is about normal, with the variance of these scores.
    """
    sizes = [abs(score) for score in scores if score]
    total = abs(fsum(scores))
    if not sizes:
        return 1.0
    if len(sizes) > _MOST_EXACT:
        return erfc(total / sqrt(fsum(size * size for size in sizes)) / sqrt(2))
    # Sums that are equal but for rounding are one: a few different scores give few sums.
    ways: dict[int, int] = {0: 1}
    unit = max(sizes) * _ROUNDING
    for size in (round(size / unit) for size in sizes):
        steps: dict[int, int] = {}
        for value, number in ways.items():
            for following in (value + size, value - size):
                steps[following] = steps.get(following, 0) + number
        ways = steps
    # What rounding may have moved a sum by.
    bound = total / unit - len(sizes)
    as_far = sum(number for value, number in ways.items() if abs(value) >= bound)
    return float(as_far) / float(2 ** len(sizes))


def win_difference(
    by_case: Mapping[str, Sequence[int]], weights: Mapping[str, float] | None = None, level: float = ALPHA
) -> Interval | None:
    """Return wins less losses as a share of pairs, with its interval: that of two arms which win and lose.

    A pair that is won is not lost, so the two vary more against each other than two arms do: that is allowed for.
    """
    wins = {case: [float(sign > 0) for sign in signs] for case, signs in by_case.items()}
    losses = {case: [float(sign < 0) for sign in signs] for case, signs in by_case.items()}
    shares = shares_of(sorted(by_case), weights)
    if shares is None:
        return None
    won, lost = (fsum(shares[case] * (mean(arm[case]) or 0.0) for case in shares) for arm in (wins, losses))
    doubt = Doubt(variance=2 * won * lost * thinning(wins, shares))
    found = difference(losses, wins, weights, z=z_of(level), doubt=doubt)
    return None if found is None else Interval(value=found.value, low=found.low, high=found.high)


def _weight(case: str, weights: Mapping[str, float] | None) -> float:
    return 1.0 if weights is None else weights.get(case, 1.0)
