"""Checks of other tools that are not carried over: their cases know of them, in every format, and can be refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from whet.errors import SuiteError
from whet.model.suite import Suite
from whet.suites.format import load_suite
from whet.suites.losses import losses_in_words, refuse_losses

EVALS = {"evals": [{"id": "a", "prompt": "Hi.", "expectations": ["It is kind", {"type": "sings", "value": "x"}]}]}
SCENARIO = {
    "name": "a",
    "prompt": "Hi.",
    "assertions": [{"type": "output_contains", "value": "x"}, {"type": "output_sung"}],
}
STIMULUS = {
    "name": "a",
    "prompt": "Hi.",
    "graders": [{"type": "output-contains", "config": {"substring": "x"}}, {"type": "diff-empty"}],
}
TEST = {"description": "a", "assert": [{"type": "contains", "value": "x"}, {"type": "perplexity", "threshold": 5}]}
FILES: dict[str, Any] = {
    "evals.json": EVALS,
    "eval.json": {"scenarios": [SCENARIO]},
    "vally.json": {"name": "v", "stimuli": [STIMULUS]},
    "promptfoo.json": {"prompts": ["Hi."], "providers": ["echo"], "tests": [TEST]},
}


def loaded(folder: Path, name: str, value: Any) -> Suite:
    path = folder / name
    path.write_text(json.dumps(value), encoding="utf-8")
    return load_suite(path)


@pytest.mark.parametrize("name", FILES)
def test_a_case_knows_which_of_its_checks_was_not_carried_over(tmp_path: Path, name: str) -> None:
    suite = loaded(tmp_path, name, FILES[name])

    (case,) = suite.cases
    assert (len(case.checks), len(case.lost_checks)) == (1, 1)
    assert losses_in_words(suite) == "; 1 check not carried over"


def test_a_grader_of_a_plug_in_that_is_not_carried_over_is_one_of_its_own_case(tmp_path: Path) -> None:
    files = {
        "a/prompt.md": "Hi.",
        "a/graders/g.md": "---\ntype: regex\npattern: x\n---\n",
        "a/graders/b.md": "---\ntype: baseline\nbaseline_file: old.txt\n---\nAs before.\n",
        # A case asks once which answer is better.
        "a/graders/c.md": "---\ntype: baseline\nbaseline_file: old.txt\n---\nNot longer.\n",
        "a/old.txt": "Hello.",
        "b/prompt.md": "Hi.",
        "b/graders/g.md": "---\ntype: regex\npattern: x\n---\n",
    }
    for name, text in files.items():
        (tmp_path / "evals" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "evals" / name).write_text(text)

    suite = load_suite(tmp_path / "evals")

    assert [(case.id, len(case.lost_checks)) for case in suite.cases] == [("a", 1), ("b", 0)]


def test_a_check_that_every_case_should_have_is_lost_by_each(tmp_path: Path) -> None:
    cases = [{"id": name, "prompt": "Hi.", "expectations": ["It is kind"]} for name in ("a", "b")]

    suite = loaded(tmp_path, "evals.json", {"evals": cases, "repo_criteria": ["gone.json"]})

    assert [len(case.lost_checks) for case in suite.cases] == [1, 1]
    assert losses_in_words(suite) == "; 2 checks not carried over"


def test_a_case_without_checks_that_are_left_is_counted_as_left_out(tmp_path: Path) -> None:
    lost = {"description": "b", "assert": [{"type": "perplexity", "threshold": 5}]}

    suite = loaded(tmp_path, "p.json", {"prompts": ["Hi."], "providers": ["echo"], "tests": [TEST, lost]})

    assert suite.lost_cases == ("b",)
    assert losses_in_words(suite) == "; 1 check not carried over; 1 case left out"


def test_a_lossy_suite_is_refused_with_a_problem_for_each_case(tmp_path: Path) -> None:
    suite = loaded(tmp_path, "vally.json", FILES["vally.json"])

    with pytest.raises(SuiteError) as caught:
        refuse_losses(suite)

    (problem,) = caught.value.problems
    assert problem.case == "a"
    assert "1 check not carried over: stimuli[0].graders[1].type: the grader diff-empty" in problem.message


def test_what_decides_nothing_is_no_lost_check(tmp_path: Path) -> None:
    test = {"assert": [{"type": "contains", "value": "x"}, {"type": "regex", "value": "y", "weight": 0}]}

    suite = loaded(tmp_path, "p.json", {"prompts": ["Hi."], "providers": ["openai:gpt-5"], "tests": [test]})

    assert len(suite.lost) == 2
    refuse_losses(suite)
