"""Formats of other packages: they get the JSON files and folders that they recognize."""

from __future__ import annotations

import json

import pytest
from project import SHELL, Project

MODULE = """
import json
from whet.model.suite import Case, Check, Suite

def suite_of(prompts, path):
    cases = tuple(
        Case(id=f"c{number}", prompt=prompt, checks=(Check(grader="claim", params={"claim": "output-contains:yes"}),))
        for number, prompt in enumerate(prompts)
    )
    return Suite(name="asked", cases=cases, source=path, digest="1")

class Asked:
    def recognizes(self, path):
        return path.suffix == ".json" and b'"ask"' in path.read_bytes()

    def lower(self, path):
        return suite_of([case["ask"] for case in json.loads(path.read_text())["cases"]], path)

class AskedFolder:
    takes_folders = True

    def recognizes(self, path):
        return (path / "asked").is_file()

    def lower(self, path):
        return suite_of((path / "asked").read_text().splitlines(), path)
"""
ENTRY_POINTS = """
[whet.formats]
asked = asked:Asked
asked-folder = asked:AskedFolder
"""


@pytest.fixture
def extended(project: Project) -> Project:
    """A project beside which a package with formats is installed."""
    project.write("lib/asked.py", MODULE)
    project.write("lib/asked-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: asked\nVersion: 1\n")
    project.write("lib/asked-1.dist-info/entry_points.txt", ENTRY_POINTS)
    project.env["PYTHONPATH"] = str(project.root / "lib")
    project.settings(SHELL)
    return project


@pytest.mark.parametrize("place", ["suites/a.json", "suites"])
def test_a_json_file_goes_to_the_format_that_recognizes_it(extended: Project, place: str) -> None:
    extended.write("suites/a.json", json.dumps({"cases": [{"ask": "echo yes"}]}))

    done = extended.whet("validate", place)

    assert done.code == 0, done.stdout + done.stderr
    assert "1 case with 1 check, no problems" in done.stdout


def test_a_folder_goes_to_a_format_that_takes_folders(extended: Project) -> None:
    extended.write("questions/asked", "echo yes\n")

    done = extended.whet("validate", "questions")

    assert done.code == 0, done.stdout + done.stderr
    assert "1 case with 1 check, no problems" in done.stdout


def test_a_file_that_no_format_recognizes_is_compared_with_the_nearest_one(extended: Project) -> None:
    extended.write("a.json", json.dumps({"cases": [{"question": "echo yes"}]}))

    done = extended.whet("validate", "a.json")

    assert done.code == 2
    assert "a.json: is in no known format; nearest: evals.json" in done.stderr
