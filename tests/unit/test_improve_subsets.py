"""Which failures each proposer is shown."""

from __future__ import annotations

from whet.improve.propose.subsets import subset


def test_proposers_see_different_failures_and_together_all_of_them() -> None:
    failures = list(range(12))

    subsets = [set(subset(failures, place, of=6, seed=7)) for place in range(6)]

    assert all(len(chosen) == 4 for chosen in subsets)
    assert set.union(*subsets) == set(failures)
    assert len({frozenset(chosen) for chosen in subsets}) == 6


def test_neighbours_share_half_and_nobody_sees_more_than_8() -> None:
    failures = list(range(60))

    assert len(subset(failures, 0, of=3, seed=1)) == 8
    assert set(subset(range(12), 0, of=6, seed=7)) & set(subset(range(12), 1, of=6, seed=7))


def test_everybody_gets_all_of_few_and_nobody_nothing() -> None:
    assert {subset(["a", "b"], place, of=6, seed=2) for place in range(6)} == {subset(["a", "b"], 0, of=6, seed=2)}
    assert all(subset(range(3), place, of=24, seed=2) for place in range(24))
    assert subset([], 0, of=6, seed=2) == ()


def test_the_seed_decides() -> None:
    assert subset(range(40), 0, of=6, seed=1) == subset(range(40), 0, of=6, seed=1)
    assert subset(range(40), 0, of=6, seed=1) != subset(range(40), 0, of=6, seed=2)
