"""Trials in bubblewrap and in containers on the nodes of a cluster: the same boundary as here, and nothing is left."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from images import call_podman, containers_left, why_not
from loopback import LoopbackCluster, end
from project import Outcome, Project

PATIENCE_S = 300
CASES = 6
SUITE = f"""
def check(report, ctx):
    assert ctx.run(["sh", "-c", "cat said"]).stdout == "of the template\\n"
    assert not ctx.run(["cat", "{{outside}}/secret"]).ok
suite = [
    Case(id=f"c{{number}}", prompt="cat base.txt > said; cat {{outside}}/secret; uname -n; true", check=check)
    for number in range({CASES})
]
workspace = Workspace(mode="isolated", template_dir="template")
"""
WAITING = f"""
suite = [
    Case(id=f"waits-{{number}}", prompt="echo {{token}}; sleep 600; : {{token}}", check=ok, timeout_ms=600_000)
    for number in range({CASES})
]
"""
SHELL = '[runners.sh.agent]\ntype = "command"\ncommand = "sh"\nnetwork = false\n'


@pytest.fixture
def shut(project: Project) -> Project:
    """The project with a suite whose agents look for what they must not see."""
    project.write("template/base.txt", "of the template\n")
    (project.outside / "secret").write_text("of the machine")
    project.suite(SUITE)
    project.settings(SHELL)
    return project


@pytest.fixture
def engine(project: Project) -> None:
    """Containers for the project, with the settings that the nodes have too."""
    if os.geteuid() == 0 and (reason := why_not()) is not None:
        pytest.skip(reason)
    project.sandbox = "container"
    kept = ("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "BUILDAH_ISOLATION")
    project.env |= {name: os.environ[name] for name in kept if name in os.environ}


def on(cluster: LoopbackCluster, project: Project, *more: str) -> Outcome:
    """Run the suite of *project* on the cluster."""
    return project.outcome(project.start("suite.py", "--on", cluster.on, *more), within_s=PATIENCE_S)


def said(ended: Outcome) -> set[str]:
    """Return what agents said."""
    return {path.read_text() for path in ended.folder.glob("trials/*/sh/default/1/1/transcript.txt")}


def nothing_left(cluster: LoopbackCluster, project: Project, ended: Outcome) -> None:
    assert project.left_after_a_while(30) == []
    assert cluster.left() == []
    assert containers_left(f"whet.run={ended.folder.name}") == []


@pytest.mark.bubblewrap
def test_agents_in_bubblewrap_see_on_a_node_what_they_see_here(three_nodes: LoopbackCluster, shut: Project) -> None:
    shut.sandbox = "bubblewrap"

    here = shut.run()
    seen = said(here)
    there = on(three_nodes, shut)

    assert (here.code, there.code) == (0, 0), there.stdout + there.stderr
    assert len(there.trials) == CASES
    assert said(there) == seen
    assert "of the machine" not in "".join(seen)
    assert shut.left_after_a_while() == []
    assert three_nodes.left() == []


@pytest.mark.root
@pytest.mark.containers
@pytest.mark.usefixtures("engine")
def test_agents_in_containers_work_on_nodes_and_leave_none(
    three_nodes: LoopbackCluster, shut: Project, image: str, tmp_path: Path
) -> None:
    box = tmp_path / "box"
    box.mkdir()
    (box / "Dockerfile").write_text(f"FROM {image}\nRUN echo built-{shut.token} > /built\n")
    shut.suite(SUITE.replace("uname -n", "cat /built"))

    ended = on(three_nodes, shut, "--image", str(box))

    assert ended.code == 0, ended.stdout + ended.stderr
    assert len(ended.trials) == CASES
    assert said(ended) == {f"built-{shut.token}\n"}
    assert list(three_nodes.folder.glob("whet-*/archives/*/box/Dockerfile"))
    # What was built on a node is in the record, as if it had been built here.
    assert len(list(ended.folder.glob("images/*.log"))) == 1
    nothing_left(three_nodes, shut, ended)


@pytest.mark.root
@pytest.mark.containers
@pytest.mark.usefixtures("engine")
def test_a_driver_that_is_killed_leaves_no_container_on_a_node(
    three_nodes: LoopbackCluster, project: Project, image: str
) -> None:
    project.suite(WAITING)
    project.settings(SHELL)
    process = project.start("suite.py", "--on", three_nodes.on, "--image", image)
    deadline = time.monotonic() + PATIENCE_S
    label = ""
    running: list[str] = []
    while len(running) < CASES and time.monotonic() < deadline:
        assert process.poll() is None, project.outcome(process).stderr
        if (project.output_dir / "latest").exists():
            label = f"whet.run={(project.output_dir / 'latest').resolve().name}"
            running = call_podman("ps", "--filter", f"label={label}", "--format", "{{.ID}}").splitlines()
        time.sleep(0.1)

    end(process.pid)
    process.communicate()
    ended = Outcome(-9, "", "", project.output_dir)

    assert len(running) == CASES
    nothing_left(three_nodes, project, ended)
