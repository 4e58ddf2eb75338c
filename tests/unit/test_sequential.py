"""When a run may stop, and how many trials it takes to decide."""

from __future__ import annotations

import random

import pytest

from whet.grade.difference import difference
from whet.grade.sequential import (
    boundaries,
    effect_within_reach,
    is_hopeless,
    looks_after,
    power_by_end,
    trials_needed,
    z_after_looks,
    z_at,
)


def test_the_limits_of_ten_rounds_are_those_of_pocock_like_spending():
    assert [round(z, 2) for z in boundaries(looks_after(10))] == [2.44, 2.55, 2.55, 2.53, 2.51, 2.5, 2.49, 2.48, 2.47]


def test_one_look_has_all_of_the_error():
    assert boundaries((1.0,)) == (pytest.approx(1.96, abs=0.001),)
    assert z_at(1, 1) == pytest.approx(1.96, abs=0.001)


def test_all_looks_together_err_in_at_most_five_percent():
    drawn, limits, wrong = random.Random(11), boundaries(looks_after(10)), 0

    for _ in range(4000):
        steps = [drawn.gauss(0, 1) for _ in range(10)]
        sums = [sum(steps[: number + 1]) / (number + 1) ** 0.5 for number in range(10)]
        wrong += any(abs(z) > limit for z, limit in zip(sums[1:], limits, strict=True))

    assert 0.04 < wrong / 4000 < 0.058


def test_each_further_look_at_a_run_that_grew_asks_for_more():
    assert z_after_looks([5]) == pytest.approx(1.96, abs=0.001)
    assert z_after_looks([5, 10]) < z_after_looks([5, 10, 20])
    assert z_after_looks([10, 10]) == z_after_looks([10])


def test_more_candidates_ask_for_more_at_each_look():
    assert z_at(5, 10, 0.05) < z_at(5, 10, 0.05 / 4)


def _seen(baseline: float, candidate: float, trials: int, cases: int = 20):
    def arm(rate: float) -> dict[str, list[float]]:
        passed = round(rate * trials)
        return {str(number): [1.0] * passed + [0.0] * (trials - passed) for number in range(cases)}

    found = difference(arm(baseline), arm(candidate))
    assert found is not None
    return found


def test_a_run_without_any_sign_of_an_effect_is_hopeless_near_its_end():
    nothing = _seen(0.5, 0.5, 8)

    assert is_hopeless(nothing, done=8, rounds=10, effect=0.1)
    assert not is_hopeless(nothing, done=2, rounds=10, effect=0.1)
    assert not is_hopeless(nothing, done=10, rounds=10, effect=0.1)


def test_no_run_is_hopeless_before_its_third_round():
    nothing = _seen(0.5, 0.5, 2)

    assert not is_hopeless(nothing, done=2, rounds=4, effect=0.01)
    assert is_hopeless(nothing, done=3, rounds=4, effect=0.01)


def test_a_run_that_is_nearly_decided_is_not_hopeless():
    nearly = _seen(0.375, 0.5, 8)

    assert power_by_end(nearly, done=8, rounds=10, effect=0.1) > 0.3
    assert not is_hopeless(nearly, done=8, rounds=10, effect=0.1)


def test_a_plan_takes_four_times_the_trials_for_half_the_effect():
    ten, five = trials_needed(20, 0.19, 0.10), trials_needed(20, 0.19, 0.05)

    assert (ten.trials, five.trials) == (9, 33)
    assert ten.least < ten.trials < ten.most


def test_a_large_pilot_narrows_the_range_of_a_plan():
    small, large = trials_needed(20, 0.2, 0.05, seen=60), trials_needed(20, 0.2, 0.05, seen=6000)

    assert large.most - large.least < small.most - small.least


@pytest.mark.parametrize(("seen", "range_"), [(None, (17, 50)), (2, (4, 75)), (200, (29, 38))])
def test_the_range_of_a_plan_is_as_wide_as_what_is_known_of_the_spread_is_doubtful(seen, range_):
    needed = trials_needed(20, 0.19, 0.05, seen=seen)

    assert (needed.least, needed.most) == range_


def test_what_a_plan_takes_can_decide_its_effect():
    needed = trials_needed(20, 0.2, 0.1)

    assert effect_within_reach(20, 0.2, needed.trials) <= 0.1 < effect_within_reach(20, 0.2, needed.trials // 2)
