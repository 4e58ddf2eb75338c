"""Evaluators: what passes, what half passes, and what is an error of the evaluator and no 0 of the skill."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet import plugins
from whet.checks.context import Shell
from whet.errors import CheckTimedOut, GraderError, UsageError
from whet.grade.answers.compare import contains, exact, json_schema, regex
from whet.grade.answers.evaluators import find_scorer
from whet.grade.contract import grader_class
from whet.grade.evidence import Evidence, GradedAnswer
from whet.model.callable import BenchmarkTask, Evaluator, Expected
from whet.model.grade import Changes, Grade
from whet.model.session import SessionSummary
from whet.model.suite import Case, Check, Suite

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def is_exact(output: Any, value: Any, **how: Any) -> bool:
    settings = {"case_sensitive": True, **how}
    return exact(output, Expected(value=value), Evaluator(kind="exact", **settings)).passed


@given(value=JSON)
def test_every_value_is_exactly_itself_also_when_it_is_wrapped(value: Any) -> None:
    assert is_exact(value, value)
    assert is_exact({"result": value}, value)


@pytest.mark.parametrize("wrapper", ["result", "output", "answer"])
def test_an_answer_may_be_wrapped_once(wrapper: str) -> None:
    assert is_exact({wrapper: 2, "other": 3}, 2)
    assert not is_exact({wrapper: {wrapper: 2}}, 2)


@pytest.mark.parametrize(
    ("output", "value"),
    [
        ("2", 2),
        (True, 1),
        (1, True),
        (None, "null"),
        ({}, {"a": 1}),
        ({"b": 1}, {"a": 1}),
        ([1, 2], [2, 1]),
        ("", None),
    ],
)
def test_values_of_different_types_or_content_are_not_equal(output: Any, value: Any) -> None:
    assert not is_exact(output, value)


def test_a_number_is_a_number_however_it_is_written() -> None:
    assert is_exact({"result": 25.0}, 25)
    assert is_exact(0.1 + 0.2, 0.3, tolerance=1e-9)
    assert not is_exact(0.1 + 0.2, 0.3)


def test_as_text_numbers_and_strings_are_alike_and_objects_are_not_all_the_same() -> None:
    assert is_exact({"result": 2}, " 2 ", compare="text")
    # Where a number is expected, it is one however it is written.
    assert is_exact({"result": "25.0"}, 25, compare="text")
    assert is_exact("2.50e1", 25, compare="text")
    assert not is_exact("25.01", 25, compare="text")
    assert not is_exact("25.0", "25", compare="text")
    assert not is_exact("25 or so", 25, compare="text")
    assert is_exact({"result": 25.0}, "25", compare="text")
    assert not is_exact({"result": {"a": 1}}, {"a": 2}, compare="text")


def test_a_difference_of_type_alone_is_explained() -> None:
    grade = exact({"result": 2}, Expected(value="2"), Evaluator(kind="exact"))

    assert grade.reason.startswith('expected "2" (string), got 2 (number)')
    assert '"compare": "text" would accept' in grade.reason


def test_case_is_looked_at_as_the_task_says() -> None:
    assert is_exact("ABC", "abc", case_sensitive=False)
    assert not is_exact("ABC", "abc")


def test_keywords_give_their_share() -> None:
    expected = Expected(keywords=("Hinton", "Hopfield"))

    grade = contains({"result": "geoffrey HINTON"}, expected, Evaluator(kind="contains"))

    assert (grade.value, grade.passed) == (0.5, False)
    assert grade.reason == '1 of 2; missing: "Hopfield"'
    assert contains("Hinton", expected, Evaluator(kind="contains", case_sensitive=True)).value == 0.5
    assert contains("hinton", expected, Evaluator(kind="contains", case_sensitive=True)).value == 0


def test_the_name_of_the_wrapper_is_not_part_of_the_answer() -> None:
    grade = contains({"result": "nothing"}, Expected(keywords=("result",)), Evaluator(kind="contains"))

    assert not grade.passed


def test_patterns_are_searched_with_or_without_regard_to_case() -> None:
    expected = Expected(patterns=(r"^a\d+$", "B"))

    assert regex("a12", expected, Evaluator(kind="regex", case_sensitive=True)).value == 0.5
    assert regex("ab", Expected(patterns=("B",)), Evaluator(kind="regex", case_sensitive=False)).passed


def test_a_schema_is_held_against_the_whole_answer_and_says_what_is_wrong() -> None:
    schema = {"type": "object", "required": ["result"], "properties": {"result": {"type": "string", "minLength": 3}}}
    expected, how = Expected(schema=schema), Evaluator(kind="json_schema")

    assert json_schema({"result": "abc"}, expected, how).passed
    assert json_schema('{"result": "abc"}', expected, how).passed
    assert "result: " in json_schema({"result": "ab"}, expected, how).reason
    assert not json_schema("no json", expected, how).passed
    assert json_schema("12", Expected(schema={"type": "string"}), how).passed


def test_schemas_of_one_id_do_not_get_in_each_others_way() -> None:
    one, two = ({"$id": "urn:x", "type": kind} for kind in ("string", "number"))
    how = Evaluator(kind="json_schema")

    assert json_schema("a", Expected(schema=one), how).passed
    assert json_schema(1, Expected(schema=two), how).passed


def test_2020_12_is_the_usual_draft() -> None:
    schema = {"prefixItems": [{"type": "string"}]}

    assert not json_schema([1], Expected(schema=schema), Evaluator(kind="json_schema")).passed


def task(kind: Any, timeout_ms: float | None = None, **expected: Any) -> BenchmarkTask:
    return BenchmarkTask(
        id="t",
        description="",
        input={"query": "q"},
        expected=Expected(**expected),
        evaluator=Evaluator(kind=kind, timeout_ms=timeout_ms),
        weight=2,
    )


def evaluate(folder: Path, asked: BenchmarkTask, output: Any, sandbox_name: str = "local", **more: Any) -> Grade:
    check = Check(grader=asked.evaluator.kind, params={"task": asked}, weight=asked.weight)
    case = Case(id=asked.id, prompt="", checks=(check,))
    grader = grader_class(check.grader)(Suite(name="b", cases=(case,), source=folder / "b.json", digest=""))
    evidence = Evidence(
        case=case,
        session=SessionSummary(runner="s", agent="skill", prompt=""),
        events_path=None,
        workspace=folder,
        changes=Changes(),
        artifact_dir=folder,
        shell=Shell(sandbox=sandbox_name),
        keep=lambda name, text: None,
        timeout_s=20,
        answer=GradedAnswer(output=output, skill_id="s", sandbox=plugins.find("sandboxes", sandbox_name)(), **more),
    )
    try:
        return anyio.run(grader.grade, check, evidence)
    finally:
        grader.close()


def test_an_error_inside_the_search_for_patterns_is_told_and_is_no_0(tmp_path: Path) -> None:
    asked = task("regex", patterns=("a(",))

    with pytest.raises(GraderError, match=r"the search for patterns failed: .*missing \), unterminated subpattern"):
        evaluate(tmp_path, asked, "a")


def test_a_pattern_that_takes_for_ever_is_ended_and_is_no_0_of_the_skill(tmp_path: Path) -> None:
    asked = task("regex", timeout_ms=300, patterns=("^(a+)+$",))

    with pytest.raises(CheckTimedOut, match=r"within 0\.3 s"):
        evaluate(tmp_path, asked, "a" * 60 + "b")


def test_a_grade_by_patterns_comes_back_from_its_process(tmp_path: Path) -> None:
    grade = evaluate(tmp_path, task("regex", patterns=("a+", "z")), "caat")

    assert (grade.value, grade.passed, grade.weight) == (0.5, False, 2)


def write_grader(folder: Path, body: str, name: str = "g.py") -> None:
    (folder / name).write_text(body)


@pytest.mark.parametrize(
    ("body", "value", "passed"),
    [
        ("def f(output): return output == 'yes'", 1.0, True),
        ("def f(output, expected): return 0.5 if expected['value'] == 'ref' else 0", 0.5, False),
        ("def f(o, e, context): return {'passed': context['input']['query'] == 'q', 'score': .7}", 0.7, True),
        ("def f(*a): return {'score': 1, 'reason': a[2]['skill']['id']}", 1.0, True),
        ("def f(output):\n  print('noise')\n  return False", 0.0, False),
    ],
)
def test_a_function_of_a_file_decides(tmp_path: Path, sandbox_name: str, body: str, value: float, passed: bool) -> None:
    write_grader(tmp_path, body)

    grade = evaluate(tmp_path, task("custom", custom_scorer="g.py:f", value="ref"), "yes", sandbox_name)

    assert (grade.value, grade.passed) == (value, passed)


def test_a_function_of_a_module_beside_the_benchmark_decides(tmp_path: Path, sandbox_name: str) -> None:
    write_grader(tmp_path, "from helper import good\ndef f(output): return good(output)", "mine.py")
    write_grader(tmp_path, "def good(output): return output == 1", "helper.py")

    assert evaluate(tmp_path, task("custom", custom_scorer="mine:f"), 1, sandbox_name).passed


def test_any_program_that_speaks_json_decides(tmp_path: Path, sandbox_name: str) -> None:
    path = tmp_path / "grade.sh"
    path.write_text(
        """#!/bin/sh\ngrep -q '"output": 42' && echo '{"passed": true, "score": 0.9, "reason": "it is"}'\n"""
    )
    path.chmod(0o755)

    grade = evaluate(tmp_path, task("custom", custom_scorer="grade.sh"), 42, sandbox_name)

    assert (grade.value, grade.passed, grade.reason) == (0.9, True, "it is")


