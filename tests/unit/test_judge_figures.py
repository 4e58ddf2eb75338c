"""What labels say of a judge: rates with limits, the difference that they count, and judges of known error."""

from __future__ import annotations

import sys
from math import sqrt
from pathlib import Path
from random import Random

import pytest

from whet.decide.judging.agreement import (
    Stratum,
    agreement_with_people,
    ceiling_of,
    more_labels_for,
    rate_difference,
    rates_against_people,
    rates_by_threshold,
)
from whet.decide.judging.counted import better_than_coin, corrected_rate, counted_difference, rogan_gladen
from whet.decide.scores import Z95, wilson_interval
from whet.model.callable import Interval

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from judges import World, measure, simulate

# Of 60 that the judge passes, 20 have a label and 18 of them are true; of 40 that it fails, 20 have one and 4 are true.
PASSED = Stratum(arm="new", passed=True, units=60, labels=20, true=18)
FAILED = Stratum(arm="new", passed=False, units=40, labels=20, true=4)


def test_strata_count_by_what_was_judged_and_not_by_how_many_have_a_label() -> None:
    found = agreement_with_people([PASSED, FAILED])

    assert found is not None
    # True and passed 54, true and failed 8, false and failed 32, false and passed 6.
    assert found.tpr == pytest.approx(54 / 62)
    assert found.tnr == pytest.approx(32 / 38)
    assert found.precision is not None
    assert found.precision.value == pytest.approx(0.9)
    assert found.agreement.value == pytest.approx(0.86)
    assert (found.base_people, found.base_judge) == (pytest.approx(0.62), pytest.approx(0.6))
    assert found.kappa is not None
    expected = 0.62 * 0.6 + 0.38 * 0.4
    assert found.kappa.value == pytest.approx((0.86 - expected) / (1 - expected))


def test_the_limits_of_a_rate_are_those_of_as_many_labels_as_it_is_worth_and_no_more_than_there_are() -> None:
    rare = Stratum(arm="new", passed=False, units=400, labels=20, true=4)
    found, even = rates_against_people([PASSED, rare]), rates_against_people([PASSED, FAILED])

    def variance(judged: float, labelled: int, true: int) -> float:
        share = (true + 1) / (labelled + 2)
        return judged**2 * share * (1 - share) / labelled * (1 - labelled / judged)

    passed, failed = variance(60, 20, 18), variance(400, 20, 4)
    tpr = 54 / 134
    worth = tpr * (1 - tpr) / ((80**2 * passed + 54**2 * failed) / 134**4)
    assert worth < 22
    assert found.tpr_limits == pytest.approx(wilson_interval(tpr, worth))
    assert even.tpr_limits == pytest.approx(wilson_interval(54 / 62, 22))


def test_fewer_than_ten_labels_of_a_kind_have_no_limits() -> None:
    few = Stratum(arm="new", passed=False, units=40, labels=8, true=0)
    found = agreement_with_people([Stratum(arm="new", passed=True, units=60, labels=20, true=20), few])

    assert found is not None
    assert (found.true, found.false) == (20, 8)
    assert (found.tpr_limits is None, found.tnr_limits, found.kappa) == (False, None, None)
    assert found.quality == "not known"
    assert agreement_with_people([]) is None


@pytest.mark.parametrize(("right", "quality"), [(98, "good"), (85, "not known"), (50, "poor")])
def test_a_judge_is_good_or_poor_only_if_its_limits_say_so(right: int, quality: str) -> None:
    strata = [
        Stratum(arm="a", passed=True, units=200, labels=100, true=right),
        Stratum(arm="a", passed=False, units=200, labels=100, true=100 - right),
    ]

    found = agreement_with_people(strata)

    assert found is not None
    assert found.quality == quality


def test_the_difference_of_two_arms_is_known_where_both_rates_are() -> None:
    found = rate_difference(0.9, (0.8, 0.95), 0.7, (0.6, 0.8))

    assert found is not None
    assert found.value == pytest.approx(-0.2)
    assert found.low == pytest.approx(-0.2 - sqrt(0.1**2 + 0.05**2))
    assert found.high == pytest.approx(-0.2 + sqrt(0.1**2 + 0.1**2))
    assert rate_difference(0.9, None, 0.7, (0.6, 0.8)) is None


def test_about_sixty_labels_make_a_judge_known_to_be_good_that_is_right_in_nine_of_ten() -> None:
    needed = more_labels_for(0.9, 0)

    assert needed is not None
    assert 55 <= needed <= 70
    assert more_labels_for(0.95, 0) in range(22, 36)
    assert more_labels_for(0.9, 100) == 0
    assert more_labels_for(0.8, 0) is None


