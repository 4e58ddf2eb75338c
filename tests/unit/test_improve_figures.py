"""What an improve run keeps of trials: scores on practice cases, and the decision on held-out ones."""

from __future__ import annotations

import pytest

from whet.decide.improve.spending import error_of_step
from whet.improve.figures import confirm_record, practice_scores, until_of
from whet.model.comparison import ArmSamples, RunSamples, Sampled, Until
from whet.record.improve.document import CURRENT, HeldOutCase, ImproveOptions

VALUES = {"p": 1.0, "f": 0.0, "e": None}


def trials(cost: float | None = None, **cases: str) -> tuple[Sampled, ...]:
    """Trials by their letters: p passed, f failed, e errored."""
    return tuple(
        Sampled(case=case, value=VALUES[letter], cost_usd=cost) for case, letters in cases.items() for letter in letters
    )


def samples(until: Until, before: tuple[Sampled, ...], after: tuple[Sampled, ...]) -> RunSamples:
    arms = (ArmSamples(arm=CURRENT, runner="r", trials=before), ArmSamples(arm="1.2", runner="r", trials=after))
    return RunSamples(name="run", arms=arms, weights={}, rounds_planned=until.rounds, error=until.error)


def alike(letters: str, cost: float | None = None, cases: int = 12) -> tuple[Sampled, ...]:
    return trials(cost, **{f"c{number}": letters for number in range(cases)})


def test_each_case_counts_alike_in_a_score_however_many_trials_it_has():
    scores = practice_scores({CURRENT: trials(a="pppp", b="f"), "new": trials(0.5, a="pf", b="pp")})

    assert (scores[CURRENT].score, scores[CURRENT].trials, scores[CURRENT].cost_usd) == (0.5, 5, None)
    assert (scores["new"].score, scores["new"].trials, scores["new"].cost_usd) == (0.75, 4, 0.5)


def test_an_errored_trial_counts_as_the_others_of_its_case_and_else_as_those_of_all_versions():
    scores = practice_scores({CURRENT: trials(a="pp", hard="fp"), "new": trials(a="pe", hard="ee")})

    assert (scores["new"].score, scores["new"].trials) == (0.75, 1)
    assert scores["new"].score == scores[CURRENT].score


def test_no_trial_at_all_is_no_score():
    assert practice_scores({CURRENT: trials(a="e")})[CURRENT].score == 0.0


OPTIONS = ImproveOptions(
    part="body", goal="better", candidates=6, rounds=1, max_cost_usd=None, accept="these", max_rounds=10
)


def test_a_confirm_step_has_its_share_of_the_error_and_a_margin_only_for_what_is_to_be_cheaper():
    cheaper = ImproveOptions(
        part="body", goal="cheaper", candidates=6, rounds=1, max_cost_usd=None, accept="these", max_rounds=20
    )

    assert until_of(OPTIONS, 0.0076) == Until(effect=0.1, rounds=10, error=0.0076)
    assert until_of(cheaper, 0.03) == Until(effect=0.1, rounds=20, margin=0.1, goal="cheaper", error=0.03)


def test_a_clear_difference_is_recorded_with_its_cases_and_no_prompt():
    until = until_of(OPTIONS, error_of_step(1))

    record = confirm_record(samples(until, alike("fff"), alike("ppp")), until, "1.2", step=1, stop="decided")

    assert (record.verdict, record.difference, record.step, record.error) == ("better", 1.0, 1, error_of_step(1))
    assert (record.looks, record.trials, record.stop, record.regressed) == (2, 72, "decided", ())
    assert record.cases[0] == HeldOutCase(case="c0", before=0.0, after=1.0)
    assert record.like_these is not None
    assert record.like_these.low > 0
    assert record.cost_ratio is None


def test_a_later_step_sees_less_in_the_same_trials():
    records = [
        confirm_record(samples(until, alike("fpff"), alike("pppf")), until, "1.2", step=step, stop="rounds")
        for step, until in ((step, until_of(OPTIONS, error_of_step(step))) for step in (1, 4))
    ]

    assert [record.difference for record in records] == [0.5, 0.5]
    assert records[1].low < records[0].low


def test_the_cost_is_compared_and_what_must_not_regress_is_looked_at():
    until = until_of(OPTIONS, error_of_step(1))
    before, after = alike("pp", cost=2.0), (*alike("pp", cost=1.0, cases=11), *trials(1.0, c11="ff"))

    record = confirm_record(samples(until, before, after), until, "1.2", step=1, stop="rounds", protected=["c11", "c0"])

    assert record.cost_ratio is not None
    assert record.cost_ratio.value == pytest.approx(0.5)
    assert record.regressed == ("c11",)


def test_without_a_case_in_both_nothing_is_decided():
    until = until_of(OPTIONS, error_of_step(1))

    record = confirm_record(samples(until, (), alike("pp")), until, "1.2", step=1, stop="money")

    assert (record.verdict, record.low, record.high, record.trials, record.cases) == ("inconclusive", -1.0, 1.0, 24, ())
