"""A plug-in by the real command: its evals with it and without it, and the results in the form of their tool."""

from __future__ import annotations

import json
from typing import Any

import pytest
from project import Project

MANIFEST = '{"name": "greeter", "version": "1.2.0"}'
SKILL = "---\nname: greet\ndescription: Greets.\n---\nHi.\n"
# Writes what it is given, and answers.
AGENT = """
[runners.sh.agent]
type = "command"
command = "sh"
args = ["-c", "find $HOME -name SKILL.md -o -name '*.yaml' | sed 's|.*/skills/||' > seen.txt; echo hello"]
"""
CASE = """\
schema_version: "1.1"
name: greets
runs: 2
execution: {prompt: Greet Ann., max_turns: 4}
context: {scaffold_script: make.sh}
graders:
  - {name: says-hello, type: regex, pattern: hello}
  - {name: has-the-skill, type: regex, pattern: greet, target: {source: file, path: seen.txt}, weight: 3}
  - {name: sees-no-evals, type: regex, pattern: case.yaml, match: not_contains, target: {source: file, path: seen.txt}}
  - {name: asks-for-it, type: tool_used, tool: Skill}
"""


@pytest.fixture
def plugged(project: Project) -> Project:
    """A project with a plug-in and its evals."""
    project.write("greeter/.claude-plugin/plugin.json", MANIFEST)
    project.write("greeter/skills/greet/SKILL.md", SKILL)
    project.write("greeter/evals/greets/case.yaml", CASE)
    project.write("greeter/evals/greets/make.sh", "echo seed > seed.txt\n")
    project.settings(AGENT)
    return project


def written(project: Project, *flags: str) -> dict[str, Any]:
    done = project.whet("run", "greeter", "--reporter", "plugin-eval=out", *flags)
    path = project.root / "out/aggregate-result.json"
    assert path.is_file(), done.stdout + done.stderr
    document: dict[str, Any] = json.loads(path.read_bytes())
    return document


def test_a_plug_in_is_run_with_its_skills_and_without_them(plugged: Project) -> None:
    (case,) = written(plugged)["cases"]

    grades = {
        arm: [{grader["name"]: grader["passed"] for grader in run["graders"]} for run in runs]
        for arm, runs in case["arms"].items()
    }
    common = {"says-hello": True, "sees-no-evals": True}
    assert grades["with"] == [{**common, "has-the-skill": True, "asks-for-it": False}] * 2
    assert grades["without"] == [{**common, "has-the-skill": False}] * 2


def test_the_results_are_in_the_form_of_their_tool(plugged: Project) -> None:
    document = written(plugged)

    (case,) = document["cases"]
    (plugin,) = document["suite"]["plugins"]
    assert (plugin["name"], plugin["version"], document["suite"]["ablation"]) == ("greeter", "1.2.0", "with-without")
    assert (case["name"], case["dir"], case["source"]) == ("greets", "evals/greets", "case_yaml")
    assert (case["runsPerCase"], case["maxTurns"], case["timeoutSeconds"]) == (2, 4, 300)
    assert case["aggregates"] == {
        "score": 1.0,
        "passRate": 1.0,
        "scoreWithout": 0.4,
        "passRateWithout": 0.0,
        "delta": 0.6,
    }
    fired = case["arms"]["with"][0]["graders"][-1]
    assert (fired["name"], fired["withOnly"], fired["scored"]) == ("asks-for-it", True, False)
    assert document["aggregates"] == {
        "casesTotal": 1,
        "casesPassed": 1,
        "overallScore": 1.0,
        "overallPassRate": 1.0,
        "meanDelta": 0.6,
    }


def test_the_number_of_trials_that_is_typed_outranks_the_runs_of_a_case(plugged: Project) -> None:
    (case,) = written(plugged, "--trials", "1")["cases"]

    assert [len(runs) for runs in case["arms"].values()] == [1, 1]
    assert case["runsPerCase"] == 2


def test_a_run_of_one_arm_has_no_difference_and_counts_every_grader(plugged: Project) -> None:
    document = written(plugged, "--arm", "skill", "--trials", "1")

    (case,) = document["cases"]
    assert (document["suite"]["ablation"], list(case["arms"])) == ("none", ["with"])
    assert {grader["scored"] for grader in case["arms"]["with"][0]["graders"]} == {True}
    assert case["aggregates"] == {"score": pytest.approx(5 / 6), "passRate": 0.0}


def test_a_trial_that_could_not_start_has_the_reason_and_no_grades(plugged: Project) -> None:
    plugged.write("greeter/evals/greets/make.sh", "exit 3\n")

    (case,) = written(plugged, "--trials", "1")["cases"]

    (run,) = case["arms"]["with"]
    assert (run["score"], run["graders"]) == (0.0, [])
    assert "the bootstrap command ended with exit code 3" in run["error"]
