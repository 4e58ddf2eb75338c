"""Schedules: what may run at the same time, and that results stand in declared order whatever ran first."""

from __future__ import annotations

from pathlib import Path

import pytest
from project import Project

TWO = """
[runners.one.agent]
type = "command"
command = "sh"
[runners.two.agent]
type = "command"
command = "sh"
"""
# Writes when it begins and ends; later cases are quicker, so that ends come in another order than begins.
AGENT = """
    AGENT = '''
    echo "$(date +%s%N) +1 $WHET_RUNNER_ID" >> {outside}/log
    sleep {pause}
    echo "$(date +%s%N) -1 $WHET_RUNNER_ID" >> {outside}/log
    '''
    suite = [Case(id=f"c{n}", prompt=AGENT.replace("{pause}", f"0.{8 - n}"), check=ok) for n in range(5)]
"""


def overlap(folder: Path, runner: str | None = None) -> int:
    """The most agents that were at work at one time."""
    lines = sorted(line.split() for line in (folder / "log").read_text().splitlines())
    most = now = 0
    for _, change, name in lines:
        if runner is None or name == runner:
            now += int(change)
            most = max(most, now)
    return most


def order(project: Project) -> list[tuple[str, str]]:
    return [(line["key"]["case"], line["key"]["runner"]) for line in project.journal()]


DECLARED = [(f"c{n}", runner) for n in range(5) for runner in ("one", "two")]


def test_serial_never_overlaps(project: Project) -> None:
    project.settings(TWO)
    project.suite(AGENT.replace("0.{8 - n}", "0.05"))

    done = project.run("--schedule", "serial", "--max-parallel", "8")

    assert done.code == 0, done.stderr
    assert overlap(project.outside) == 1
    assert order(project) == DECLARED


def test_parallel_overlaps_up_to_the_limit_and_results_stay_in_declared_order(project: Project) -> None:
    project.settings(TWO)
    project.suite(AGENT)

    done = project.run("--schedule", "parallel", "--max-parallel", "3")

    assert done.code == 0, done.stderr
    assert overlap(project.outside) == 3
    assert [(trial["case"], trial["runner"]) for trial in done.trials] == DECLARED


@pytest.mark.parametrize(("limit", "most"), [("8", 2), ("1", 1)])
def test_isolated_by_runner_overlaps_runners_but_never_within_one(project: Project, limit: str, most: int) -> None:
    project.settings(TWO)
    project.suite(AGENT.replace("0.{8 - n}", "0.15"))

    done = project.run("--schedule", "isolated-by-runner", "--max-parallel", limit)

    assert done.code == 0, done.stderr
    assert overlap(project.outside) == most
    assert overlap(project.outside, "one") == overlap(project.outside, "two") == 1
    assert [(trial["case"], trial["runner"]) for trial in done.trials] == DECLARED


def test_a_shared_workspace_is_serial_unless_asked_otherwise_and_then_it_warns(project: Project) -> None:
    project.settings(TWO)
    project.suite('workspace = Workspace(mode="shared")\n' + AGENT.replace("\n    ", "\n").replace("0.{8 - n}", "0.1"))

    alone = project.run("--max-parallel", "4")
    calm = overlap(project.outside)
    together = project.run("--max-parallel", "4", "--schedule", "parallel")

    assert alone.code == together.code == 0, alone.stderr
    assert calm == 1
    assert "warning" not in alone.stdout
    assert "shared workspace" in together.stdout
