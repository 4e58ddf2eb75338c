"""How far two arms are apart: intervals that hold the truth, and depend on nothing but the trials."""

from __future__ import annotations

import random
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.decide.amounts import ratio_of_means
from whet.decide.difference import case_chance, chance, difference, holm, rate_on_these_cases
from whet.decide.like_these import difference_like_these
from whet.decide.quantiles import z_of


def _arm(rates: dict[str, tuple[int, int]]) -> dict[str, list[float]]:
    """Cases with so many passes of so many trials."""
    return {case: [1.0] * passed + [0.0] * (trials - passed) for case, (passed, trials) in rates.items()}


def _drawn(seed: int, cases: int, trials: int, rate: float) -> dict[str, list[float]]:
    drawn = random.Random(seed)
    return {f"case-{number}": [float(drawn.random() < rate) for _ in range(trials)] for number in range(cases)}


def test_the_interval_is_that_of_newcombe_and_a_little_wider():
    found = difference(_arm({"a": (56, 70)}), _arm({"a": (48, 80)}))

    assert found is not None
    # Newcombe (1998) has -0.3339 to -0.0524 for these.
    assert found.value == pytest.approx(-0.2)
    assert (found.low, found.high) == (pytest.approx(-0.345, abs=0.01), pytest.approx(-0.045, abs=0.01))


def test_cases_that_differ_from_each_other_and_not_from_trial_to_trial_narrow_the_interval():
    steady = {f"case-{number}": (5 * (number % 2), 5) for number in range(20)}
    shaky = {f"case-{number}": (2 + number % 2, 5) for number in range(20)}

    narrow, wide = difference(_arm(steady), _arm(steady)), difference(_arm(shaky), _arm(shaky))

    assert narrow is not None
    assert wide is not None
    assert narrow.high - narrow.low < 0.8 * (wide.high - wide.low)


def test_a_difference_of_few_alike_trials_has_a_wide_interval():
    both = difference({"a": [1.0], "b": [1.0]}, {"a": [0.0], "b": [0.0]})

    assert both is not None
    assert both.value == -1.0
    assert both.high > -0.4


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_no_interval_has_a_width_of_zero(value):
    same = {f"case-{number}": [value] * 3 for number in range(12)}

    found = difference(same, same)
    like_these = difference_like_these(same, same)

    assert found is not None
    assert like_these is not None
    assert found.low < 0 < found.high
    assert like_these.low < 0 < like_these.high


def test_the_order_of_cases_and_trials_changes_nothing():
    shuffle = random.Random(7)
    baseline = {f"case-{number}": [shuffle.random() for _ in range(5)] for number in range(30)}
    candidate = {case: [shuffle.random() for _ in range(4)] for case in baseline}
    weights = {case: shuffle.choice((0.1, 1.0, 7.0)) for case in baseline}

    def turned(arm: dict[str, list[float]]) -> dict[str, list[float]]:
        names = shuffle.sample(list(arm), len(arm))
        return {name: shuffle.sample(arm[name], len(arm[name])) for name in names}

    assert difference(turned(baseline), turned(candidate), weights) == difference(baseline, candidate, weights)
    assert difference_like_these(turned(baseline), turned(candidate), weights) == difference_like_these(
        baseline, candidate, weights
    )


def test_exchanging_the_arms_turns_the_difference_around():
    one, other = _drawn(1, 12, 3, 0.4), _drawn(2, 12, 3, 0.7)

    there, back = difference(one, other), difference(other, one)

    assert there is not None
    assert back is not None
    assert (there.value, there.low, there.high) == (-back.value, -back.high, -back.low)


_SCORES = st.dictionaries(st.sampled_from("abcd"), st.lists(st.floats(0, 1), min_size=1, max_size=6), min_size=1)
_WEIGHTS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from([0.5, 1.0, 3.0]))


@given(_SCORES, _SCORES, _WEIGHTS)
def test_no_order_and_no_unit_of_weights_changes_what_scores_say(baseline, candidate, weights):
    turned = ({case: values[::-1] for case, values in reversed(arm.items())} for arm in (baseline, candidate))

    found = difference(baseline, candidate, weights)

    assert found == difference(*turned, dict(reversed(weights.items())))
    assert found == difference(baseline, candidate, {case: 4 * weights.get(case, 1.0) for case in "abcd"})


