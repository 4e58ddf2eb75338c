"""Compare what two arms take, and say whether a candidate reaches a goal: cheaper, faster or shorter, and not worse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from whet.decide.amounts import ratio_of_means
from whet.decide.variation import Values, shared_cases
from whet.model.callable import Interval
from whet.model.comparison import AMOUNTS, Aim, Amount, AmountChange, Decision, Goal, Progress, Sampled

# What shall be less, the first of them that is known in both arms: not every session tells its tokens.
_LESS: dict[Goal, tuple[Amount, ...]] = {
    "cheaper": ("cost_usd",),
    "faster": ("seconds",),
    "shorter": ("tokens", "steps"),
}


def amounts_of(baseline: Sequence[Sampled], candidate: Sequence[Sampled], z: float) -> Iterator[AmountChange]:
    """Yield what both arms took, of the trials that did not error; looks and candidates widen these intervals too."""
    for amount in AMOUNTS:
        first, second = amounts_by_case(baseline, amount), amounts_by_case(candidate, amount)
        cases = shared_cases(first, second)
        if any(sum(arm[case]) for arm in (first, second) for case in cases):
            yield AmountChange(
                amount=amount,
                baseline=_per_case(first, cases),
                candidate=_per_case(second, cases),
                ratio=ratio_of_means(first, second, z=z),
            )


def _per_case(amounts: Values, cases: Sequence[str]) -> float:
    return sum(sum(amounts[case]) / len(amounts[case]) for case in cases) / len(cases)


def amounts_by_case(trials: Iterable[Sampled], amount: Amount) -> Values:
    """Return what the trials of each case took that did not error, as far as it is known."""
    values: dict[str, list[float]] = {}
    for trial in trials:
        value: float | None = getattr(trial, amount)
        if value is not None and trial.value is not None:
            values.setdefault(trial.case, []).append(value)
    return values


def aim_at(goal: Goal, verdict: Decision, changes: Iterable[AmountChange]) -> Aim:
    """Return whether a candidate about which *verdict* was decided reaches *goal*.

    Both must hold: it is not worse, and the whole interval of the ratio is below 1. Each of them is wrong in at most
    2.5 %, so that both together are.
    """
    ratios = {change.amount: change.ratio for change in changes if change.ratio is not None}
    amount = next((candidate_amount for candidate_amount in _LESS[goal] if candidate_amount in ratios), None)
    ratio = None if amount is None else ratios[amount]
    return Aim(goal=goal, progress=_progress(verdict, ratio), amount=amount, ratio=ratio)


def _progress(verdict: Decision, ratio: Interval | None) -> Progress:
    if verdict == "worse" or (ratio is not None and ratio.low > 1):
        return "missed"
    is_less = ratio is not None and ratio.high < 1
    return "reached" if is_less and verdict in {"better", "not-worse"} else "open"
