"""Several suites in one command run on the same nodes, each with its own record."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from loopback import LoopbackCluster, end, of_folder
from project import Project, wait_for

PATIENCE_S = 300
# The same names of suite and cases in two folders: only the folder tells them apart.
SUITE = """
import of_NAME as helper

def check(report, ctx):
    assert (ctx.workspace / "base.txt").read_text().strip() == helper.NAME

suite = [Case(id=f"c{number}", prompt=f"say {number}", check=check) for number in range(8)]
workspace = Workspace(mode="isolated", template_dir="template")
"""


@pytest.fixture
def two(project: Project) -> Project:
    """A project of two suites."""
    for name in ("one", "two"):
        project.suite(SUITE.replace("NAME", name, 1), f"{name}/suite.py")
        project.write(f"{name}/of_{name}.py", f"NAME = '{name}'\n")
        project.write(f"{name}/template/base.txt", f"{name}\n")
    (project.root / "suite.py").unlink()
    return project


def statuses(project: Project) -> dict[str, Any]:
    """Return how each trial of the batch went, by suite and case, as each run's own journal has it."""
    batch = json.loads((project.output_dir / "latest" / "batch.json").read_bytes())
    folders = {run["name"]: project.output_dir / Path(run["folder"]).name for run in batch["runs"]}
    return {
        name: Counter(
            (line["key"]["case"], line["key"]["number"], line["status"])
            for line in map(json.loads, (folder / "journal.jsonl").read_bytes().splitlines())
        )
        for name, folder in folders.items()
    }


def test_two_suites_run_on_nodes_as_here(three_nodes: LoopbackCluster, two: Project) -> None:
    here = two.outcome(two.start("one/suite.py", "two/suite.py"), within_s=PATIENCE_S)
    expected = statuses(two)
    for note in two.outside.iterdir():
        note.unlink()

    there = two.outcome(two.start("one/suite.py", "two/suite.py", "--on", three_nodes.on), within_s=PATIENCE_S)

    assert (here.code, there.code) == (0, 0), there.stdout + there.stderr
    assert statuses(two) == expected
    assert sum(map(Counter.total, expected.values())) == 48
    # Both on the same processes of all nodes.
    scratch = {note.read_text().rsplit("/", 2)[0] for note in two.outside.iterdir()}
    assert len(list(two.outside.iterdir())) == 48
    assert all(place.startswith(str(three_nodes.folder)) for place in scratch)
    assert three_nodes.left() == []


@pytest.mark.parametrize("victim", ["whet.cluster.node", "driver"])
def test_what_is_killed_costs_no_trial_of_either_suite(three_nodes: LoopbackCluster, two: Project, victim: str) -> None:
    two.env["PAUSE"] = "0.5"
    process = two.start("one/suite.py", "two/suite.py", "--on", three_nodes.on)
    wait_for(two.outside, count=20, pattern="*")

    if victim == "driver":
        end(process.pid)
        process.communicate()
        process = two.start("--resume", "latest")
    else:
        end(of_folder(victim, three_nodes.folder)[0])
    ended = two.outcome(process, within_s=PATIENCE_S)

    assert ended.code == 0, ended.stdout + ended.stderr
    found = statuses(two)
    assert [set(each.values()) for each in found.values()] == [{1}, {1}]
    assert [each.total() for each in found.values()] == [24, 24]
    assert two.left_after_a_while() == []
    assert three_nodes.left() == []


def test_suites_that_name_different_clusters_are_refused(three_nodes: LoopbackCluster, two: Project) -> None:
    settings = (two.root / "whet.toml").read_text()
    two.write("two/whet.toml", settings.replace("[run]", f'[run]\non = "{three_nodes.on}"'))

    ended = two.whet("run", "one/suite.py", "two/suite.py")

    assert ended.code == 2
    assert f"the settings of these suites name this machine and {three_nodes.on}" in ended.stderr
    assert not list(two.output_dir.glob("2*"))
