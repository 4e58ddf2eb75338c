"""Numbers that are beyond every float, or have more digits than Python writes: each reader says so, and none raises."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from whet.agents.scripted.agent import script_problems
from whet.decide.scores import Weights
from whet.errors import ConfigError, JudgeFailed, SuiteError, UsageError
from whet.grade.judge.questions import read_call
from whet.plan.settings.load import load_settings
from whet.reading.fields import is_number, is_whole
from whet.reading.text import written
from whet.suites.benchmark import read_benchmark
from whet.suites.evals.documents import read_suite, to_json
from whet.suites.format import load_suite

PACKAGE = {
    "task_id": "a",
    "case_kind": "task_package",
    "instruction": "Do it.",
    "environment_ref": "r2://registry/a.tar.gz",
    "verifier_ref": "tests/test.sh",
}
SUITE = {"name": "s", "source_kind": "manual", "verifier_kind": "llm_judge", "cases_json": [PACKAGE]}
HUGE = "1" + "0" * 400
LONGER = "1" + "0" * 5000


@pytest.mark.parametrize("value", [0, -1, 1.5, 10**308, 2**53, -1e308], ids=lambda value: f"{value:.1e}")
def test_what_can_be_counted_with_is_a_number(value: float) -> None:
    assert is_number(value)


def test_anything_else_is_none() -> None:
    others: list[Any] = [10**309, -(10**400), 10**5000, math.inf, -math.inf, math.nan, True, "1", None]

    assert not any(is_number(value) for value in others)


def test_a_whole_number_has_bounds() -> None:
    assert is_whole(1, 1)
    assert not is_whole(0, 1)
    assert not is_whole(2**53 + 1, 1)
    assert not is_whole(True, 0)
    assert not is_whole(1.0, 0)


def test_a_number_that_python_does_not_write_is_shown_all_the_same() -> None:
    assert written(12) == "12"
    assert written(10**5000) == "a number of thousands of digits"


@pytest.mark.parametrize("digits", [HUGE, LONGER], ids=len)
@pytest.mark.parametrize("field", ["timeout_ms", "max_steps", "budget_usd"])
def test_a_python_suite_says_that_a_number_is_too_large(tmp_path: Path, field: str, digits: str) -> None:
    path = tmp_path / "sample_suite.py"
    case = f"Case(id='a', prompt='p', check=ok, {field}=10**{len(digits) - 1})"
    path.write_text(f"from whet import Case\ndef ok(): pass\nsuite = [{case}]\n")

    with pytest.raises(SuiteError) as caught:
        load_suite(path)

    assert [problem.field for problem in caught.value.problems] == [field]


@pytest.mark.parametrize("digits", [HUGE, LONGER], ids=len)
@pytest.mark.parametrize("setting", ["run.max_cost_usd", "defaults.timeout_ms", "defaults.max_cpus", "composite.speed"])
def test_settings_say_that_a_number_is_too_large(tmp_path: Path, setting: str, digits: str) -> None:
    (tmp_path / "whet.toml").write_text(f"{setting} = {digits}\n")

    with pytest.raises(ConfigError) as caught:
        load_settings(tmp_path, flags={}, environ={})

    assert setting in caught.value.message
    assert len(caught.value.message) < 300 + len(str(tmp_path))


@pytest.mark.parametrize("digits", [HUGE, LONGER], ids=len)
def test_a_benchmark_says_that_a_number_is_too_large(tmp_path: Path, digits: str) -> None:
    task = {"id": "a", "description": "adds", "inputData": {"q": "1"}, "evaluator": {"type": "exact"}}
    task |= {"expectedOutput": {"type": "exact", "value": "2"}}
    whole = {"id": "m", "name": "M", "version": "1.0.0", "domain": "d", "scoringMethod": "mean", "tasks": [task]}
    path = tmp_path / "b.json"
    path.write_text(json.dumps(whole | {"maxLatencyMs": 0}).replace('"maxLatencyMs": 0', f'"maxLatencyMs": {digits}'))

    with pytest.raises(SuiteError) as caught:
        read_benchmark(path)

    assert "maxLatencyMs" in str(caught.value)


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize("digits", ["1" + "0" * 350, HUGE, LONGER], ids=len)
def test_a_bench_suite_says_that_a_number_is_too_large(tmp_path: Path, form: str, digits: str) -> None:
    path = tmp_path / f"suite.bench.{form}"
    case = {"name": "a", "prompt": "p", "expect": ["output contains x"], "timeout": 0}
    path.write_text(json.dumps({"cases": [case]}).replace('"timeout": 0', f'"timeout": {digits}'))

    with pytest.raises(SuiteError) as caught:
        load_suite(path)

    assert "timeout" in str(caught.value)


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_number_that_is_too_long_is_named_with_its_place_and_the_limit(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"suite.bench.{form}"
    case = {"name": "a", "prompt": "p", "expect": ["output contains x"], "timeout": 0}
    cases = json.dumps({"cases": [case, case | {"timeout": "here"}]}, indent=1)
    path.write_text(cases.replace('"here"', "1" * 401))

    with pytest.raises(SuiteError) as caught:
        load_suite(path)

    told = "cases[1].timeout: number is too long: it has 401 characters, and may have 400"
    assert told in str(caught.value)
    assert "line 17: " in str(caught.value)


def test_an_eval_suite_says_that_a_number_is_too_large() -> None:
    with pytest.raises(SuiteError) as caught:
        read_suite({**SUITE, "cases_json": [{**PACKAGE, "weight": int(HUGE)}]})

    assert "weight" in str(caught.value)


def test_an_eval_suite_gives_numbers_back_as_they_were_written() -> None:
    hints = {"timeout_ms": 120_000}
    written_so = {**SUITE, "cases_json": [{**PACKAGE, "resource_hints": hints}], "resource_limits_json": hints}

    back = json.dumps(to_json(read_suite(written_so)))

    assert back.count('"timeout_ms": 120000') == 2
    assert "120000.0" not in back


def test_a_script_a_judge_and_a_composite_say_so_too(tmp_path: Path) -> None:
    script = tmp_path / "a.json"
    script.write_text(json.dumps([{"wait_s": int(HUGE)}, {"usage": {"input_tokens": int(HUGE)}}]))

    assert len(list(script_problems(script))) == 2
    with pytest.raises(JudgeFailed):
        read_call({"rating": int(HUGE)})
    with pytest.raises(UsageError):
        Weights(speed=int(HUGE))