@given(_SCORES, _SCORES, _WEIGHTS)
def test_exchanged_arms_mirror_what_scores_say_and_doubled_trials_narrow_it(baseline, candidate, weights):
    there, back = difference(baseline, candidate, weights), difference(candidate, baseline, weights)
    twice = difference(*({case: each * 2 for case, each in arm.items()} for arm in (baseline, candidate)), weights)

    if there is None or back is None or twice is None:
        assert there is back is twice is None
        return
    assert (there.low, there.high) == (pytest.approx(-back.high), pytest.approx(-back.low))
    assert -1 <= there.low < there.value + 1e-12 < there.high + 2e-12 <= 1 + 2e-12
    assert twice.high - twice.low <= there.high - there.low + 1e-9


def test_more_trials_narrow_the_interval_on_these_cases_and_more_cases_the_one_for_cases_like_these():
    few, many = _drawn(3, 10, 3, 0.5), _drawn(3, 10, 30, 0.5)
    more_cases = _drawn(3, 100, 3, 0.5)

    def widths(arm: dict[str, list[float]]) -> tuple[float, float]:
        on, like = difference(arm, arm), difference_like_these(arm, arm)
        assert on is not None
        assert like is not None
        return on.high - on.low, like.high - like.low

    assert widths(many)[0] < widths(few)[0] / 2
    assert widths(more_cases)[1] < widths(few)[1] / 2


def test_weights_count_and_a_case_without_weight_does_not():
    baseline, candidate = _arm({"heavy": (0, 4), "light": (4, 4)}), _arm({"heavy": (4, 4), "light": (0, 4)})

    found = difference(baseline, candidate, {"heavy": 3.0, "light": 1.0})
    alone = difference(baseline, candidate, {"heavy": 1.0, "light": 0.0})

    assert found is not None
    assert alone is not None
    assert found.value == pytest.approx(0.5)
    assert (alone.value, alone.cases) == (1.0, 1)


@pytest.mark.parametrize("weight", [1e-300, 1e308])
def test_weights_of_any_size_give_the_same(weight):
    baseline, candidate = _drawn(1, 5, 3, 0.4), _drawn(2, 5, 3, 0.7)

    assert difference(baseline, candidate, dict.fromkeys(baseline, weight)) == difference(baseline, candidate)


def test_arms_without_a_common_case_cannot_be_compared():
    assert difference({"a": [1.0]}, {"b": [1.0]}) is None
    assert difference({"a": [1.0]}, {"a": []}) is None
    assert difference({"a": [1.0]}, {"a": [0.0]}, {"a": 0.0}) is None
    assert difference_like_these({"a": [1.0]}, {"a": [0.0]}) is None


def test_a_chance_is_small_where_the_interval_is_far_from_zero():
    alike, apart = _arm({"a": (3, 6), "b": (3, 6)}), _arm({"a": (6, 6), "b": (6, 6)})

    assert chance(alike, alike) == 1.0
    assert chance(alike, apart) < 0.05 < chance(_arm({"a": (1, 2)}), _arm({"a": (2, 2)}))
    assert chance(alike, apart) == chance(apart, alike)


def test_a_chance_is_where_the_interval_touches_zero():
    baseline, candidate = _drawn(1, 12, 3, 0.4), _drawn(2, 12, 3, 0.7)

    at = difference(baseline, candidate, z=z_of(chance(baseline, candidate)))

    assert at is not None
    assert min(abs(at.low), abs(at.high)) < 1e-6


@pytest.mark.parametrize(
    ("baseline", "candidate", "expected"),
    [((0, 3), (3, 3), 0.1), ((1, 3), (1, 3), 1.0), ((0, 5), (5, 5), 2 / 252), ((1, 4), (3, 4), 34 / 70)],
)
def test_one_case_is_judged_exactly(baseline, candidate, expected):
    one, other = (_arm({"a": each})["a"] for each in (baseline, candidate))

    assert case_chance(one, other) == pytest.approx(expected)
    assert case_chance(other, one) == pytest.approx(expected)


