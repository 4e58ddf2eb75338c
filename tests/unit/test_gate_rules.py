"""What gates and comparisons take into account: one error for several, looks at costs, and runs that do not count."""

from __future__ import annotations

import pytest

from whet.decide.comparison import compare_arms
from whet.decide.gate import count_passes_only, more_for_rate, rates_of
from whet.decide.goals import amounts_of
from whet.errors import UsageError
from whet.model.comparison import ArmSamples, RunSamples, Sampled
from whet.report.decisions.between_runs import compare_across
from whet.report.decisions.words import sentence


def _trials(passing: int, *, held: bool | None = None, score: float = 1.0) -> tuple[Sampled, ...]:
    """Return trials of 20 cases, of which so many of five pass in each."""
    return tuple(
        Sampled(case=str(case), value=score * (number < passing), held=held, cost_usd=1.0 + number)
        for case in range(20)
        for number in range(5)
    )


def _run(name: str, *arms: tuple[str, str, tuple[Sampled, ...]], selected_from: tuple[str, ...] = ()) -> RunSamples:
    return RunSamples(
        name=name,
        arms=tuple(ArmSamples(arm=arm, runner=runner, trials=trials) for arm, runner, trials in arms),
        weights={str(case): 1.0 for case in range(20)},
        runs=(name,),
        selected_from=selected_from,
    )


def test_an_arm_that_is_worse_by_less_than_you_allow_is_said_to_be_worse():
    found = compare_arms(_trials(5), _trials(4), names=("old", "new"), margin=0.5)

    assert found is not None
    assert (found.verdict, found.high < 0) == ("not-worse", True)
    assert sentence(found).startswith("new is worse than old, but by less than the 50 points that you allow: -20 ")


def test_a_rate_is_the_share_of_trials_that_pass_whatever_their_scores_are():
    scored = _run("run", ("only", "r", _trials(5, held=False, score=0.75)))

    rate, score = (rates_of(samples)["only", "r"].value for samples in (count_passes_only(scored), scored))

    assert (rate, score) == (0.0, pytest.approx(0.75))


@pytest.mark.parametrize("shared", [False, True])
def test_what_failed_in_a_run_is_compared_with_it_in_neither_order(shared: bool):
    whole = _run("whole", ("a", "r", _trials(3)))
    again = _run("again", ("a", "r", _trials(4)), selected_from=("whole",))

    for pair in ((whole, again), (again, whole)):
        with pytest.raises(UsageError, match="again ran only what failed in whole"):
            compare_across(*pair, margin=0.05, shared=shared)


def test_looks_and_candidates_widen_what_is_known_of_costs():
    once, often = (next(iter(amounts_of(_trials(5), _trials(4), z))).ratio for z in (1.96, 3.0))

    assert once is not None
    assert often is not None
    assert often.low < once.low < once.value == often.value < once.high < often.high


def test_rates_of_several_runners_share_one_error_unless_each_is_to_have_its_own():
    alone = _run("run", ("only", "left", _trials(4)))
    three = _run("run", *(("only", runner, _trials(4)) for runner in ("left", "middle", "right")))

    one, shared, apart = (
        rates_of(samples, per_runner=per_runner)["only", "left"]
        for samples, per_runner in ((alone, False), (three, False), (three, True))
    )

    assert shared.low < one.low < one.high < shared.high
    assert apart == one


def test_a_baseline_takes_no_part_of_the_error_that_rates_share():
    trials = _trials(4)
    alone, beside = (
        _run("run", *arms) for arms in ([("new", "r", trials)], [("old", "r", trials), ("new", "r", trials)])
    )

    assert rates_of(alone)["new", "r"] == rates_of(beside)["new", "r"]


def test_rates_that_share_one_error_take_more_trials_to_decide():
    samples = _run("run", ("only", "left", _trials(4)))
    rate = rates_of(samples)["only", "left"]

    alone, beside = (more_for_rate(rate, 0.75, samples, parallel=1, sharing=sharing) for sharing in (1, 3))

    assert alone is not None
    assert beside is not None
    assert beside.trials > alone.trials
