"""Bench suites run by the real command, in a project that also holds its own record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RUNNER = '[runners.sh.agent]\ntype = "command"\ncommand = "sh"\n'


def run(folder: Path, cases: list[dict[str, Any]], sandbox: str = "local", **fields: Any) -> tuple[int, dict[str, Any]]:
    """The exit code, and the trials by case."""
    (folder / ".git").mkdir(exist_ok=True)
    (folder / "bench").mkdir(exist_ok=True)
    (folder / "whet.toml").write_text(RUNNER)
    (folder / "bench/suite.json").write_text(json.dumps({"name": "s", "cases": cases, **fields}))
    ended = subprocess.run(
        [sys.executable, "-m", "whet", "run", "bench/suite.json", "--sandbox", sandbox],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("WHET_")},
    )  # fmt: skip
    latest = folder / ".whet/runs/latest/results.json"
    assert latest.exists(), ended.stderr
    results = json.loads(latest.read_bytes())
    return ended.returncode, {case["id"]: case["executions"][0]["trials"][0] for case in results["cases"]}


@pytest.mark.parametrize("sandbox", ["local", pytest.param("bubblewrap", marks=pytest.mark.bubblewrap)])
def test_every_expectation_has_its_grade_and_all_of_them_are_looked_at(tmp_path: Path, sandbox: str) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    lines = ["diff:a.txt", "file:b.txt created", "file:a.txt contains 'two'", "no-file:b.txt", "test:grep -q two a.txt"]

    code, trials = run(tmp_path, [{"id": "a", "prompt": "echo two > a.txt; echo > b.txt", "expect": lines}], sandbox)

    assert code == 1
    grades = trials["a"]["grades"]
    assert [grade["check"] for grade in grades] == lines
    assert [grade["passed"] for grade in grades] == [True, True, True, False, True]
    assert trials["a"]["failure"]["message"] == "no-file:b.txt: b.txt exists"
    assert (tmp_path / "a.txt").read_text() == "one\n"


def test_a_record_inside_of_the_project_is_no_part_of_a_workspace(tmp_path: Path) -> None:
    lost = [{"id": f"c{number}", "prompt": "true", "expect": ["file:no exists"]} for number in range(3)]

    run(tmp_path, lost)
    code, trials = run(tmp_path, [*lost, {"id": "looks", "prompt": "ls -A", "expect": ["no-file:.whet"]}])

    assert code == 1
    assert trials["looks"]["status"] == "passed"
    assert trials["looks"]["changed_files"] == 0
    kept = tmp_path / ".whet/runs/latest" / trials["c2"]["workspace_dir"]
    assert sorted(item.name for item in kept.iterdir()) == [".git", "bench", "whet.toml"]


def test_an_expectation_that_cannot_be_decided_leaves_the_trial_errored(tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.truncate(17 * 1024 * 1024)

    code, trials = run(
        tmp_path,
        [
            {"id": "open", "prompt": "true", "expect": ["file:big exists", "file:big matches /x/"]},
            {"id": "failed", "prompt": "true", "expect": ["file:big matches /x/", "no-file:big"]},
            {"id": "made", "prompt": "truncate -s 17M more", "expect": ["file:more exists", "file:more matches /x/"]},
            {"id": "hole", "prompt": "truncate -s 8G more", "expect": ["file:more contains 'x'"]},
        ],
    )

    assert code == 1
    assert (trials["made"]["status"], trials["made"]["failure"]["code"]) == ("failed", "assertion")
    assert (trials["hole"]["status"], trials["hole"]["failure"]["code"]) == ("failed", "assertion")
    assert "has more than 1 GiB" in trials["hole"]["failure"]["message"]
    assert (trials["open"]["status"], trials["open"]["failure"]["code"]) == ("errored", "grader")
    assert [grade["undecided"] for grade in trials["open"]["grades"]] == [False, True]
    assert (trials["failed"]["status"], trials["failed"]["failure"]["code"]) == ("failed", "assertion")