def test_one_case_with_scores_is_judged_by_its_interval():
    assert case_chance([0.1, 0.2, 0.1, 0.1], [0.9, 1.0, 0.9, 1.0]) < 0.05 < case_chance([0.4, 0.6], [0.5, 0.7])


def test_holm_makes_the_smallest_chance_pay_for_all():
    assert holm([0.01, 0.04, 0.03]) == [pytest.approx(0.03), pytest.approx(0.06), pytest.approx(0.06)]
    assert holm([]) == []


def test_a_ratio_of_costs_has_an_interval_that_excludes_what_is_far_off():
    baseline = {"a": [1.0, 1.2, 0.8], "b": [2.0, 2.2, 1.8]}
    candidate = {"a": [2.0, 2.2, 1.8], "b": [4.0, 4.4, 3.6]}

    found = ratio_of_means(baseline, candidate)

    assert found is not None
    assert found.value == pytest.approx(2.0)
    assert 1.5 < found.low < 2.0 < found.high < 2.7


def test_costs_of_cases_with_one_trial_each_have_a_ratio_by_how_far_the_arms_are_apart_in_each():
    baseline = {"a": [1.0], "b": [10.0], "c": [100.0], "d": [1000.0]}
    alike = ratio_of_means(baseline, {case: [2.0 * cost] for case, [cost] in baseline.items()})
    mixed = ratio_of_means(baseline, {"a": [4.0], "b": [10.0], "c": [400.0], "d": [1000.0]})

    assert alike is not None
    assert mixed is not None
    assert alike.value == pytest.approx(2.0)
    assert alike.low < 2.0 < alike.high
    assert mixed.low < 1.0 < mixed.high


def test_nothing_has_no_ratio():
    assert ratio_of_means({"a": [0.0, 0.0]}, {"a": [1.0, 2.0]}) is None
    assert ratio_of_means({"a": [1e-320, 1e-320]}, {"a": [1.0, 2.0]}) is None
    assert ratio_of_means({"a": [1.0]}, {"a": [1.0]}) is None
    assert ratio_of_means({"a": [1.0]}, {"b": [1.0]}) is None


def test_the_rate_of_one_arm_has_an_interval_on_these_cases():
    settled = {f"case-{number}": [float(number % 2)] * 5 for number in range(10)}
    torn = {f"case-{number}": [1.0, 0.0] * 2 + [float(number % 2)] for number in range(10)}

    calm, wild = rate_on_these_cases(settled), rate_on_these_cases(torn)

    assert calm is not None
    assert wild is not None
    assert calm.value == wild.value == 0.5
    assert calm.high - calm.low < wild.high - wild.low


@pytest.mark.parametrize("trials", [1, 5, 20, 60])
@pytest.mark.parametrize("rate", [0.5, 0.8, 0.9, 0.95])
def test_a_rate_is_seldom_called_too_high_or_too_low_by_chance(trials, rate):
    """Twenty of twenty are what a rate of 90 % gives in one of eight runs, so they do not show that it is above."""
    likely = [comb(trials, passed) * rate**passed * (1 - rate) ** (trials - passed) for passed in range(trials + 1)]
    runs = [[1.0] * passed + [0.0] * (trials - passed) for passed in range(trials + 1)]

    alone = [rate_on_these_cases({"only": run}) for run in runs]
    apart = [rate_on_these_cases({str(number): [value] for number, value in enumerate(run)}) for run in runs]

    for found in (alone, apart):
        pairs = [(each, chance) for each, chance in zip(found, likely, strict=True) if each is not None]
        assert sum(chance for each, chance in pairs if each.low > rate) <= 0.05
        assert sum(chance for each, chance in pairs if each.high < rate) <= 0.05


@pytest.mark.parametrize(("alpha", "z"), [(0.05, 1.959964), (0.01, 2.575829), (1.0, 0.0)])
def test_z_is_the_normal_quantile(alpha, z):
    assert z_of(alpha) == pytest.approx(z, abs=1e-5)