def test_two_people_are_the_ceiling() -> None:
    assert ceiling_of([]) is None
    found = ceiling_of([(True, True)] * 6 + [(False, False)] * 5 + [(True, False)])
    assert found is not None
    assert (found.pairs, found.alike) == (12, 11)
    assert found.kappa == pytest.approx((11 / 12 - 0.5) / 0.5, abs=0.01)


def test_a_threshold_is_judged_by_the_units_that_labels_stand_for() -> None:
    rated = [(9.0, True, 3.0), (6.0, True, 1.0), (6.0, False, 1.0), (2.0, False, 1.0)]

    (at_5, at_8) = rates_by_threshold(rated, (5, 8))

    assert (at_5.tpr, at_5.tnr, at_5.j) == (1.0, 0.5, 0.5)
    assert (at_8.tpr, at_8.tnr, at_8.j) == (0.75, 1.0, 0.75)


def test_a_difference_that_people_have_counted_in_whole_is_theirs() -> None:
    run = simulate(World(cases=10, tpr=0.6, tnr=0.6), Random(3))
    everything = run.labels(1000, "")

    found = counted_difference(run.baseline, run.candidate, everything)

    assert found is not None
    true = [sum(run.truth[unit.place] for unit in units) / len(units) for units in (run.baseline, run.candidate)]
    assert (found.baseline, found.candidate) == (pytest.approx(true[0]), pytest.approx(true[1]))
    assert found.value == pytest.approx(true[1] - true[0])
    assert found.value != pytest.approx(found.raw)


def test_too_few_labels_of_a_verdict_count_nothing_and_say_how_many_are_missing() -> None:
    run = simulate(World(cases=10), Random(3))

    some, none = (counted_difference(run.baseline, run.candidate, run.labels(n, "x")) for n in (12, 0))

    assert some is not None
    assert none is not None
    assert (some.value, some.labels, some.missing) == (None, 12, 8)
    assert (none.value, none.labels, none.missing) == (None, 0, 20)


def test_more_labels_that_would_decide_are_more_than_there_are_and_no_more_than_all() -> None:
    run = simulate(World(cases=20), Random(0))

    found = counted_difference(run.baseline, run.candidate, run.labels(30, "x"))

    assert found is not None
    assert found.low is not None
    assert found.low <= 0
    assert found.more is not None
    assert 0 < found.more <= 170


def test_rogan_gladen_divides_by_how_much_better_than_a_coin_the_judge_is() -> None:
    raw, j = Interval(value=0.16, low=0.04, high=0.28), Interval(value=0.8, low=0.7, high=0.9)

    found = rogan_gladen(raw, j)

    assert found is not None
    assert found.value == pytest.approx(0.2)
    assert 0 < found.low < 0.05
    assert 0.35 < found.high < 0.42
    assert rogan_gladen(raw, Interval(value=0.3, low=-0.1, high=0.6)) is None
    rates = rates_against_people([PASSED, FAILED])
    coin = better_than_coin(rates)
    assert coin is not None
    assert coin.value == pytest.approx(54 / 62 + 32 / 38 - 1)
    assert corrected_rate(0.6, rates) == pytest.approx((0.6 + 32 / 38 - 1) / coin.value)


@pytest.mark.parametrize(
    "world",
    [
        World(cases=10, labels=30),
        World(cases=20, labels=60, tpr=0.7, tnr=0.7),
        World(cases=20, labels=100, tpr=0.9, tnr=0.8),
        World(cases=10, labels=100, tpr=0.98, tnr=0.98),
        World(cases=20, labels=60, tpr=0.85, tnr=0.85, clusters=2.0),
        World(cases=10, labels=60, tpr=0.85, tnr=0.85, statements=3, alike=0.7),
    ],
    ids=str,
)
def test_a_counted_difference_holds_the_truth_whatever_the_judge_errs(world: World) -> None:
    found = measure(world, 150)

    # 93 % of intervals are asked for; of 150, three standard errors are 6 points.
    assert found.counted.coverage >= 0.93 - 0.06
    assert found.counted.given >= 0.9 * found.repeats
    assert found.kappa.coverage >= 0.88


def test_a_judge_that_favours_an_arm_makes_a_difference_only_where_nobody_labels() -> None:
    found = measure(World(labels=60, tnr=0.8, lift=0.0, favour=0.2), 150)

    assert found.raw.claimed / found.repeats > 0.2
    assert found.rogan_gladen.claimed / found.repeats > 0.2
    # At most 5 % are asked for; of 150, three standard errors are 5 points.
    assert found.counted.claimed / found.repeats <= 0.05 + 0.05
    assert pytest.approx(1.96, abs=0.001) == Z95
