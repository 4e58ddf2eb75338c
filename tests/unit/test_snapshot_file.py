"""Snapshots of usage: what is compared with what, and when a file may be written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from whet.errors import StoreError, UsageError
from whet.model.run import METRICS, Execution, Plan, Runner, SnapshotOutcome, TrialKey, TrialResult
from whet.model.session import Usage
from whet.model.suite import Case, Limits, Suite, WorkspaceSpec
from whet.record.snapshots import SnapshotFile, SnapshotRule, snapshot_rule

RUNNER = Runner(id="demo", agent="scripted", model="small")
CASE = Case(id="fix-it", prompt="Go.", checks=())
EXECUTION = Execution(
    case=CASE, runner=RUNNER, arm="default", limits=Limits(), workspace=WorkspaceSpec(mode="isolated"), trials=2
)
KEY = "shop.py::fix-it@demo/default"


@pytest.fixture
def rule(tmp_path: Path) -> SnapshotRule:
    return SnapshotRule(
        path=tmp_path / "whet.snapshots.json",
        base=tmp_path,
        metric="total_tokens",
        absolute=None,
        percent=10,
        update=False,
        create=True,
    )


def _result(usage: Usage, duration_s: float = 1.0) -> TrialResult:
    return TrialResult(
        key=TrialKey(suite="shop", case="fix-it", runner="demo", arm="default", number=1),
        status="passed",
        score=1.0,
        duration_s=duration_s,
        started_at="2026-01-05T10:15:30.000+00:00",
        artifact_dir="trials/x",
        usage=usage,
    )


def _tokens(*totals: int | None) -> list[TrialResult]:
    return [_result(Usage(input_tokens=total, output_tokens=0)) for total in totals]


def _compare(rule: SnapshotRule, *totals: int | None, execution: Execution = EXECUTION) -> SnapshotOutcome:
    """One run: what is stored is read, compared and written again."""
    file = SnapshotFile(rule)
    outcome = file.compare(_plan(rule.base), execution, _tokens(*totals))
    file.save()
    return outcome


def _execution(case: str, runner: str = "demo") -> Execution:
    return replace(EXECUTION, case=replace(CASE, id=case), runner=replace(RUNNER, id=runner))


def _plan(tmp_path: Path, *cases: str, source: str = "shop.py") -> Plan:
    made = tuple(replace(CASE, id=name) for name in cases)
    suite = Suite(name=Path(source).stem, source=tmp_path / source, cases=made, digest="")
    return Plan(
        suite=suite, executions=(EXECUTION,), schedule="serial", max_parallel=1, retries=0, check_timeout_s=30.0
    )


def _rule(settings: Mapping[str, Any] | None, *, update: bool = False, **environ: str) -> SnapshotRule | None:
    return snapshot_rule(settings, default_dir=Path("/project"), update=update, environ=environ)


def test_without_settings_there_is_nothing_to_hold_to() -> None:
    assert _rule(None) is None


def test_updating_without_settings_is_a_mistake_that_is_told() -> None:
    with pytest.raises(UsageError, match=r"--update-snapshots needs \[snapshots\]"):
        _rule(None, update=True)


def test_the_file_lies_beside_the_settings_and_holds_all_tokens_unless_told_otherwise() -> None:
    plain = _rule({"tolerance": {"absolute": 5}})
    other = _rule({"tolerance": {"percent": 5}, "path": "/elsewhere/s.json", "metric": "cost_usd"})

    assert plain is not None
    assert other is not None
    assert (plain.path, plain.metric) == (Path("/project/whet.snapshots.json"), "total_tokens")
    assert (other.path, other.metric) == (Path("/elsewhere/s.json"), "cost_usd")


@pytest.mark.parametrize(("value", "create"), [("", True), ("0", True), ("False", True), ("1", False), ("true", False)])
def test_in_ci_a_snapshot_is_only_made_where_it_is_asked_for(value: str, create: bool) -> None:
    rule = _rule({"tolerance": {"percent": 5}}, CI=value)
    updating = _rule({"tolerance": {"percent": 5}}, update=True, CI=value)

    assert rule is not None
    assert updating is not None
    assert rule.create is create
    assert updating.create is True


@pytest.mark.parametrize(
    ("absolute", "percent", "allowed"),
    [(5, None, 105), (None, 10, 110), (5, 10, 105), (50, 10, 110), (0, None, 100), (None, 0, 100)],
)
def test_every_tolerance_that_is_given_must_hold(
    rule: SnapshotRule, absolute: float | None, percent: float | None, allowed: float
) -> None:
    found = replace(rule, absolute=absolute, percent=percent).limit_for(100)

    assert found == pytest.approx(allowed)


def test_the_first_figure_is_taken_and_later_ones_are_held_to_it(rule: SnapshotRule) -> None:
    created = _compare(rule, 100)
    held = _compare(rule, 110)

    assert (created.status, created.value, created.stored, created.verdict) == ("created", 100, None, None)
    assert created.message == "total_tokens is now 100"
    assert (held.status, held.value, held.stored, held.verdict) == ("held", 110, 100, None)
    assert held.allowed == pytest.approx(110)


def test_more_than_is_allowed_fails_and_says_by_how_much(rule: SnapshotRule) -> None:
    _compare(rule, 200)

    outcome = _compare(rule, 250)

    assert (outcome.status, outcome.verdict) == ("exceeded", "failed")
    told = "total_tokens is 250, allowed 220: +50 (+25.0 %) over the snapshot of 200"
    assert outcome.message == f"{told} (--update-snapshots takes the new one)"


def test_less_than_before_holds(rule: SnapshotRule) -> None:
    _compare(rule, 200)

    assert _compare(rule, 3).status == "held"


def test_a_figure_of_nothing_is_held_to_as_well(rule: SnapshotRule) -> None:
    _compare(rule, 0)

    outcome = _compare(rule, 7)

    assert (
        outcome.message
        == "total_tokens is 7, allowed 0: +7 over the snapshot of 0 (--update-snapshots takes the new one)"
    )


def test_large_figures_are_written_out(rule: SnapshotRule) -> None:
    exact = replace(rule, absolute=0, percent=None)
    _compare(exact, 1_234_567)

    outcome = _compare(exact, 1_234_568)

    assert "1234568" in outcome.message.replace(",", "")
    assert "1234567" in outcome.message.replace(",", "")


def test_the_mean_over_the_trials_is_compared(rule: SnapshotRule) -> None:
    _compare(rule, 100, 100)

    held, exceeded = _compare(rule, 60, 150), _compare(rule, 60, 170)

    assert (held.status, held.value) == ("held", 105)
    assert (exceeded.status, exceeded.value) == ("exceeded", 115)


def test_a_figure_that_one_trial_does_not_tell_is_unavailable(rule: SnapshotRule) -> None:
    outcome = _compare(rule, 100, None)

    assert (outcome.status, outcome.value, outcome.verdict) == ("unavailable", None, "errored")
    assert outcome.message == "scripted does not report total_tokens"
    assert not rule.path.exists()


def test_a_missing_snapshot_is_not_made_up_where_that_is_not_allowed(rule: SnapshotRule) -> None:
    outcome = _compare(replace(rule, create=False), 100)

    assert (outcome.status, outcome.value, outcome.verdict) == ("missing", 100, "errored")
    assert "--update-snapshots" in outcome.message
    assert not rule.path.exists()


def test_updating_takes_the_new_figure(rule: SnapshotRule) -> None:
    _compare(rule, 100)

    outcome = _compare(replace(rule, update=True), 500)

    assert (outcome.status, outcome.value, outcome.stored, outcome.verdict) == ("updated", 500, 100, None)
    assert _compare(rule, 500).status == "held"


@pytest.mark.parametrize(
    ("what", "changed", "message"),
    [
        ("model", Runner(id="demo", agent="scripted", model="large"), "of model small, this run of large"),
        ("model", Runner(id="demo", agent="scripted"), "of model small, this run of none"),
        ("agent", Runner(id="demo", agent="command", model="small"), "of agent scripted, this run of command"),
    ],
)
def test_another_model_or_agent_is_never_compared(rule: SnapshotRule, what: str, changed: Runner, message: str) -> None:
    _compare(rule, 100)

    outcome = _compare(rule, 100, execution=replace(EXECUTION, runner=changed))

    assert (outcome.status, outcome.verdict) == ("mismatch", "errored")
    assert message in outcome.message
    assert outcome.message.endswith("(--update-snapshots takes a new one)")


def test_another_metric_is_never_compared(rule: SnapshotRule) -> None:
    _compare(rule, 100)

    outcome = _compare(replace(rule, metric="input_tokens"), 100)

    assert (outcome.status, outcome.metric, outcome.verdict) == ("mismatch", "input_tokens", "errored")
    assert "of metric total_tokens, this run of input_tokens" in outcome.message


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_can_be_taken(rule: SnapshotRule, metric: Any) -> None:
    usage = Usage(
        input_tokens=8, output_tokens=2, cached_tokens=3, cache_write_tokens=4, reasoning_tokens=1, cost_usd=0.5
    )
    expected = {"total_tokens": 10, "input_tokens": 8, "output_tokens": 2, "cached_tokens": 3}
    expected |= {"cache_write_tokens": 4, "reasoning_tokens": 1}
    expected |= {"uncached_input_tokens": 5, "uncached_tokens": 7}
    file = SnapshotFile(replace(rule, metric=metric))

    outcome = file.compare(_plan(rule.base), EXECUTION, [_result(usage, duration_s=2.5)])

    assert outcome.value == (expected | {"cost_usd": 0.5, "duration_s": 2.5})[metric]


@pytest.mark.parametrize("metric", ["uncached_tokens", "uncached_input_tokens"])
def test_what_was_read_from_a_cache_cannot_be_left_out_where_it_is_not_told_or_guessed(
    rule: SnapshotRule, metric: Any
) -> None:
    file = SnapshotFile(replace(rule, metric=metric))
    untold = _result(Usage(input_tokens=8, output_tokens=2))
    guess = _result(Usage(input_tokens=8, output_tokens=2, cached_tokens=0, sources={"input_tokens": "chars"}))

    found = [file.compare(_plan(rule.base), EXECUTION, [result]).status for result in (untold, guess)]

    assert found == ["unavailable", "unavailable"]


def test_the_file_is_sorted_readable_and_keeps_what_was_not_run(rule: SnapshotRule) -> None:
    for case in ("b", "a"):
        file = SnapshotFile(rule)
        file.compare(_plan(rule.base), _execution(case), _tokens(100, 102))
        file.save()

    document = json.loads(rule.path.read_text())

    assert document["version"] == 1
    assert list(document["entries"]) == ["shop.py::a@demo/default", "shop.py::b@demo/default"]
    entry = document["entries"]["shop.py::a@demo/default"]
    assert entry.pop("updated_at")
    assert entry == {"metric": "total_tokens", "value": 101.0, "agent": "scripted", "model": "small", "trials": 2}


def test_a_file_in_which_nothing_is_new_is_not_written(rule: SnapshotRule) -> None:
    _compare(rule, 100)
    before = rule.path.stat().st_mtime_ns

    _compare(rule, 100)

    assert rule.path.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a snapshot file"),
        ("{", "is not a snapshot file"),
        ("[]", "is not a snapshot file"),
        ('{"entries": {}}', "is not a snapshot file"),
        ('{"version": 1, "entries": {"a": {"metric": "total_tokens"}}}', "is not a snapshot file"),
        ('{"version": 2, "entries": {}}', "has version 2, and this whet reads 1"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_by_name(rule: SnapshotRule, text: str, message: str) -> None:
    rule.path.write_text(text)

    with pytest.raises(UsageError, match=message) as caught:
        SnapshotFile(rule)

    assert str(rule.path) in str(caught.value)


def test_a_folder_in_place_of_the_file_is_refused_by_name(rule: SnapshotRule) -> None:
    rule.path.mkdir()

    with pytest.raises(UsageError, match="is not a snapshot file"):
        SnapshotFile(rule)


def test_entries_of_this_suite_that_nothing_answers_to_are_unused(rule: SnapshotRule, tmp_path: Path) -> None:
    file = SnapshotFile(rule)
    for execution in (EXECUTION, _execution("gone"), _execution("fix-it", "old")):
        file.compare(_plan(tmp_path), execution, _tokens(1))
    file.compare(_plan(tmp_path, source="bar.py"), _execution("x"), _tokens(1))

    unused = list(file.find_unused(_plan(tmp_path, "fix-it"), frozenset({"demo", "other"})))

    assert unused == ["shop.py::gone@demo/default", "shop.py::fix-it@old/default"]


def test_two_suites_of_one_name_have_entries_of_their_own(rule: SnapshotRule, tmp_path: Path) -> None:
    one, other = (_plan(tmp_path, case, source=f"{place}/suite.py") for place, case in (("a", "x"), ("b", "y")))
    file = SnapshotFile(rule)

    keys = [file.compare(one, _execution("x"), _tokens(1)).key, file.compare(other, _execution("y"), _tokens(9)).key]

    assert keys == ["a/suite.py::x@demo/default", "b/suite.py::y@demo/default"]
    assert list(file.find_unused(one, frozenset({"demo"}))) == list(file.find_unused(other, frozenset({"demo"}))) == []


def test_names_with_at_signs_and_colons_are_told_apart(rule: SnapshotRule, tmp_path: Path) -> None:
    file = SnapshotFile(rule)
    file.compare(_plan(tmp_path), _execution("a@b::c"), _tokens(1))

    assert list(file.find_unused(_plan(tmp_path, "a@b::c"), frozenset({"demo"}))) == []


def test_runs_at_the_same_time_keep_each_other_s_figures(rule: SnapshotRule) -> None:
    files = [SnapshotFile(rule) for _ in range(8)]
    for number, file in enumerate(files):
        file.compare(_plan(rule.base), _execution(f"case-{number}"), _tokens(100))

    with ThreadPoolExecutor(len(files)) as pool:
        list(pool.map(SnapshotFile.save, files))

    assert len(json.loads(rule.path.read_text())["entries"]) == len(files)


def test_a_file_that_was_spoiled_during_a_run_is_not_overwritten(rule: SnapshotRule) -> None:
    file = SnapshotFile(rule)
    file.compare(_plan(rule.base), EXECUTION, _tokens(100))
    rule.path.write_text("{")

    with pytest.raises(StoreError, match="is not a snapshot file"):
        file.save()

    assert rule.path.read_text() == "{"