def test_a_grader_may_look_at_the_files_of_the_skill(tmp_path: Path, sandbox_name: str) -> None:
    bench, skill = tmp_path / "bench", tmp_path / "skill"
    bench.mkdir()
    skill.mkdir()
    (skill / "skill.json").write_text("{}")
    write_grader(
        bench, "from pathlib import Path\ndef f(o, e, c): return (Path(c['skill']['path']) / 'skill.json').exists()"
    )

    assert evaluate(bench, task("custom", custom_scorer="g.py:f"), None, sandbox_name, skill=skill).passed


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def f(output): raise LookupError('broken')", "LookupError: broken"),
        ("def f(output): return 'yes'", 'returned "yes"'),
        ("def f(output): return 7", "returned 7"),
        ("def f(output): return float('nan')", "ended with exit code 1"),
        ("def f(output): return object()", "not JSON serializable"),
        ("def g(output): return 1", "has no attribute 'f'"),
        ("import os\nos._exit(0)", "printed no JSON"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "ended with"),
    ],
)
def test_a_grader_that_breaks_is_an_error_of_its_own(
    tmp_path: Path, sandbox_name: str, body: str, message: str
) -> None:
    write_grader(tmp_path, body)

    with pytest.raises(GraderError, match=message) as caught:
        evaluate(tmp_path, task("custom", custom_scorer="g.py:f"), "yes", sandbox_name)

    assert caught.value.cause == "suite"
    assert type(caught.value) is GraderError


