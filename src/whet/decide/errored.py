"""Compare two arms for each way in which their errored trials may have gone.

An errored trial says nothing by itself, and may hide a failure: a decision must hold in every way. Some errors are
beyond suspicion, since neither the agent nor the checks have a part in them: a provider that was down, as the gateway
or an agent that whet trusts says, or a workspace that could not be made. Those may be left out, or go alike in both
arms. The rest may also be failures in one arm, and go like the other trials in the other arm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product

from msgspec import Struct

from whet.decide.difference import NO_DOUBT, Difference, Doubt, difference
from whet.decide.variation import Values, Weights
from whet.errors import ProviderFailed
from whet.model.callable import Interval
from whet.model.comparison import Sampled
from whet.model.grade import Failure

_BEFORE_THE_AGENT = frozenset({"workspace", "start"})


def is_blameless(failure: Failure | None) -> bool:
    """Return whether neither the agent nor the checks of a trial have a part in its error."""
    if failure is None:
        return False
    before = failure.phase in _BEFORE_THE_AGENT and failure.cause == "infrastructure"
    return before or failure.code == ProviderFailed.code


class ErroredOutcomes(Struct, frozen=True, kw_only=True):
    """The difference of two arms for each way in which errored trials may have gone.

    `without_errors` leaves them out; it is None if no case has a trial in both arms that did not error.
    """

    without_errors: Difference | None
    if_failed: Difference
    if_passed: Difference
    # Guesses in which arms differ: failures in one of them only, and the worst or the best of cases that only errored.
    mixtures: tuple[Difference, ...] = ()

    @property
    def possibilities(self) -> tuple[Difference, ...]:
        """All ways to count errored trials: equally many errors in both arms must not hide a difference in the rest."""
        return (
            *((self.without_errors,) if self.without_errors else ()),
            self.if_failed,
            self.if_passed,
            *self.mixtures,
        )

    @property
    def low(self) -> float:
        """The lower end of all possibilities; if nothing counts, nothing is known, whatever one of the arms did."""
        return min(way.low for way in self.possibilities) if self.without_errors else -1.0

    @property
    def high(self) -> float:
        """The upper end of all possibilities."""
        return max(way.high for way in self.possibilities) if self.without_errors else 1.0

    @property
    def value(self) -> float:
        """The difference as it looks; if nothing counts, the middle of what it may be."""
        return self.without_errors.value if self.without_errors else 0.0

    def rate(self, of: Callable[[Difference], Interval]) -> Interval:
        """Return the rate of one arm; if nothing counts, all that it may be."""
        if self.without_errors:
            return of(self.without_errors)
        low, high = min(of(way).low for way in self.possibilities), max(of(way).high for way in self.possibilities)
        return Interval(value=(low + high) / 2, low=low, high=high)


def differences(
    baseline: Sequence[Sampled],
    candidate: Sequence[Sampled],
    weights: Weights | None,
    *,
    z: float,
    doubt: Doubt = NO_DOUBT,
) -> ErroredOutcomes | None:
    """Return the difference for each way in which errored trials may have gone; None if no case is in both arms."""

    def compare(first: Values, second: Values) -> Difference | None:
        return difference(first, second, weights, z=z, doubt=doubt)

    without_errors = compare(values_of(baseline), values_of(candidate))
    if without_errors is not None and all(trial.value is not None for arm in (baseline, candidate) for trial in arm):
        return ErroredOutcomes(without_errors=without_errors, if_failed=without_errors, if_passed=without_errors)
    if_failed, if_passed = (
        compare(values_of(baseline, outcome), values_of(candidate, outcome)) for outcome in (0.0, 1.0)
    )
    if if_failed is None or if_passed is None:
        return None
    # Cases that only errored say nothing: those of one arm may have failed, and those of the other have passed.
    mixtures = [
        compare(_with_silent(baseline, silent, first), _with_silent(candidate, 1 - silent, second))
        for silent, (first, second) in product((0.0, 1.0), ((None, None), (None, 0.0), (0.0, None)))
    ]
    distinct = tuple(dict.fromkeys(mixture for mixture in mixtures if mixture is not None))
    return ErroredOutcomes(without_errors=without_errors, if_failed=if_failed, if_passed=if_passed, mixtures=distinct)


def values_of(trials: Iterable[Sampled], errored: float | None = None, suspect: float | None = None) -> Values:
    """Return the values of each case; errored trials count as *errored*, those that are suspect as *suspect*.

    Without such a value, they do not count at all.
    """
    values: dict[str, list[float]] = {}
    for trial in trials:
        value = trial.value
        if value is None:
            value = errored if suspect is None or trial.blameless else suspect
        if value is not None:
            values.setdefault(trial.case, []).append(value)
    return values


def _with_silent(trials: Sequence[Sampled], silent: float, suspect: float | None) -> Values:
    """Return the values of each case; of one of which every trial errored, these count as *silent*."""
    return {**values_of(trials, silent), **values_of(trials, None, suspect)}
