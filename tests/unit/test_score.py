"""Scores: means that leave out what says nothing, and intervals that stay honest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from whet.decide.resampling import paired_difference
from whet.decide.scores import Weights, combined_status, composite, mean, score_of, wilson
from whet.model.grade import STATUSES, Grade, Status


def test_a_score_is_the_weighted_mean_of_grades() -> None:
    grades = [Grade(check="a", value=1.0, passed=True, weight=3), Grade(check="b", value=0.0, passed=False)]

    assert score_of(grades) == 0.75
    assert score_of([]) is None
    assert score_of([Grade(check="a", value=1.0, passed=True, weight=0)]) is None


def test_weights_whose_sum_is_beyond_every_number_count_like_others() -> None:
    grades = [Grade(check=name, value=1.0, passed=True, weight=1e308) for name in "ab"]
    worse = replace(grades[0], value=0.5)

    assert score_of(grades) == 1.0
    assert score_of([worse, grades[1]]) == 0.75
    large = Weights(completion=1e308, speed=1e308, reliability=0)
    assert composite(large, completion=1, speed=0.5, error_rate=0, consistency=None) == 0.75
    found = paired_difference({"a": [0.0], "b": [0.0]}, {"a": [1.0], "b": [0.5]}, weights={"a": 1e308, "b": 1e308})
    assert found is not None
    assert found == paired_difference({"a": [0.0], "b": [0.0]}, {"a": [1.0], "b": [0.5]})


def test_a_mean_of_nothing_is_nothing() -> None:
    assert mean([]) is None
    assert mean(iter([1.0, 2.0])) == 1.5


@given(total=st.integers(1, 500), data=st.data())
def test_an_interval_holds_the_rate_and_stays_between_0_and_1(total: int, data: st.DataObject) -> None:
    passed = data.draw(st.integers(0, total))

    rate = wilson(passed, total)

    assert 0 <= rate.low <= rate.value <= rate.high <= 1
    assert rate.value == passed / total


def test_the_interval_is_wilsons() -> None:
    rate = wilson(8, 10)

    assert (round(rate.low, 4), round(rate.high, 4)) == (0.4902, 0.9433)
    assert wilson(0, 5).low == 0
    assert wilson(5, 5).high == 1


def test_a_rate_of_no_trials_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        wilson(0, 0)


def test_the_worst_status_stands_for_all_and_errored_weighs_less_than_failed() -> None:
    everything: list[Status] = list(STATUSES)

    assert combined_status(everything) == "failed"
    assert combined_status(["passed", "errored"]) == "errored"
    assert combined_status(["errored", "unexpected-passed"]) == "unexpected-passed"
    assert combined_status(["expected-failed", "passed"]) == "expected-failed"
    assert combined_status([]) is None
