"""What samples say about a skill: rates, scores, chances and one composite, held against brute force."""

from __future__ import annotations

import itertools
import statistics
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from whet.callable._summary import consistency_of, percentile, rate, summarize
from whet.callable.run import sample_of
from whet.decide.resampling import bootstrap, paired_difference, pass_at_k, pass_hat_k, t_quantile
from whet.decide.scores import Weights, wilson
from whet.errors import UsageError
from whet.model.callable import BenchmarkTask, Evaluator, Expected, Sample, SampleStatus
from whet.model.grade import Failure, Grade
from whet.model.run import TrialKey, TrialResult
from whet.run.attempt.record import AttemptRecord
from whet.run.attempt.trial import verdict

STATUSES: list[SampleStatus] = list(get_args(SampleStatus))


def sample(task: str, status: SampleStatus = "pass", run: int = 1, **more: float) -> Sample:
    answered = status in {"pass", "fail"}
    values: dict[str, float] = {"score": 1.0 if status == "pass" else 0.0, **more}
    latency = values.pop("latency_ms", 100.0)
    return Sample(task=task, run=run, status=status, latency_ms=latency if answered else None, **values)


samples_of_any_kind = st.lists(
    st.builds(
        sample,
        st.sampled_from("abcde"),
        st.sampled_from(STATUSES),
        run=st.integers(1, 3),
        latency_ms=st.floats(0, 60_000),
    ),
    max_size=25,
)


