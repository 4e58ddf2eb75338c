"""Precision, recall and F1 of loading a skill, and their intervals."""

from __future__ import annotations

import pytest

from whet.decide.loads.figures import figures_of
from whet.decide.scores import wilson_interval
from whet.model.grade import QueryLoads


def query(name: str, loaded: int, told: int = 1, *, wanted: bool = True, sessions: int | None = None) -> QueryLoads:
    return QueryLoads(
        case=name, wanted=wanted, loaded=loaded, told=told, sessions=told if sessions is None else sessions
    )


def test_the_shares_are_those_of_the_confusion_over_all_sessions() -> None:
    found = figures_of(
        "skill",
        "one",
        [query("a", 3, 3), query("b", 1, 3), query("c", 1, 3, wanted=False), query("d", 0, 3, wanted=False)],
    )

    assert (found.rightly, found.wrongly, found.missed, found.left_alone, found.unknown) == (4, 1, 2, 5, 0)
    assert found.precision is not None
    assert found.recall is not None
    assert found.f1 is not None
    assert found.precision.value == pytest.approx(4 / 5)
    assert found.recall.value == pytest.approx(4 / 6)
    assert found.f1.value == pytest.approx(2 * (4 / 5) * (4 / 6) / (4 / 5 + 4 / 6))
    for share in (found.precision, found.recall, found.f1):
        assert 0 <= share.low <= share.value <= share.high <= 1


def test_what_never_fails_is_as_sure_as_there_are_queries_and_not_trials() -> None:
    few = figures_of("skill", "one", [query("a", 100, 100), query("b", 100, 100)]).recall
    many = figures_of("skill", "one", [query(str(number), 1) for number in range(40)]).recall

    assert few is not None
    assert many is not None
    assert (few.low, few.high) == (wilson_interval(1.0, 2)[0], 1.0)
    assert few.low < many.low


def test_a_share_of_nothing_is_not_known() -> None:
    never = figures_of("skill", "one", [query("a", 0), query("b", 0)])
    silent = figures_of("skill", "one", [query("a", 0, 0, sessions=3)])
    nobody = figures_of("skill", "one", [])

    assert never.precision is None
    assert never.recall is not None
    assert (never.recall.value, never.f1.value if never.f1 else None) == (0.0, 0.0)
    assert (silent.precision, silent.recall, silent.f1, silent.unknown) == (None, None, None, 3)
    assert (nobody.precision, nobody.recall, nobody.f1) == (None, None, None)


def test_sessions_of_one_query_add_up_with_the_other_skills_that_they_loaded() -> None:
    first = QueryLoads(case="a", wanted=True, loaded=1, told=1, sessions=1, others={"lint": 1})
    second = QueryLoads(case="a", wanted=True, told=1, sessions=1, others={"lint": 1, "notes": 1})

    total = first + second

    assert (total.loaded, total.told, total.others) == (1, 2, {"lint": 2, "notes": 1})
    assert not total.is_right
