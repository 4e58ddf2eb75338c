"""What could fool a comparison, each simulated with a seed through the functions that decide.

`bench/decisions.py` does the same in many more settings, and with more runs.
"""

from __future__ import annotations

import sys
from math import exp
from pathlib import Path

import pytest
from msgspec.structs import replace

from whet.decide.comparison import compare_arms, comparisons_of
from whet.decide.gate import gate_comparison
from whet.decide.goals import aim_at, amounts_of
from whet.decide.outlook import Outlook
from whet.decide.sequential import z_after_analyses
from whet.decide.until import analyse_round
from whet.model.comparison import ArmSamples, RunSamples, Sampled, Until
from whet.report.decisions.words import comparison_lines, sentence

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import decision_answers as answers
import decision_lies as lies
import decisions
from decision_worlds import Setting


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
    never, known = (lies.misjudged(20, 5, 1, runs=100, seed=1, wrong_about=0.1, error=error) for error in (0.0, 0.1))

    assert known <= 0.05 + 0.03 < never


@pytest.mark.parametrize(("cases", "trials", "answers"), [(20, 5, 1), (5, 5, 1), (20, 5, 3)])
def test_a_judge_of_whom_nothing_is_said_is_taken_to_be_wrong_about_one_answer_in_twenty(cases, trials, answers):
    assert lies.misjudged(cases, trials, answers, runs=100, seed=1, wrong_about=0.05, error=None) <= 0.05 + 0.03


def test_what_no_judge_decided_does_not_depend_on_how_wrong_judges_are():
    arms = [
        [Sampled(case=str(case), value=float(case < passing)) for case in range(8) for _ in range(5)]
        for passing in (3, 6)
    ]

    unsaid, never, often = (compare_arms(*arms, judge_error=error) for error in (None, 0.0, 0.1))

    assert unsaid == never == often


def test_an_answer_that_both_arms_give_has_one_verdict_and_one_that_each_trial_has_needs_no_allowance():
    shared = [Sampled(case=str(case), value=1.0, judged="same") for case in range(8) for _ in range(5)]
    own = [Sampled(case=str(case), value=1.0, judged=f"b{case}") for case in range(8) for _ in range(5)]
    fresh = [Sampled(case=str(case), value=1.0, judged=f"{case} {n}") for case in range(8) for n in range(5)]

    def width(first: list[Sampled], second: list[Sampled], error: float | None) -> float:
        found = compare_arms(first, second, judge_error=error)
        assert found is not None
        return found.high - found.low

    assert width(shared, shared, 0.1) == width(shared, shared, 0.0)
    assert width(fresh, [*fresh], 0.1) == width(fresh, fresh, 0.0)
    assert width(shared, own, 0.1) > width(shared, own, None) > 1.1 * width(shared, own, 0.0)


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
    assert line.endswith("; allows for a judge that is wrong about 10 % of answers, as judge.error says")
    assumed = compare_arms(*arms, names=("old", "new"))
    assert assumed is not None
    assert sentence(assumed).endswith(
        "; assumes that the judge is wrong about 5 % of answers; set judge.error once you know"
    )
    assert "holds unless the judge favours new by more than" in sentence(assumed)


def test_moods_of_a_provider_by_round_and_arm_widen_the_interval():
    untold, told = (lies.moody(20, 5, 1.0, runs=100, seed=1, told=each) for each in (False, True))

    assert told <= 0.12 < untold


def test_rounds_that_went_alike_by_chance_seldom_make_an_interval_useless():
    wide = lies.stretched(20, 3, runs=200, seed=1, times=2.0)

    assert wide <= 0.05


def test_an_arm_of_nearly_settled_cases_that_is_worse_by_the_margin_is_seldom_called_not_worse():
    found = lies.verdicts(60, 2, 0.97, 0.95, -0.05, runs=500, seed=3)

    assert found["not-worse"] <= 0.03


def test_the_caution_for_settled_cases_takes_nothing_from_what_is_called_different():
    found = [lies.verdicts(20, 3, 0.9, 0.8, effect, runs=150, seed=1) for effect in (0.05, -0.1)]

    assert (found[0]["better"] >= 0.25, found[1]["worse"] >= 0.75) == (True, True)


@pytest.mark.parametrize(("spread", "cases", "trials"), [(1.0, 3, 3), (2.0, 20, 3)])
def test_long_tails_of_costs_do_not_make_their_ratio_look_known(spread, cases, trials):
    missed, _ = lies.costly(cases, trials, lambda chance: exp(chance.gauss(0, spread)), 1.2, runs=300, seed=1)

    assert missed <= 0.05


def test_a_cost_ratio_at_its_limit_seldom_passes_however_often_it_is_looked_at():
    passed, failed = lies.cost_looks(runs=50, seed=1)

    assert max(passed, failed) <= 0.06


@pytest.mark.parametrize(("runners", "mood"), [(1, 0.0), (5, 0.0), (1, 1.0)])
def test_rates_are_seldom_taken_for_more_or_less_than_they_are(runners: int, mood: float):
    assert sum(answers.rated(Setting(20, 5, 0.8), runners, runs=100, seed=1, mood=mood)) <= 0.12


