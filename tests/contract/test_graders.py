"""The contract of a grader, held against every one of ours."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from whet import plugins
from whet.checks.context import NotRecorded
from whet.errors import GraderError
from whet.grade.judge.questions import TOOL
from whet.model.callable import BenchmarkTask, Evaluator, EvaluatorKind, Expected
from whet.model.eval_cases import JavascriptCall
from whet.model.grade import Grade
from whet.model.suite import Case, Check, SkillUnderTest, Suite
from whet.suites.conversation import SATISFIED
from whet.suites.format import load_suite
from whet.testing import ScriptedModel, check_grader

PYTHON = """from whet import case, expect


@case(prompt="Say yes.")
def says_yes(ctx):
    assert ctx.final_output() == "yes"
    expect.files.created(ctx, "yes.txt")
"""
BENCH = {
    "name": "greetings",
    "cases": [
        {
            "id": "hello",
            "prompt": "Write hello.txt.",
            "expect": ['file:yes.txt contains "yes"', "no-file:draft.txt", "test:test -s yes.txt"],
        }
    ],
}
VERDICT = {"call": TOOL, "args": {"rating": 9, "rationale": "It says yes.", "manipulation": False}, "always": True}


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A judge that likes everything."""
    monkeypatch.setenv("EVAL_SKILLS_LLM_KEY", "key-of-the-judge")
    with ScriptedModel([VERDICT]) as model:
        yield {"url": f"{model.url}/v1", "model": "gpt-4o", "votes": 1, "retries": 0}


def graded(name: str, suite: Suite, output: str = "yes") -> tuple[Grade, ...]:
    checks = suite.cases[0].checks
    assert {check.grader for check in checks} == {name}
    files = {"yes.txt": "yes\n"} if output == "yes" else {}
    return check_grader(plugins.find("graders", name), checks, output=output, files=files, suite=suite)


def written(folder: Path, name: str, text: str) -> Suite:
    (folder / name).write_text(text)
    return load_suite(folder / name)


def evals(folder: Path, **case: Any) -> Suite:
    whole = {"name": "s", "source_kind": "manual", "verifier_kind": "deterministic", "cases_json": [case]}
    return written(folder, "evals.json", json.dumps(whole))


@pytest.mark.parametrize(("output", "passed"), [("yes", True), ("no", False)])
def test_python(tmp_path: Path, output: str, passed: bool) -> None:
    (grade,) = graded("python", written(tmp_path, "suite.py", PYTHON), output)

    assert grade.passed is passed


@pytest.mark.parametrize(("output", "passed"), [("yes", [True] * 3), ("no", [False, True, False])])
def test_claim(tmp_path: Path, output: str, passed: list[bool]) -> None:
    grades = graded("claim", written(tmp_path, "bench.json", json.dumps(BENCH)), output)

    assert [grade.passed for grade in grades] == passed


@pytest.mark.parametrize(("output", "passed"), [("yes", True), ("no", False)])
def test_answer(tmp_path: Path, output: str, passed: bool) -> None:
    suite = evals(tmp_path, case_kind="exact_match", task_id="a", instruction="Say yes.", expected="yes")

    (grade,) = graded("answer", suite, output)

    assert grade.passed is passed


def test_trigger(tmp_path: Path) -> None:
    suite = evals(tmp_path, case_kind="trigger_query", task_id="a", query="Tidy up.", expectation="should_not_trigger")
    skill = SkillUnderTest(path=tmp_path / "tidy", source=tmp_path / "tidy", name="tidy", digest="0")

    (grade,) = graded("trigger", replace(suite, skill=skill))

    assert grade.reason == "by running the agent: tidy was not loaded"
    with pytest.raises(GraderError, match="there is no skill under test"):
        graded("trigger", suite)


def test_rubric(tmp_path: Path, judge: dict[str, Any]) -> None:
    suite = evals(tmp_path, case_kind="llm_rubric", task_id="a", instruction="Say yes.", rubric=["It says yes."])

    (grade,) = graded("rubric", replace(suite, judge=judge))

    assert (grade.value, grade.passed) == (0.9, True)


