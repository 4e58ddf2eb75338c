"""An audit of somebody else's tasks: solutions pass, nobody passes by doing nothing, and what is broken is named."""

from __future__ import annotations

import json

import pytest
from images import containers_left
from project import Project
from tasks import AGENT, write_task

REWARD = "echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt"


@pytest.fixture
def tasks(project: Project) -> Project:
    """A project whose sandbox is left to the tasks."""
    project.sandbox = "auto"
    project.settings(AGENT)
    return project


def test_an_audit_tells_tasks_that_work_from_those_that_are_broken(
    tasks: Project, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("project.PATIENCE_S", 240)
    write_task(tasks.root / "tasks/good", image)
    write_task(
        tasks.root / "tasks/vacuous", image, tests__test_DOT_sh="#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n"
    )
    write_task(tasks.root / "tasks/unsolved", image, solution__solve_DOT_sh="#!/bin/sh\necho wrong > answer.txt\n")
    write_task(tasks.root / "tasks/no-solution", image, solution__solve_DOT_sh="")
    write_task(tasks.root / "tasks/silent", image, tests__test_DOT_sh="#!/bin/sh\nexit 0\n")
    write_task(tasks.root / "tasks/unbuilt", image, environment__Dockerfile="FROM {image}\nRUN exit 3\n")

    ended = tasks.whet("audit", "tasks", "--json")

    found = {case["id"]: case for case in json.loads(ended.stdout)["cases"]}
    assert ended.code == 1, ended.stderr
    assert (found["good"]["vacuous"], found["good"]["solution"]) == (False, "passed")
    assert found["vacuous"]["vacuous"]
    assert (found["unsolved"]["solution"], found["unsolved"]["vacuous"]) == ("failed", False)
    assert found["no-solution"]["solution"] == "none"
    assert "left no reward" in found["silent"]["errored"]
    assert "cannot be built" in found["unbuilt"]["errored"]
    assert [each for each in containers_left("whet.owner", show="{{.Labels}}") if "unsolved/" in each] == []


def test_the_solution_of_every_step_runs_and_gets_its_variables(tasks: Project, image: str) -> None:
    write_task(
        tasks.root / "tasks/steps",
        image,
        task_DOT_toml='[solution]\nenv = { WORD = "${HOST_WORD}" }\n[[steps]]\nname = "a"\n[[steps]]\nname = "b"\n',
        instruction_DOT_md="",
        solution__solve_DOT_sh="#!/bin/sh\necho $WORD > a\nexit 3\n",
        steps__a__instruction_DOT_md="Do a.",
        steps__a__tests__test_DOT_sh=f"#!/bin/sh\ntest -s a && {REWARD}\n",
        steps__b__instruction_DOT_md="Do b.",
        steps__b__solution__solve_DOT_sh="#!/bin/sh\ncp a b\n",
        steps__b__tests__test_DOT_sh=f'#!/bin/sh\n[ "$(cat b)" = of-the-host ] && {REWARD}\n',
    )
    tasks.env["HOST_WORD"] = "of-the-host"

    ended = tasks.whet("audit", "tasks", "--json")

    (found,) = json.loads(ended.stdout)["cases"]
    assert (found["solution"], found["vacuous"]) == ("passed", False), found


def test_an_audit_names_tasks_that_are_left_out_and_tasks_without_a_solution(tasks: Project, image: str) -> None:
    write_task(tasks.root / "tasks/good", image)
    write_task(tasks.root / "tasks/no-solution", image, solution__solve_DOT_sh="")
    composed = write_task(tasks.root / "tasks/composed", image)
    (composed / "environment/docker-compose.yaml").write_text("services: {main: {}, more: {image: other}}\n")
    write_task(tasks.root / "tasks/unread", image, task_DOT_toml="= nothing")

    told, data = tasks.whet("audit", "tasks"), json.loads(tasks.whet("audit", "tasks", "--json").stdout)

    assert told.code == 0, told.stderr
    rows = [line.split(":")[0].split() for line in told.stdout.splitlines() if line.startswith("  ")]
    assert ["left", "out", "composed"] in rows
    assert ["left", "out", "unread"] in rows
    assert [row for row in rows if row[:2] == ["no", "solution"]] == [["no", "solution", "no-solution"]]
    assert told.stdout.splitlines()[-1].endswith("(2 tasks left out)")
    assert [each["id"] for each in data["left_out"]] == ["composed", "unread"]
    assert "docker-compose.yaml" in data["left_out"][0]["reason"]
    assert [case["id"] for case in data["cases"]] == ["good", "no-solution"]
