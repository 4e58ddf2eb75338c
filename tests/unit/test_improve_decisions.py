"""What an improve run decides: who wins a race, what a confirm step may err, and what is accepted."""

from __future__ import annotations

from math import fsum
from typing import Any

import pytest

from whet.decide.improve.accept import default_rule, objections, regressions
from whet.decide.improve.race import Racer, RaceRule, survivors, winner
from whet.decide.improve.reach import effect_in_reach
from whet.decide.improve.spending import error_of_step
from whet.model.callable import Interval
from whet.model.comparison import Sampled

ABOVE, AROUND = Interval(value=0.3, low=0.1, high=0.5), Interval(value=0.3, low=-0.1, high=0.6)


def trials(**cases: str) -> list[Sampled]:
    """Trials by their letters: p passed, f failed, e errored."""
    values = {"p": 1.0, "f": 0.0, "e": None}
    return [Sampled(case=case, value=values[letter]) for case, letters in cases.items() for letter in letters]


def test_all_confirm_steps_together_make_five_percent_of_errors():
    errors = [error_of_step(step) for step in range(1, 20_000)]

    assert [round(error, 4) for error in errors[:3]] == [0.0304, 0.0076, 0.0034]
    assert 0.0499 < fsum(errors) < 0.05


def rule(score: float = 0.0, cost: float | None = None, **more: Any) -> RaceRule:
    return RaceRule(current=Racer(id="current", score=score, cost_usd=cost), **more)


@pytest.mark.parametrize(("candidates", "kept"), [(0, 0), (1, 1), (2, 2), (3, 2), (6, 2), (7, 3), (24, 8)])
def test_the_best_third_and_at_least_two_take_the_second_leg(candidates: int, kept: int):
    racers = [Racer(id=f"c{number:02}", score=number / 100) for number in range(candidates)]

    assert survivors(racers, rule()) == tuple(racer.id for racer in reversed(racers))[:kept]


def test_of_those_that_are_as_good_the_shorter_is_ahead_and_then_the_order_of_digests():
    racers = [
        Racer(id="long", score=0.5, growth=40, digest="a"),
        Racer(id="second", score=0.5, growth=-3, digest="c"),
        Racer(id="first", score=0.5, growth=-3, digest="b"),
    ]

    assert survivors(racers, rule()) == ("first", "second")
    assert winner(racers, rule(0.4)) == winner(reversed(racers), rule(0.4)) == "first"


def test_nobody_wins_who_is_not_above_the_current_version():
    racers = [Racer(id="a", score=0.5), Racer(id="b", score=0.25)]

    assert (winner(racers, rule(0.5)), winner([], rule()), winner(racers, rule(0.49))) == (None, None, "a")


def test_who_is_to_be_cheaper_wins_by_cost_if_it_is_hardly_worse():
    cheaper = rule(0.8, 2.0, goal="cheaper", margin=0.1)
    racers = [
        Racer(id="bad", score=0.6, cost_usd=0.1),
        Racer(id="unknown", score=0.9),
        Racer(id="dear", score=0.9, cost_usd=1.9),
        Racer(id="cheap", score=0.75, cost_usd=1.0),
    ]

    assert survivors(racers, cheaper) == ("cheap", "dear")
    assert winner(racers, cheaper) == "cheap"
    assert winner(racers[:2], cheaper) is None
    assert winner([Racer(id="dearer", score=0.9, cost_usd=2.0)], cheaper) is None


def test_better_on_these_cases_is_accepted_by_one_rule_and_has_to_hold_on_others_by_the_other():
    assert objections("better", rule="these", like_these=AROUND) == ()
    assert objections("better", rule="like-these", like_these=ABOVE) == ()
    assert objections("better", rule="like-these", like_these=AROUND) == (
        "it is better on these cases, and not shown to be on others like these",
    )
    assert objections("better", rule="like-these", like_these=None) != ()


@pytest.mark.parametrize("verdict", ["worse", "not-worse", "inconclusive"])
def test_nothing_but_better_is_better(verdict):
    assert objections(verdict, rule="these", like_these=ABOVE) != ()


def test_cheaper_is_accepted_if_it_is_as_good_and_the_whole_ratio_is_below_one():
    less, unclear = Interval(value=0.7, low=0.6, high=0.8), Interval(value=0.9, low=0.8, high=1.0)

    def objected(verdict, ratio):
        return len(objections(verdict, rule="like-these", goal="cheaper", like_these=AROUND, cost_ratio=ratio))

    assert [objected(verdict, less) for verdict in ("better", "not-worse", "inconclusive", "worse")] == [0, 0, 1, 1]
    assert [objected("not-worse", ratio) for ratio in (less, unclear, None)] == [0, 1, 1]
    assert objected("worse", unclear) == 2


def test_a_protected_case_may_not_get_worse_beyond_chance_nor_be_lost():
    before = trials(lost="pp", worse="ppppppppf", chance="pppf", gained="ff", unknown="ee", free="pp")
    after = trials(lost="ff", worse="pffffffff", chance="ppff", gained="pp", unknown="ff", free="ff")
    protected = ["worse", "lost", "chance", "gained", "unknown", "elsewhere"]

    assert regressions(before, after, protected) == ("lost", "worse")
    assert objections("better", rule="these", regressed=("lost", "worse")) == (
        "2 cases that must not regress did: lost, worse",
    )


def test_where_others_can_be_asked_about_they_are():
    assert [default_rule(cases) for cases in (6, 11, 12, 40)] == ["these", "these", "like-these", "like-these"]


def test_more_held_out_cases_and_more_error_find_smaller_effects():
    by_cases = [effect_in_reach(cases, 10, error_of_step(1)) for cases in (6, 8, 12, 20, 40)]
    by_step = [effect_in_reach(12, 10, error_of_step(step)) for step in (1, 2, 3)]

    assert by_cases == sorted(by_cases, reverse=True)
    assert by_step == sorted(by_step)
    # As `bench/improve.py` measures it: 12 cases find 15 points in 41 % of runs, and 25 in 91 %.
    assert 0.18 < by_cases[2] < 0.22


def test_to_hold_on_others_takes_a_larger_effect_the_more_so_with_few_cases():
    extra = [
        effect_in_reach(cases, 10, error_of_step(1), "like-these") - effect_in_reach(cases, 10, error_of_step(1))
        for cases in (6, 8, 12, 20, 60)
    ]

    assert extra == sorted(extra, reverse=True)
    assert extra[-1] > 0


@pytest.mark.parametrize(("cases", "too_small", "large_enough"), [(8, 0.35, 0.6), (12, 0.25, 0.35), (20, 0.15, 0.25)])
def test_what_is_in_reach_on_others_is_as_simulated(cases: int, too_small: float, large_enough: float):
    # `bench/improve.py`: the first is found in 52, 73 and 54 % of runs, and the others but the first in 91 and 94 %.
    assert too_small < effect_in_reach(cases, 10, error_of_step(1), "like-these") < large_enough
