"""Experiments of Vally by the real command: each variant is an arm with its skills, and a resumed run has them too."""

from __future__ import annotations

import json
from typing import Any

import pytest
from project import Project

SPEC = {
    "environment": {"skills": ["skills/old"]},
    "stimuli": [
        {
            "name": "greets",
            "prompt": "Greet.",
            "graders": [{"type": "output-matches", "config": {"pattern": "^skills: new old$"}}],
        }
    ],
}
EXPERIMENT: dict[str, Any] = {
    "evals": ["*.eval.yaml"],
    "vary": ["/environment/skills"],
    "baseline": "none",
    "variants": {
        "none": {"environment": {"skills": []}},
        "old": {"environment": {"skills": ["skills/old"]}},
        "both": {"environment": {"skills": ["skills/old", "skills/new"]}},
    },
}
# Says which skills an agent finds in its home.
AGENT = """
[runners.demo.agent]
type = "command"
command = "sh"
args = ["-c", "echo skills: $(ls ~/.agents/skills 2>/dev/null)"]
"""


@pytest.fixture
def experiment(project: Project) -> Project:
    """A project with an experiment of one spec in three variants."""
    project.settings(AGENT)
    for name in ("old", "new"):
        project.write(f"skills/{name}/SKILL.md", f"---\nname: {name}\ndescription: Greets.\n---\n{name}\n")
    project.write("greet.eval.yaml", json.dumps(SPEC))
    project.write("a.experiment.yaml", json.dumps(EXPERIMENT))
    return project


def scores(results: dict[str, Any]) -> dict[str, float]:
    return {score["arm"]: score["score"] for score in results["scores"]}


def test_each_variant_is_an_arm_with_its_own_skills(experiment: Project) -> None:
    done = experiment.whet("run", "a.experiment.yaml", "--reporter", "json")

    results = json.loads(done.stdout)
    assert results["baseline"] == "none"
    assert scores(results) == {"none": 0.0, "old": 0.0, "both": 1.0}


def test_a_resumed_run_reads_its_spec_as_the_first_one_did(experiment: Project) -> None:
    experiment.whet("run", "a.experiment.yaml")

    done = experiment.whet("run", "--resume", "latest", "--add-trials", "1", "--reporter", "json")

    results = json.loads(done.stdout)
    assert results["counts"]["total"] == 6
    assert scores(results) == {"none": 0.0, "old": 0.0, "both": 1.0}


def test_a_variant_that_differs_in_more_ends_the_run_before_it_starts(experiment: Project) -> None:
    variants = {**EXPERIMENT["variants"], "old": {"overrides": {"model": "large"}}}
    experiment.write("a.experiment.yaml", json.dumps({**EXPERIMENT, "variants": variants}))

    done = experiment.whet("run", "a.experiment.yaml")

    assert done.code == 2
    assert 'does not name /defaults/model, which differs: as the spec says in none, and "large" in old' in done.stderr
    assert not (experiment.root / ".whet/runs").exists()
