"""When a run may stop, and how many trials it takes to decide."""

from __future__ import annotations

import random

import pytest

from whet.decide.difference import difference
from whet.decide.sequential import (
    analysis_shares,
    boundaries,
    effect_within_reach,
    is_hopeless,
    power_by_end,
    trials_needed,
    z_after_analyses,
    z_at,
)


def test_the_limits_of_ten_rounds_are_those_of_pocock_like_spending():
    assert [round(z, 2) for z in boundaries(analysis_shares(10))] == [
        2.44,
        2.55,
        2.55,
        2.53,
        2.51,
        2.5,
        2.49,
        2.48,
        2.47,
    ]


def test_one_look_has_all_of_the_error():
    assert boundaries((1.0,)) == (pytest.approx(1.96, abs=0.001),)
    assert z_at(1, 1) == pytest.approx(1.96, abs=0.001)


def test_all_looks_together_err_in_at_most_five_percent():
    drawn, limits, wrong = random.Random(11), boundaries(analysis_shares(10)), 0

    for _ in range(4000):
        steps = [drawn.gauss(0, 1) for _ in range(10)]
        sums = [sum(steps[: number + 1]) / (number + 1) ** 0.5 for number in range(10)]
        wrong += any(abs(z) > limit for z, limit in zip(sums[1:], limits, strict=True))

    assert 0.04 < wrong / 4000 < 0.058


def test_each_further_look_at_a_run_that_grew_asks_for_more():
    assert z_after_analyses([5]) == pytest.approx(1.96, abs=0.001)
    assert z_after_analyses([5, 10]) < z_after_analyses([5, 10, 20])
    assert z_after_analyses([10, 10]) == z_after_analyses([10])


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

    chance = power_by_end(nothing.value, nothing.error, rounds_done=8, rounds=10, effect=0.1)

    assert is_hopeless(chance, rounds_done=8, rounds=10)
    assert not is_hopeless(chance, rounds_done=10, rounds=10)


def test_no_run_is_hopeless_before_its_third_round():
    assert not is_hopeless(0.01, rounds_done=2, rounds=4)
    assert is_hopeless(0.01, rounds_done=3, rounds=4)


def test_a_run_that_is_nearly_decided_is_not_hopeless():
    nearly = _seen(0.375, 0.5, 8)

    chance = power_by_end(nearly.value, nearly.error, rounds_done=8, rounds=10, effect=0.1)

    assert chance > 0.3
    assert not is_hopeless(chance, rounds_done=8, rounds=10)


def test_what_was_seen_counts_if_it_is_more_than_the_effect_that_was_asked_for():
    much = _seen(0.25, 0.5, 4, cases=5)

    chances = [
        power_by_end(much.value, much.error, rounds_done=4, rounds=10, effect=effect) for effect in (0.01, 0.2, 0.4)
    ]

    assert chances[0] == chances[1] < chances[2]


def test_a_plan_takes_four_times_the_trials_for_half_the_effect():
    ten, five = trials_needed(20, 0.19, 0.10), trials_needed(20, 0.19, 0.05)

    assert (ten.trials, five.trials) == (9, 33)
    assert ten.least < ten.trials < ten.most


def test_a_large_pilot_narrows_the_range_of_a_plan():
    small, large = trials_needed(20, 0.2, 0.05, pilot_trials=60), trials_needed(20, 0.2, 0.05, pilot_trials=6000)

    assert large.most - large.least < small.most - small.least


@pytest.mark.parametrize(("seen", "range_"), [(None, (17, 50)), (2, (8, 146)), (200, (25, 45))])
def test_the_range_of_a_plan_is_as_wide_as_what_is_known_of_the_spread_is_doubtful(seen, range_):
    needed = trials_needed(20, 0.19, 0.05, pilot_trials=seen)

    assert (needed.least, needed.most) == range_


def test_what_a_plan_takes_can_decide_its_effect():
    needed = trials_needed(20, 0.2, 0.1)

    assert effect_within_reach(20, 0.2, needed.trials) <= 0.1 < effect_within_reach(20, 0.2, needed.trials // 2)


def test_a_pilot_whose_trials_never_vary_does_not_make_a_plan_too_short():
    """A quarter of eight cases pass always and the rest never; in the candidate two more do."""
    before, after = [1.0] * 2 + [0.0] * 6, [1.0] * 4 + [0.0] * 4
    pilot = difference(_always(before, 5), _always(before, 5))
    assert pilot is not None

    needed = trials_needed(8, pilot.spread, 0.25)
    found = difference(_always(before, needed.trials), _always(after, needed.trials))

    assert found is not None
    assert found.low > 0


def test_a_case_that_never_passed_takes_as_many_trials_as_an_arm_that_passes_at_times():
    chance = random.Random(3)
    needed = trials_needed(1, 0.0, 0.2).trials

    candidates = [[float(chance.random() < 0.2) for _ in range(needed)] for _ in range(200)]
    found = [difference({"a": [0.0] * needed}, {"a": each}) for each in candidates]

    assert sum(each is not None and each.low > 0 for each in found) >= 0.8 * 200


@pytest.mark.parametrize("cases", [1, 2])
def test_the_largest_effect_takes_as_many_trials_as_decide_it(cases):
    trials = trials_needed(cases, 0.0, 1.0).trials

    found = difference(_always([0.0] * cases, trials), _always([1.0] * cases, trials))

    assert found is not None
    assert found.low > 0


def test_trials_that_never_vary_do_not_bring_every_effect_within_reach():
    assert effect_within_reach(1, 0.0, 2) > 0.5


def _always(values: list[float], trials: int) -> dict[str, list[float]]:
    return {str(number): [value] * trials for number, value in enumerate(values)}