@given(n=st.integers(1, 9), data=st.data())
def test_the_chances_of_k_tries_are_those_of_every_possible_draw(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    draws = list(itertools.combinations([True] * c + [False] * (n - c), k))

    one, every = pass_at_k(n, c, k), pass_hat_k(n, c, k)

    assert one == pytest.approx(sum(map(any, draws)) / len(draws))
    assert every == pytest.approx(sum(map(all, draws)) / len(draws))


def test_more_tries_than_there_were_are_refused() -> None:
    with pytest.raises(ValueError, match="3 of 2"):
        pass_at_k(2, 1, 3)


def test_a_task_with_too_few_tries_is_left_out_of_the_chance_and_named() -> None:
    samples = [sample("a", run=1), sample("a", "fail", run=2), sample("b", run=1), sample("b", "errored", run=2)]

    summary = summarize(samples, scoring="pass_at_k", ks=(2,))

    assert summary.score == 1.0
    assert (summary.passes[0].at, summary.passes[0].all) == (1.0, 0.0)
    assert summary.passes[0].left_out == ("b",)


def test_a_mean_is_over_samples_and_a_weighted_one_over_weights() -> None:
    samples = [sample("a", weight=3), sample("b", "fail", score=0.5)]

    assert summarize(samples).score == 0.75
    assert summarize(samples, scoring="weighted_mean").score == 0.875
    assert summarize([sample("a", weight=0)], scoring="weighted_mean").score is None


def test_what_is_errored_counts_nowhere_but_in_its_own_number() -> None:
    samples = [sample("a"), sample("b", "errored")]

    summary = summarize(samples)

    assert (summary.samples, summary.errored) == (2, 1)
    assert summary.completion is not None
    assert (summary.completion.value, summary.score) == (1.0, 1.0)


def test_nothing_but_errored_samples_gives_no_figures() -> None:
    summary = summarize([sample("a", "errored")])

    assert (summary.completion, summary.score, summary.composite, summary.latency) == (None, None, None, None)


def test_the_error_rate_counts_errors_and_timeouts() -> None:
    summary = summarize([sample("a"), sample("b", "error"), sample("c", "timeout"), sample("d", "fail")])

    assert summary.error_rate is not None
    assert summary.error_rate.value == 0.5


def test_the_composite_has_the_usual_weights() -> None:
    samples = [sample("a", latency_ms=3000), sample("b", "fail", latency_ms=3000)]

    summary = summarize(samples, max_latency_ms=30_000)

    assert summary.composite == pytest.approx(0.5 * 0.5 + 0.2 * 0.9 + 0.3 * 1.0)


def test_a_skill_that_never_answers_has_a_composite_of_nothing() -> None:
    summary = summarize([sample("a", "error"), sample("b", "timeout")], weights=Weights(consistency=1))

    assert summary.composite == 0


@given(samples=samples_of_any_kind, data=st.data(), consistency=st.sampled_from([0.0, 1.0]))
def test_not_answering_never_raises_the_composite(
    samples: list[Sample], data: st.DataObject, consistency: float
) -> None:
    wrong = [index for index, each in enumerate(samples) if each.status == "fail"]
    if not wrong:
        return
    place = data.draw(st.sampled_from(wrong))
    silent = [replace(each, status="error", latency_ms=None) if i == place else each for i, each in enumerate(samples)]

    before = summarize(samples, weights=Weights(consistency=consistency)).composite
    after = summarize(silent, weights=Weights(consistency=consistency)).composite

    assert before is not None
    assert after is not None
    assert after <= before + 1e-12


@given(samples=samples_of_any_kind)
def test_every_figure_stays_between_0_and_1_and_in_its_interval(samples: list[Sample]) -> None:
    summary = summarize(samples)

    for interval in (summary.completion, summary.error_rate, summary.score_interval):
        assert interval is None or -1e-9 <= interval.low <= interval.value <= interval.high <= 1 + 1e-9
    assert summary.composite is None or 0 <= summary.composite <= 1


@pytest.mark.parametrize("weights", [{"completion": -1}, {"completion": float("nan")}])
def test_weights_that_mean_nothing_are_refused(weights: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="at least 0"):
        Weights(**weights)


def test_with_one_run_a_rate_is_wilsons() -> None:
    samples = [sample(str(number), "pass" if number < 8 else "fail") for number in range(10)]

    found = rate(samples, lambda each: each.status == "pass")

    assert found is not None
    assert (found.low, found.high) == (wilson(8, 10).low, wilson(8, 10).high)


def test_runs_that_agree_with_one_another_do_not_narrow_a_rate() -> None:
    once = [sample(str(number), "pass" if number < 8 else "fail") for number in range(10)]
    often = [replace(each, run=run) for each in once for run in range(1, 6)]

    narrow, wide = (rate(samples, lambda each: each.status == "pass") for samples in (once, often))

    assert narrow is not None
    assert wide is not None
    assert wide.high - wide.low == pytest.approx(narrow.high - narrow.low, rel=0.06)


def test_runs_that_differ_on_their_own_do_narrow_a_rate() -> None:
    spread = [sample(str(task), "pass" if run % 2 else "fail", run=run) for task in range(10) for run in range(1, 11)]

    found = rate(spread, lambda each: each.status == "pass")

    assert found is not None
    assert (found.low, found.high) == (wilson(50, 100).low, wilson(50, 100).high)


def test_runs_that_all_pass_count_as_their_tasks() -> None:
    samples = [sample(str(task), run=run) for task in range(10) for run in range(1, 11)]

    found = rate(samples, lambda each: each.status == "pass")

    assert found is not None
    assert found.low == wilson(10, 10).low


def test_consistency_falls_with_the_spread_of_the_runs() -> None:
    apart = [sample("a", run=1), sample("a", "fail", run=2)]

    assert consistency_of(apart) == 0.5
    assert consistency_of([sample("a", run=1), sample("a", run=2)]) == 1
    assert consistency_of([sample("a")]) is None


@given(values=st.lists(st.floats(0, 1e6), min_size=1, max_size=50), share=st.floats(0.01, 1))
def test_a_percentile_is_the_least_value_that_enough_do_not_exceed(values: list[float], share: float) -> None:
    found = percentile(values, share)

    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9
    assert sum(value < found for value in values) < share * len(values) + 1e-9


def test_resampling_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    clusters = [(value / 10, 1.0) for value in range(10)]

    assert bootstrap(clusters, seed=1) == bootstrap(clusters, seed=1)
    assert bootstrap(clusters, seed=1) != bootstrap(clusters, seed=2)


def test_an_interval_by_resampling_covers_about_as_often_as_it_says() -> None:
    import random

    source = random.Random(7)
    held = 0
    for trial in range(200):
        found = bootstrap([(source.random(), 1.0) for _ in range(8)], seed=trial, resamples=400)
        assert found is not None
        held += found.low <= 0.5 <= found.high

    # Plain percentiles of eight tasks would hold in about 88 of 100.
    assert 180 <= held <= 199


def test_one_task_has_no_interval() -> None:
    assert bootstrap([(1.0, 1.0)]) is None
    assert summarize([sample("a"), sample("a", run=2)]).score_interval is None


@pytest.mark.parametrize(("degrees", "value"), [(1, 12.7062), (2, 4.3027), (9, 2.2622), (30, 2.0423), (1000, 1.9623)])
def test_the_quantiles_of_t_are_those_of_the_tables(degrees: int, value: float) -> None:
    assert t_quantile(0.975, degrees) == pytest.approx(value, abs=1e-4)


@pytest.mark.parametrize(("share", "value"), [(0.6, 0.2602), (0.75, 0.6998), (0.9, 1.3722), (0.999, 4.1437)])
def test_the_quantiles_of_t_are_those_of_the_tables_for_every_share(share: float, value: float) -> None:
    assert t_quantile(share, 10) == pytest.approx(value, abs=1e-4)


def test_a_difference_is_paired_by_task() -> None:
    before = {"a": [0.0, 1.0], "b": [1.0], "c": [0.5], "gone": [1.0]}
    after = {"a": [1.0, 1.0], "b": [0.0], "c": [0.5], "new": [1.0]}

    found = paired_difference(before, after)

    assert found is not None
    assert found.value == pytest.approx(statistics.mean([0.5, -1.0, 0.0]))
    assert (found.better, found.worse) == (("a",), ("b",))
    assert (found.only_before, found.only_after) == (("gone",), ("new",))
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.value <= found.high


def test_a_difference_of_equals_is_nothing_and_of_strangers_is_not_known() -> None:
    same = {"a": [1.0], "b": [0.0]}

    found = paired_difference(same, same)

    assert found is not None
    assert found.value == 0
    assert found.low is not None
    assert found.high is not None
    # Two calls that happen to agree are no proof that nothing changed.
    assert found.low < 0 < found.high
    assert paired_difference(same, {"z": [1.0]}) is None


@pytest.mark.parametrize(
    ("passed", "failure", "status"),
    [
        (True, None, "pass"),
        (False, ("check", "assertion", "agent"), "fail"),
        (None, ("agent", "skill-failed", "agent"), "error"),
        (None, ("agent", "agent-crashed", "agent"), "error"),
        (None, ("agent", "timeout", "agent"), "timeout"),
        (None, ("check", "grader", "suite"), "errored"),
        (None, ("check", "judge", "provider"), "errored"),
        (None, ("start", "skill-unreachable", "infrastructure"), "errored"),
    ],
)
def test_the_end_of_a_trial_says_what_its_sample_is(
    passed: bool | None, failure: tuple[str, str, str] | None, status: str
) -> None:
    key = TrialKey(suite="b", case="t", runner="skill", arm="default", number=2)
    task = BenchmarkTask(
        id="t", description="", input={}, expected=Expected(), evaluator=Evaluator(kind="exact"), weight=3.0
    )
    grades = [] if passed is None else [Grade(check="exact", value=float(passed), passed=passed, weight=3)]
    given = Failure(phase=failure[0], code=failure[1], cause=failure[2], message="why") if failure else None
    record = AttemptRecord(runner="skill", number=1, artifact_dir="", grades=grades, failure=given)
    result = TrialResult(
        key=key,
        status=verdict(record, expected_fail=False),
        score=float(passed or 0),
        duration_s=1.0,
        started_at="",
        artifact_dir="",
        grades=tuple(grades),
        failure=given,
        session_s=0.005,
    )

    found = sample_of(result, task, Path())

    assert (found.status, found.run, found.weight) == (status, 2, 3.0)
    assert found.score == float(passed or 0)
    assert found.latency_ms == (5.0 if status in {"pass", "fail"} else None)
    assert found.error == (None if status in {"pass", "fail"} else "why")


def test_many_tasks_have_the_interval_that_resampling_them_would_give() -> None:
    clusters = [(float(number % 4 == 0), 1.0) for number in range(400)]

    found = bootstrap(clusters)
    few = bootstrap(clusters[:196])

    assert found is not None
    assert few is not None
    assert found.value == 0.25
    assert found.high - found.low == pytest.approx((few.high - few.low) * (196 / 400) ** 0.5, rel=0.15)


def test_scores_that_are_all_alike_do_not_pretend_to_be_certain() -> None:
    alike = summarize([sample(f"t{number}") for number in range(20)])

    found = alike.score_interval
    assert found is not None
    assert (found.value, found.high) == (1, 1)
    assert found.low == pytest.approx(alike.completion.low if alike.completion else 0)
