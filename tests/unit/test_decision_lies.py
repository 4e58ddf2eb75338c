"""What could fool a comparison, each simulated with a seed through the functions that decide.

`bench/decisions.py` does the same in many more settings, and with more runs.
"""

from __future__ import annotations

import sys
from math import exp
from pathlib import Path

import pytest

from whet.grade.comparison import compare_arms
from whet.grade.outlook import Outlook
from whet.grade.sequential import z_after_looks
from whet.model.comparison import Sampled
from whet.report.comparison import comparison_lines

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import decision_lies as lies
import decisions


def _named(every, *names: str) -> list[decisions.Alike]:
    return [each for each in every if any(name in each.name for name in names)]


@pytest.mark.parametrize(
    "alike",
    [
        *_named(
            decisions.heavy(), "one of 20 weighs 5, x 5", "one of 60 weighs 10, x 2", "a fifth of 20 weighs 10, x 2"
        ),
        *_named(decisions.uneven(), "4 of 20 cases have 2 trials", "10 cases, 10 trials in one arm and 1"),
        *_named(decisions.lognormal(), "mixture, 15 x 7"),
        *_named(decisions.graded(), "spread by case, 20 x 3 at 0.7, weights", "collapses, 5 x 3 at 0.95"),
    ],
    ids=lambda each: each.name,
)
def test_arms_that_are_alike_are_seldom_called_different_whatever_their_cases_weigh(alike):
    assert alike.called_different(runs=300, seed=1) <= 0.05 + 0.03


def test_a_heavy_unstable_case_does_not_end_a_run_until_decided():
    assert lies.heavy_until_decided(10, runs=100, seed=1) <= 0.05 + 0.03


def test_scores_that_hardly_vary_show_a_small_difference_with_few_trials():
    assert lies.found_scores(0.08, 0.05, 20, 3, runs=150, seed=1) >= 0.85


def test_an_arm_that_hides_its_failures_as_errors_does_not_beat_one_that_errs_at_random():
    found = lies.erring(40, 5, {"any": 0.15}, {"failed": 0.5}, runs=40, seed=1)

    assert found["better"] <= 0.05


def test_a_judge_that_is_wrong_about_the_same_answers_decides_nothing_once_its_error_is_known():
    unknown, known = (lies.misjudged(20, 5, 1, runs=100, seed=1, error=error) for error in (None, 0.1))

    assert known <= 0.05 + 0.03 < unknown


def test_an_answer_that_both_arms_give_has_one_verdict_and_one_that_each_trial_has_needs_no_allowance():
    shared = [Sampled(case=str(case), value=1.0, judged="same") for case in range(8) for _ in range(5)]
    own = [Sampled(case=str(case), value=1.0, judged=f"b{case}") for case in range(8) for _ in range(5)]
    fresh = [Sampled(case=str(case), value=1.0, judged=f"{case} {n}") for case in range(8) for n in range(5)]

    def width(first: list[Sampled], second: list[Sampled], error: float | None) -> float:
        found = compare_arms(first, second, judge_error=error)
        assert found is not None
        return found.high - found.low

    assert width(shared, shared, 0.1) == width(shared, shared, None)
    assert width(fresh, [*fresh], 0.1) == width(fresh, fresh, None)
    assert width(shared, own, 0.1) > 1.2 * width(shared, own, None)


def test_a_judged_decision_says_by_how_much_the_judge_may_favour_an_arm():
    arms = [
        [Sampled(case=str(case), value=value, judged=f"{value} {case}") for case in range(12) for _ in range(3)]
        for value in (0.0, 1.0)
    ]

    found = compare_arms(*arms, names=("old", "new"), judge_error=0.1)

    assert found is not None
    assert found.judging is not None
    assert (found.judging.verdicts, found.judging.answers, found.judging.favour) == (72, 24, found.low)
    (line,) = [line for line in comparison_lines(found) if line.startswith("  judge ")]
    assert f"holds unless the judge favours new by more than {100 * found.low:.3g} points" in line
    assert "72 verdicts on 24 answers" in line


def test_moods_of_a_provider_by_round_and_arm_widen_the_interval():
    untold, told = (lies.moody(20, 5, 1.0, runs=100, seed=1, told=each) for each in (False, True))

    assert told <= 0.12 < untold


@pytest.mark.parametrize(("spread", "cases", "trials"), [(1.0, 3, 3), (2.0, 20, 3)])
def test_long_tails_of_costs_do_not_make_their_ratio_look_known(spread, cases, trials):
    missed, _ = lies.costly(cases, trials, lambda chance: exp(chance.gauss(0, spread)), 1.2, runs=300, seed=1)

    assert missed <= 0.05


def test_a_cost_ratio_at_its_limit_seldom_passes_however_often_it_is_looked_at():
    passed, failed = lies.cost_looks(runs=50, seed=1)

    assert max(passed, failed) <= 0.06


def test_looks_without_end_spend_no_more_than_a_quarter_of_the_error_after_the_first():
    zs = [z_after_looks(range(1, looks + 1)) for looks in range(1, 6)]

    assert zs == sorted(zs)
    assert [round(z, 2) for z in zs[:4]] == [1.96, 2.73, 3.08, 3.28]


def test_what_would_decide_allows_for_a_difference_that_is_smaller_than_it_looks():
    seen = Outlook(value=0.1, error=0.06, rounds=3, margin=0.0)

    needed = seen.rounds_to_decide(2.73, 0.8, most=1000)

    assert needed is not None
    # What 10 points would take if they were certain.
    assert needed > 3 * (0.06 * (2.73 + 0.84) / 0.1) ** 2
    assert seen.chance(needed, 2.73) >= 0.8 > seen.chance(needed - 1, 2.73)
