"""Loops of improvement in worlds whose truth is known: a few of each, with a seed; `bench/improve.py` does thousands.

The loop and all that decides are those of the product, and only trials are drawn.
"""

from __future__ import annotations

import sys
from math import fsum
from pathlib import Path

import pytest

from whet.decide.improve.spending import error_of_step

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import improve
from improve_worlds import World, better_by, cheaper_to, go_through, helps_and_hurts, on_practice_only


@pytest.mark.parametrize(
    ("world", "loops"),
    [
        (World("null", accept="these"), 120),
        (World("null", accept="these", base=0.8, between=0.0), 120),
        (World("null", accept="these", errored=0.1), 120),
        (World("null", accept="these", rounds=5), 24),
        (World("null", accept="these", runs=10), 10),
    ],
    ids=["one round", "cases alike", "errors", "five rounds", "ten runs"],
)
def test_where_nothing_improves_hardly_anything_is_accepted(world: World, loops: int):
    assert improve.measure(world, loops, seed=1).accepted <= 0.025


def test_rounds_and_runs_on_one_split_share_one_error():
    outcome = go_through(World("null", accept="these", rounds=3, runs=4), "1")

    records = [record for end in outcome.ends for record in end.rounds if record.confirm is not None]
    assert len(records) > 3
    assert [record.step for record in records] == list(range(1, len(records) + 1))
    assert [record.error for record in records] == [error_of_step(step) for step in range(1, len(records) + 1)]
    assert all(record.confirm is not None and record.confirm.error == record.error for record in records)
    assert fsum(record.error or 0.0 for record in records) < 0.05


@pytest.mark.parametrize(
    ("rule", "held_out", "least"), [("these", 12, 0.85), ("like-these", 12, 0.6), ("like-these", 20, 0.9)]
)
def test_one_better_version_of_six_is_found(rule, held_out, least):
    world = World("planted", (better_by(0.25),), accept=rule, held_out=held_out)

    figures = improve.measure(world, 120, seed=1)

    assert figures.accepted >= least
    # The truth is about what is said: the decision is on cases that chose nothing.
    assert figures.reported - figures.gain < 0.06


def test_what_was_learnt_by_heart_wins_the_race_and_is_not_accepted():
    outcomes = [
        go_through(World("overfit", (on_practice_only(0.35),), accept="these"), str(seed)) for seed in range(60)
    ]

    assert sum(outcome.ends[0].rounds[0].chosen is not None for outcome in outcomes) > 55
    assert sum(outcome.is_accepted for outcome in outcomes) <= 2


def test_harm_elsewhere_is_never_accepted_and_mostly_called_worse():
    figures = improve.measure(World("harm", (on_practice_only(0.35, -0.25),), accept="these"), 100, seed=1)

    assert figures.accepted == 0
    assert figures.worse > 0.8


def test_what_helps_some_cases_and_hurts_others_does_not_hold_on_others_like_these():
    edits = (helps_and_hurts(2.0),) * 6

    asked, unasked = (improve.measure(World("mixed", edits, accept=rule), 80, 1) for rule in ("like-these", "these"))

    assert asked.accepted <= 0.05 < unasked.accepted


def test_what_costs_less_is_accepted_unless_it_is_worse_too():
    less, worse = (
        improve.measure(World("cheaper", (cheaper_to(0.6, effect),) * 2, 2, goal="cheaper", held_out=20), 24, 1)
        for effect in (0.0, -0.15)
    )

    assert less.accepted > 0.5
    assert worse.accepted == 0
