"""The contract of a grader, held against every one of ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from whet.errors import GraderError
from whet.grade.judge_questions import TOOL
from whet.model import plugins
from whet.model.grade import Grade
from whet.model.suite import SkillUnderTest, Suite
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


def test_all_of_ours_are_here() -> None:
    tested = {name.removeprefix("test_").replace("_", "-") for name in globals() if name.startswith("test_")}

    assert set(plugins.names("graders")) <= tested
