"""Say how many trials it takes to decide, and when a run that looks after every round may stop.

Looking after each round and stopping at the first interval without zero would call noise a result in every fifth run.
So each look gets a part of the error that all of them may make together (Pocock-like spending by Lan and DeMets), and
a run whose end cannot be decided any more stops too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import ceil, erfc, exp, log, pi, sqrt

from msgspec import Struct

from whet.decide.quantiles import z_of
from whet.model.comparison import USUAL_ERROR

ALPHA = USUAL_ERROR
# The earliest round to analyse: one trial per case says nothing of how trials of a case vary.
FIRST_ANALYSIS = 2
# From the third round on, a run stops if neither arm has this chance to be found better by the effect you look for.
_FIRST_HOPELESS = 3
_LEAST_POWER = 0.10
_GRID = 200
_STEPS = 40
# Below this, a look spends nothing: its limit is beyond what can be seen.
_LEAST_ERROR = 1e-9
# A pilot of few trials knows the variance only roughly, and Wilson's limits need a little more than normal ones.
_SURCHARGE = 1.1
# With fewer in an arm, not even trials that all fail and all pass are different.
_FEWEST_TRIALS = 4
# The variance within cases, summed over both arms, if there is no pilot: cases pass 70 % of the time, and half of the
# variance lies between them.
USUAL_SPREAD = 0.2
# How often the range that a plan from a pilot gives holds what is really needed.
RANGE_LEVEL = 0.8
# Without a pilot: what cases that are easier or harder than usual take.
_EASIER, _HARDER = 0.5, 1.5


def alpha_of_each(candidates: int, runners: int = 1, *, error: float = ALPHA) -> float:
    """Return the *error* that each comparison may make if all that answer one question share one."""
    return error / max(1, candidates * runners)


@lru_cache
def boundaries(looks: tuple[float, ...], alpha: float = ALPHA) -> tuple[float, ...]:
    """Return the z of each look, which are at rising shares of all trials, for a two-sided error of *alpha* in all.

    By recursive integration: `density` is that of the sum so far among the runs that no look has stopped.
    """
    side = alpha / 2
    limits: list[float] = []
    density: list[float] = []
    places: list[float] = []
    width = last = error_so_far = 0.0
    for share in looks:
        due = max(side * log(1 + (exp(1) - 1) * share) - error_so_far, _LEAST_ERROR)
        step = sqrt(share - last)
        limit = _limit(due, share, step, density, places, width)
        low = -6 * sqrt(share)
        next_width = (limit - low) / _GRID
        next_places = [low + (number + 0.5) * next_width for number in range(_GRID)]
        density = _advance_density(density, places, width, next_places, step)
        places, width, last = next_places, next_width, share
        error_so_far += due
        limits.append(limit / sqrt(share))
    return tuple(limits)


def _limit(
    due: float, share: float, step: float, density: Sequence[float], places: Sequence[float], width: float
) -> float:
    """Return the sum that the runs still going exceed with probability *due*."""
    low, high = 0.0, 8 * sqrt(share)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if density:
            beyond = sum(
                weight * width * _tail((middle - at) / step) for at, weight in zip(places, density, strict=True)
            )
        else:
            beyond = _tail(middle / sqrt(share))
        low, high = (middle, high) if beyond > due else (low, middle)
    return high


def _advance_density(
    density: Sequence[float], places: Sequence[float], width: float, to: Sequence[float], step: float
) -> list[float]:
    """Return the density after one more step, at the places *to*."""
    if not density:
        return [_bell(at / step) / step for at in to]
    return [
        sum(weight * width * _bell((at - place) / step) / step for place, weight in zip(places, density, strict=True))
        for at in to
    ]


def _tail(z: float) -> float:
    return erfc(z / sqrt(2)) / 2


def _bell(z: float) -> float:
    return exp(-z * z / 2) / sqrt(2 * pi)


def analysis_shares(rounds: int) -> tuple[float, ...]:
    """Return the shares of all trials at which a run of at most *rounds* is analysed."""
    return tuple(number / rounds for number in range(FIRST_ANALYSIS, rounds + 1))


def z_at(rounds_done: int, rounds: int, alpha: float = ALPHA) -> float:
    """Return the z of the analysis after round *rounds_done* of a run of at most *rounds*."""
    if rounds_done < FIRST_ANALYSIS or rounds < FIRST_ANALYSIS:
        return z_of(alpha)
    return boundaries(analysis_shares(max(rounds_done, rounds)), alpha)[rounds_done - FIRST_ANALYSIS]


def z_after_analyses(sizes: Sequence[int], alpha: float = ALPHA) -> float:
    """Return the z of the last of several looks at one run that grew from look to look, by the rounds each one saw.

    The first look had all of the error to itself, since no other was planned. Those after it share a quarter of that:
    the second has half of it, the third a sixth, and so on, so that it lasts however many there are.
    """
    looks = len({size for size in sizes if size > 0})
    return z_of(alpha if looks <= 1 else alpha / 4 / (looks * (looks - 1)))


def power_by_end(
    value: float, error: float, *, rounds_done: int, rounds: int, effect: float, alpha: float = ALPHA
) -> float:
    """Return the chance that the last analysis decides, if one arm is better by *effect* from here on.

    Both arms have such a chance, and the larger one counts. This is conditional power, given the difference *value*
    after round *rounds_done*, with its standard error. If the difference is larger than *effect*, it stays so.
    """
    if rounds_done >= rounds or error <= 0:
        return 0.0
    share = rounds_done / rounds
    z_now = value / error
    last = z_at(rounds, rounds, alpha)
    # What the z of the whole run would be on average.
    drifts = {way: max(effect, way * value) / (error * sqrt(share)) for way in (1, -1)}
    return max(
        _tail((last - way * z_now * sqrt(share) - drift * (1 - share)) / sqrt(1 - share))
        for way, drift in drifts.items()
    )


def is_hopeless(power: float, *, rounds_done: int, rounds: int) -> bool:
    """Return whether a run may stop because its end will hardly decide: that has a chance of *power* only."""
    return _FIRST_HOPELESS <= rounds_done < rounds and power < _LEAST_POWER


class TrialEstimate(Struct, frozen=True, kw_only=True):
    """Trials per case and arm: what a plan takes, and from where to where the truth may be."""

    trials: int
    least: int
    most: int


def trials_needed(
    cases: int,
    spread: float,
    effect: float,
    *,
    power: float = 0.8,
    alpha: float = ALPHA,
    pilot_trials: int | None = None,
) -> TrialEstimate:
    """Return how many trials per case and arm decide an *effect* with that *power*.

    *spread* is the variance within cases, summed over both arms; a pilot knows it from
    *pilot_trials*, and without a pilot the range says what cases that are easier or harder would take.
    """
    z = z_of(alpha) + z_of(2 * (1 - power))
    # Trials of a pilot may always pass or always fail; those of an arm that is better or worse then do not.
    least = effect * (1 - effect)
    exact = z * z * max(spread, least) / (cases * effect * effect) * _SURCHARGE
    doubt = exp(_doubt_of_pilot(cases, pilot_trials)) if pilot_trials is not None else None
    fewest = max(FIRST_ANALYSIS, ceil(_FEWEST_TRIALS / cases))
    return TrialEstimate(
        trials=max(fewest, ceil(exact)),
        least=max(fewest, ceil(exact / doubt if doubt else exact * _EASIER)),
        most=max(fewest, ceil(exact * (doubt or _HARDER))),
    )


def _doubt_of_pilot(cases: int, pilot_trials: int) -> float:
    """Return how far from what a pilot says the truth may be, as a logarithm, in 80 % of pilots.

    The parts are found by simulation: few trials know the variance roughly, few cases may not be like those that differ
    between the arms, and some doubt stays.
    """
    return sqrt(4.3 / max(2, pilot_trials) + 0.62 / cases + 0.036)


def effect_within_reach(cases: int, spread: float, trials: int, *, power: float = 0.8, alpha: float = ALPHA) -> float:
    """Return the smallest effect that so many trials per case and arm decide with that *power*."""
    z = z_of(alpha) + z_of(2 * (1 - power))
    per_trial = z * z * _SURCHARGE / (cases * trials)
    return max(sqrt(per_trial * spread), per_trial / (1 + per_trial))


def effect_by_end(cases: int, rounds: int, alpha: float) -> float:
    """Return the smallest effect that so many rounds, each of them analysed, find in 80 % of runs of usual cases."""
    last = z_at(rounds, rounds, alpha)
    return effect_within_reach(cases, USUAL_SPREAD, rounds, alpha=erfc(last / sqrt(2)))
