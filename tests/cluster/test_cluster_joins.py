"""A node that joins during a run takes part in it, if it is what the run needs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback import CPUS, LoopbackCluster
from project import Project, wait_for

import whet

PATIENCE_S = 300


@pytest.fixture
def two_nodes() -> Iterator[LoopbackCluster]:
    """A cluster of its own: Ray takes a while to notice nodes that other tests killed, and counts their room."""
    made = LoopbackCluster(nodes=2)
    yield made
    made.close()


def test_a_node_that_joins_gets_trials_and_one_that_does_not_fit_gets_none(
    two_nodes: LoopbackCluster, project: Project, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(Path(whet.__file__).parent, other / "whet")
    (other / "whet/version.py").write_text('__version__ = "9.9.9"\n')
    project.env["PAUSE"] = "2"
    process = project.start("suite.py", "--on", two_nodes.on, "--trials", "2")
    wait_for(project.outside, count=5, pattern="*")

    strange = two_nodes.add(env={"PYTHONPATH": str(other)})
    joined = two_nodes.add()
    ended = project.outcome(process, within_s=PATIENCE_S)

    assert ended.code == 1, ended.stdout + ended.stderr
    assert len(project.journal()) == 40
    assert {attempt["number"] for line in project.journal() for attempt in line["attempts"]} == {1}
    said = ended.stdout + ended.stderr
    assert said.count(f"node {strange} has whet 9.9.9, and this machine has {whet.__version__}") == 1, said
    assert said.count(f"node {joined} has joined, and takes part") == 1, said
    # Each node has a folder of its own for attempts.
    assert len({note.name.split(".")[0] for note in project.outside.iterdir()}) == 3
    assert ended.results["max_parallel"] == 3 * CPUS
    assert two_nodes.left() == []
