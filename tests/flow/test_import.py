"""`whet import`: a benchmark manifest becomes a suite that runs, and what it does not say is told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from project import Project


def manifest(project: Project) -> None:
    cases = [{"task_id": "a", "environment_ref": "pack"}]
    project.write("manifest.json", json.dumps({"name": "mine", "supports_no_skill": True, "cases": cases}))


def read(project: Project, name: str = "suite.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.root / name).read_text())
    return found


def test_a_manifest_becomes_a_suite_that_finds_its_packages(project: Project) -> None:
    project.write("bench/pack/tests/test.sh", "exit 0\n")
    cases = [{"task_id": "a", "environment_ref": "pack"}]
    project.write("bench/manifest.json", json.dumps({"name": "bench", "supports_no_skill": True, "cases": cases}))

    outcome = project.whet("import", "bench/manifest.json", "--output", "suite.json")
    ran = project.whet("run", "suite.json")

    assert outcome.code == 0
    assert read(project)["cases_json"][0]["environment_ref"] == "bench/pack"
    assert "a: the manifest does not say instruction" in outcome.stderr
    assert (ran.code, ran.statuses) == (0, {"a": "passed"})


def test_a_wrong_manifest_is_told_with_all_that_is_wrong(project: Project) -> None:
    project.write("manifest.json", json.dumps({"cases": [{"environment_ref": "ftp://x"}, {}]}))

    outcome = project.whet("import", "manifest.json")

    assert outcome.code == 2
    assert "name" in outcome.stderr
    assert "cases[0].environment_ref" in outcome.stderr
    assert "cases[1].environment_ref" in outcome.stderr


def test_without_an_output_the_suite_is_printed(project: Project) -> None:
    manifest(project)

    outcome = project.whet("import", "manifest.json")

    assert json.loads(outcome.stdout)["name"] == "mine"


def test_nothing_is_overwritten(project: Project) -> None:
    manifest(project)
    project.write("suite.json", "mine")

    outcome = project.whet("import", "manifest.json", "--output", "suite.json")

    assert outcome.code == 2
    assert (project.root / "suite.json").read_text() == "mine"


@pytest.mark.parametrize("path", ["tasks", "tasks/hello", "tasks/hello/task.toml"])
def test_a_task_is_told_to_run_as_it_is(project: Project, path: str) -> None:
    project.write("tasks/hello/task.toml", 'version = "1.0"\n')
    project.write("tasks/hello/instruction.md", "Say hello.\n")

    outcome = project.whet("import", path, "--output", "suite.json")

    assert outcome.code == 2
    assert f"{path} holds tasks, which need no import" in outcome.stderr
    assert f"they run as they are: whet run {path.removesuffix('/task.toml')}" in outcome.stderr
    assert not (project.root / "suite.json").exists()


@pytest.mark.parametrize(("path", "problem"), [(".", "is a folder"), ("nowhere", "does not exist")])
def test_a_place_without_a_manifest_is_told(project: Project, path: str, problem: str) -> None:
    outcome = project.whet("import", path)

    assert outcome.code == 2
    assert f"{path} {problem}" in outcome.stderr