def test_arms_that_differ_only_from_case_to_case_are_seldom_said_to_be_better_on_other_cases():
    _, few_trials, _ = answers.on_other_cases(10, 1, 0.0, runs=50, seed=1)
    held, many_trials, passed = answers.on_other_cases(10, 5, 0.3, runs=100, seed=1)

    assert (held <= 0.08, passed <= 0.055) == (True, True)
    assert many_trials < few_trials


def test_the_interval_of_whet_eval_is_for_tasks_like_these_and_that_of_a_gate_for_these():
    like_these, on_these = answers.covered(20, 10, 0.7, 0.5, runs=100, seed=1)

    assert (like_these >= 0.88, on_these >= 0.92) == (True, True)


def test_reports_of_an_unstable_heavy_task_seldom_say_regressed():
    alike, better = answers.changed_reports(10, 3, runs=150, seed=1)

    assert (alike <= 0.055, better <= 0.055) == (True, True)


@pytest.mark.parametrize("runners", [3, 5])
def test_several_runners_find_no_difference_by_their_number(runners: int):
    decided, failed = answers.on_runners(runners, runs=60, seed=1, per_runner=False)

    assert (decided <= 0.08, failed <= 0.055) == (True, True)


def test_looks_without_end_spend_no_more_than_a_quarter_of_the_error_after_the_first():
    zs = [z_after_analyses(range(1, looks + 1)) for looks in range(1, 6)]

    assert zs == sorted(zs)
    assert [round(z, 2) for z in zs[:4]] == [1.96, 2.73, 3.08, 3.28]


def test_what_would_decide_allows_for_a_difference_that_is_smaller_than_it_looks():
    seen = Outlook(value=0.1, error=0.06, rounds=3, margin=0.0)

    needed = seen.rounds_to_decide(2.73, 0.8, most=1000)

    assert needed is not None
    # What 10 points would take if they were certain.
    assert needed > 3 * (0.06 * (2.73 + 0.84) / 0.1) ** 2
    assert seen.chance(needed, 2.73) >= 0.8 > seen.chance(needed - 1, 2.73)


def test_a_goal_is_seldom_reached_by_an_arm_that_is_not_cheaper_or_is_worse_by_the_margin():
    assert lies.aimed(20, 3, 0.0, 1.0, runs=100, seed=1)["reached"] <= 0.025 + 0.03
    assert lies.aimed(20, 3, -0.05, 0.5, runs=100, seed=1)["reached"] <= 0.025 + 0.03


def _trials(passing: float, cost: float, *, tokens: float | None = None) -> list[Sampled]:
    return [
        Sampled(
            case=str(case),
            value=float(case < 20 * passing),
            cost_usd=cost * (1 + 0.1 * number),
            seconds=1.0 + number,
            tokens=tokens,
            steps=cost * (3 + number),
        )
        for case in range(20)
        for number in range(5)
    ]


@pytest.mark.parametrize(
    ("candidate", "answer", "words"),
    [
        ((1.0, 0.5), "pass", "new is cheaper than old, and not worse by 5 points or more: 0.50 times the cost ("),
        ((1.0, 2.0), "fail", "new is dearer than old, and not cheaper: 2.00 times the cost ("),
        (
            (0.5, 0.5),
            "fail",
            "new is worse than old, so it does not matter whether it is cheaper: 0.50 times the cost (",
        ),
        (
            (1.0, 1.0),
            "unknown",
            "not known yet whether new is cheaper than old and not worse by 5 points or more: 1.00",
        ),
    ],
)
def test_a_gate_with_a_goal_asks_for_less_and_for_not_worse(candidate, answer, words):
    arms = (("old", _trials(1.0, 1.0)), ("new", _trials(*candidate)))
    run = RunSamples(
        name="run",
        arms=tuple(ArmSamples(arm=name, runner="r", trials=tuple(trials)) for name, trials in arms),
        weights={},
    )

    (found,) = comparisons_of(run, goal="cheaper")

    assert gate_comparison(found) == answer
    assert sentence(replace(found, runner=None)).startswith(words)


def test_shorter_goes_by_tokens_and_by_steps_if_no_session_tells_its_tokens():
    def amount(tokens: float | None) -> str | None:
        changes = amounts_of(_trials(1.0, 1.0, tokens=tokens), _trials(1.0, 0.5, tokens=tokens), 1.96)
        return aim_at("shorter", "not-worse", changes).amount

    assert (amount(10.0), amount(None)) == ("tokens", "steps")


@pytest.mark.parametrize(("cost", "progress"), [(0.5, "reached"), (2.0, "missed")])
def test_a_run_until_decided_with_a_goal_stops_once_costs_and_verdicts_are_known(cost, progress):
    arms = (("old", _trials(1.0, 1.0)), ("new", _trials(1.0, cost)))
    run = RunSamples(
        name="run",
        arms=tuple(ArmSamples(arm=name, runner="r", trials=tuple(trials)) for name, trials in arms),
        weights={},
        rounds_planned=10,
    )

    seen = analyse_round(run, Until(goal="cheaper", margin=0.10))

    assert seen is not None
    assert (seen.stop, seen.seen[0].progress) == ("decided", progress)