def test_task_package(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "run.sh").write_text("exit 0\n")
    suite = evals(
        tmp_path,
        case_kind="task_package",
        task_id="a",
        instruction="Do it.",
        environment_ref="package",
        verifier_ref="run.sh",
    )

    (grade,) = graded("task-package", suite)

    # Its workspace did not begin as the package.
    assert grade.undecided


def evaluated(
    folder: Path, kind: EvaluatorKind, output: str, *, judge: dict[str, Any] | None = None, **expected: Any
) -> Grade:
    """The grade of an answer to a task of a benchmark in *folder*."""
    evaluator = Evaluator(kind=kind)
    task = BenchmarkTask(id="a", description="", input={}, expected=Expected(**expected), evaluator=evaluator)
    case = Case(id="a", prompt="Say yes.", checks=(Check(grader=kind, params={"task": task}, label=kind),))
    suite = Suite(name="b", cases=(case,), source=folder / "b.json", digest="", judge=judge or {})
    (grade,) = graded(kind, suite, output)
    return grade


@pytest.mark.parametrize(("output", "passed"), [("yes", True), ("no", False)])
def test_exact(tmp_path: Path, output: str, passed: bool) -> None:
    assert evaluated(tmp_path, "exact", output, value="yes").passed is passed


@pytest.mark.parametrize(("output", "passed"), [("yes", True), ("no", False)])
def test_contains(tmp_path: Path, output: str, passed: bool) -> None:
    assert evaluated(tmp_path, "contains", output, keywords=("ye",)).passed is passed


@pytest.mark.parametrize(("output", "passed"), [("yes", True), ("no", False)])
def test_regex(tmp_path: Path, output: str, passed: bool) -> None:
    assert evaluated(tmp_path, "regex", output, patterns=("^y",)).passed is passed


@pytest.mark.parametrize(("output", "passed"), [("yes", True), ("no", False)])
def test_json_schema(tmp_path: Path, output: str, passed: bool) -> None:
    assert evaluated(tmp_path, "json_schema", output, schema={"type": "string", "minLength": 3}).passed is passed


@pytest.mark.parametrize(("output", "passed"), [("yes", True), ("no", False)])
def test_custom(tmp_path: Path, output: str, passed: bool) -> None:
    (tmp_path / "scorer.py").write_text(
        'def score(output, expected):\n    return {"passed": output == "yes", "score": float(output == "yes"), '
        '"reason": f"it is {output}"}\n'
    )

    assert evaluated(tmp_path, "custom", output, custom_scorer="scorer.py").passed is passed


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
@pytest.mark.parametrize(("output", "passed"), [("yes", True), ("no", False)])
def test_javascript(tmp_path: Path, output: str, passed: bool) -> None:
    check = Check(grader="javascript", label="says yes", params={"call": JavascriptCall(code="output === 'yes'")})
    case = Case(id="a", prompt="Say yes.", checks=(check,))

    (grade,) = graded("javascript", Suite(name="s", cases=(case,), source=tmp_path / "s.json", digest=""), output)

    assert grade.passed is passed


def test_llm_judge(tmp_path: Path, judge: dict[str, Any]) -> None:
    grade = evaluated(tmp_path, "llm_judge", "yes", judge=judge, judge_prompt="Is it a yes?")

    assert (grade.value, grade.passed) == (0.9, True)


def test_user(tmp_path: Path) -> None:
    case = Case(id="talk", prompt="Say yes.", checks=(SATISFIED,))

    grades = graded("user", Suite(name="s", cases=(case,), source=tmp_path / "s.json", digest=""))

    assert [(grade.passed, grade.reason) for grade in grades] == [(False, "the user was not satisfied (None)")]


def test_task(tmp_path: Path) -> None:
    # It looks into a container, which the contract has not; tests/inside has the rest.
    case = Case(id="task", prompt="Say yes.", checks=(Check(grader="task", label="tests", params={"step": 0}),))

    with pytest.raises(NotRecorded, match="the container of the task"):
        graded("task", Suite(name="s", cases=(case,), source=tmp_path / "s.json", digest=""))


def test_all_of_ours_are_here() -> None:
    tested = {name.removeprefix("test_").replace("_", "-") for name in globals() if name.startswith("test_")}

    assert {name.replace("_", "-") for name in plugins.names("graders")} <= tested
