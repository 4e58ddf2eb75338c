"""`whet validate` on benchmarks and callable skills: every problem with its place, and nothing is called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from evaluating import skill, statuses, task, whet

BENCHMARK: dict[str, Any] = {
    "id": "mine",
    "name": "Mine",
    "version": "1.0.0",
    "domain": "custom",
    "scoringMethod": "mean",
    "tasks": [task("a", {"say": "yes"}), task("b", {"say": "yes"})],
}
YAML = """
id: mine
name: Mine
version: "1.0"
domain: custom
scoringMethod: mean
tasks:
  - id: a
    inputData: {say: "yes"}
    expectedOutput: {type: exact, value: "yes"}
"""


def test_a_benchmark_its_folder_bare_tasks_and_a_skill_are_valid_in_one_go(tmp_path: Path) -> None:
    (tmp_path / "flat.json").write_text(json.dumps(BENCHMARK))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "benchmark.json").write_text(json.dumps(BENCHMARK))
    (tmp_path / "tasks.json").write_text(json.dumps(BENCHMARK["tasks"]))
    skill(tmp_path)

    ended = whet(tmp_path, "validate", "flat.json", "folder", "tasks.json", "skills")

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == [
        "flat.json: benchmark mine 1.0.0: 2 tasks (2 exact), no problems",
        "folder/benchmark.json: benchmark mine 1.0.0: 2 tasks (2 exact), no problems",
        "tasks.json: benchmark custom 0.0.0: 2 tasks (2 exact), no problems",
        "skills/echo/skill.json: skill echo 1.0.0 (subprocess), no problems",
    ]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"scoringMethod": "median"}, "scoringMethod: must be one of mean, weighted_mean, pass_at_k"),
        ({"tasks": [task("a", {}), task("a", {})]}, 'tasks[1].id: "a" is also the id of tasks[0]'),
        ({"tasks": [task("a b", {}), task("a-B", {})]}, 'would share the folder "a-B" with tasks[0]'),
        ({"tasks": [task("a", {}, evaluator={"type": "contains"})]}, 'expectedOutput.type is "exact"'),
        (
            {
                "tasks": [
                    {"id": "a", "inputData": {}, "expectedOutput": {"type": "custom", "customScorerPath": "no.py"}}
                ]
            },
            "there is no file",
        ),
    ],
)
def test_what_is_wrong_with_a_benchmark_is_told_with_its_place(tmp_path: Path, change: Any, told: str) -> None:
    (tmp_path / "b.json").write_text(json.dumps({**BENCHMARK, **change}))

    ended = whet(tmp_path, "validate", "b.json")

    assert ended.returncode == 2
    assert told in ended.stderr


def test_what_is_wrong_with_a_skill_is_told_and_a_slip_is_an_error_where_that_is_asked(tmp_path: Path) -> None:
    skill(tmp_path, "bad", manifest={"adapterType": "carrier-pigeon"})
    skill(tmp_path, "slip", keepAlife=True)

    bad = whet(tmp_path, "validate", "skills/bad/skill.json")
    slip = whet(tmp_path, "validate", "skills/slip")
    strict = whet(tmp_path, "validate", "--strict", "skills/slip")

    assert bad.returncode == 2
    assert "adapterType: must be one of subprocess, http, mcp" in bad.stderr
    assert (slip.returncode, strict.returncode) == (0, 2)
    assert 'did you mean "keepAlive"?' in slip.stderr


def test_a_benchmark_may_be_yaml_and_is_found_by_its_id(tmp_path: Path) -> None:
    skill(tmp_path)
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "mine.yaml").write_text(YAML)

    valid = whet(tmp_path, "validate", "benchmarks/mine.yaml")
    ended = whet(tmp_path, "eval", "--skills", "skills", "--benchmark", "mine")

    assert valid.returncode == 0, valid.stderr
    assert ended.returncode == 0, ended.stderr
    assert statuses(tmp_path) == {"a": "pass"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (YAML + "id: again\n", 'has the key "id" twice'),
        (YAML.replace('value: "yes"', "value: .nan"), "has the number nan, which JSON does not have"),
        (YAML + "  - [\n", "cannot be read"),
    ],
)
def test_yaml_that_could_be_read_in_two_ways_is_refused(tmp_path: Path, text: str, told: str) -> None:
    skill(tmp_path)
    (tmp_path / "mine.yaml").write_text(text)

    ended = whet(tmp_path, "eval", "--skills", "skills", "--benchmark", "mine.yaml")

    assert ended.returncode == 2
    assert told in ended.stderr