def test_a_grader_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path, sandbox_name: str) -> None:
    mark = f"grader-{os.getpid()}"
    write_grader(
        tmp_path,
        f"import subprocess, time\ndef f(o):\n  subprocess.Popen(['sh', '-c', 'sleep 60; : {mark}'])\n  time.sleep(60)",
    )

    with pytest.raises(CheckTimedOut, match=r"did not end within 1\.5 s"):
        evaluate(tmp_path, task("custom", timeout_ms=1500, custom_scorer="g.py:f"), 1, sandbox_name)

    running = [path for path in Path("/proc").glob("[0-9]*/cmdline") if _holds(path, mark)]
    assert running == []


def _holds(path: Path, mark: str) -> bool:
    try:
        return mark.encode() in path.read_bytes()
    except OSError:
        return False


@pytest.mark.parametrize(
    ("name", "message"),
    [("none.py:f", "there is no file"), ("none.sh", "there is no file"), ("plain.txt", "may not be executed")],
)
def test_a_grader_that_is_not_there_is_found_before_anything_runs(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "plain.txt").write_text("")

    with pytest.raises(UsageError, match=message):
        find_scorer(name, tmp_path)


def test_a_task_for_a_judge_without_a_key_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EVAL_SKILLS_LLM_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(UsageError, match="there is no key for it"):
        evaluate(tmp_path, task("llm_judge", judge_prompt="Rate"), "x")


def test_a_program_is_told_all_there_is_to_know(tmp_path: Path) -> None:
    path = tmp_path / "grade"
    keys = ["expected", "input", "latencyMs", "output", "skill", "task"]
    path.write_text(
        f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sorted(json.loads(sys.stdin.readline())) == {keys}))\n"
    )
    path.chmod(0o755)

    assert evaluate(tmp_path, task("custom", custom_scorer="grade"), 42).passed
