"""Changes in a history of runs on the same content, simulated with a seed."""

from __future__ import annotations

import random

from whet.model.comparison import ArmSamples, RunSamples, Sampled
from whet.view.history.document import decided_changes
from whet.view.history.documents import DecidedChange


def _history(chance: random.Random, rates: list[float]) -> dict[str, DecidedChange]:
    """Return the changes of runs of 20 x 3, of which each has the rate of its place."""
    runs = [
        RunSamples(
            name=f"run{number:02}",
            arms=(
                ArmSamples(
                    arm="a",
                    runner="r",
                    trials=tuple(
                        Sampled(case=str(case), value=float(chance.random() < rate), round=trial)
                        for case in range(20)
                        for trial in (1, 2, 3)
                    ),
                ),
            ),
            weights={},
        )
        for number, rate in enumerate(rates)
    ]
    return decided_changes([[runs]])


def test_a_history_that_has_not_changed_seldom_shows_a_change():
    chance = random.Random(1)

    assert sum(bool(_history(chance, [0.8] * 6)) for _ in range(40)) <= 4


def test_a_change_of_the_provider_on_the_same_content_is_shown_once_and_near_its_place():
    changes = [_history(random.Random(seed), [0.82] * 4 + [0.57] * 4) for seed in range(5)]

    assert [len(each) for each in changes] == [1] * 5
    for each in changes:
        ((run, change),) = each.items()
        assert (change.verdict, change.same_content) == ("worse", True)
        assert run in {"run03", "run04", "run05"}


def test_runs_in_different_moods_of_a_provider_seldom_look_like_a_change():
    """Moods move all trials of a run by 8 points either way. Without a look at runs, 14 of 30 are marked."""
    chance = random.Random(2)
    histories = [_history(chance, [chance.choice((0.72, 0.88)) for _ in range(8)]) for _ in range(30)]

    assert sum(map(bool, histories)) <= 8
