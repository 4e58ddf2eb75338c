"""The word that a run of arms ends in, for pages, lists and the terminal alike."""

from __future__ import annotations

from msgspec import convert
from msgspec.structs import replace

from whet.model.comparison import Aim, Comparison
from whet.report.decisions.verdicts import decided, word_of

RATE = {"value": 0.5, "low": 0.4, "high": 0.6}
PLAIN = convert(
    {
        "baseline": "old",
        "candidate": "new",
        "verdict": "better",
        "difference": 0.2,
        "low": 0.1,
        "high": 0.3,
        "margin": 0.05,
        "level": 0.95,
        "like_these": None,
        "baseline_rate": RATE,
        "candidate_rate": RATE,
        "cases": [],
        "amounts": [],
        "errored": {
            "baseline": 0,
            "candidate": 0,
            "if_failed": RATE,
            "if_passed": RATE,
            "decisive": False,
        },
        "spread": 0.0,
        "trials": 4,
    },
    Comparison,
)


def made(candidate: str, verdict: str, difference: float, runner: str | None = None) -> Comparison:
    return replace(PLAIN, candidate=candidate, verdict=verdict, difference=difference, runner=runner)


def test_the_best_candidate_speaks_first_whatever_stood_first() -> None:
    found = decided([made("small", "inconclusive", -0.09), made("large", "better", 0.3), made("huge", "worse", -0.4)])

    assert [each.candidate for each in found] == ["large", "small", "huge"]


def test_a_candidate_on_several_runners_is_as_good_as_where_it_is_worst() -> None:
    (found,) = decided([made("new", "better", 0.3, "one"), made("new", "worse", -0.2, "two")])

    assert (found.runner, found.verdict) == ("two", "worse")


def test_a_goal_names_what_was_reached_and_a_loss_comes_before_it() -> None:
    def aimed(verdict: str, progress: str) -> Comparison:
        aim = convert({"goal": "cheaper", "amount": "cost_usd", "ratio": None, "progress": progress}, Aim)
        return replace(PLAIN, verdict=verdict, aim=aim)

    words = [word_of(aimed("not-worse", progress)) for progress in ("reached", "missed", "open")]

    assert words == ["cheaper", "dearer", "inconclusive"]
    assert word_of(aimed("worse", "missed")) == "worse"
    assert word_of(PLAIN) == "better"
