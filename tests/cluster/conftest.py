"""One cluster for the tests of a worker that follow each other: three nodes take ten seconds to start."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# The project of a flow test, and the images of tests in containers, are used here too.
for _folder in ("flow", "inside"):
    sys.path.append(str(Path(__file__).resolve().parents[1] / _folder))

from images import image, podman  # noqa: E402
from loopback import LoopbackCluster  # noqa: E402
from project import Project  # noqa: E402

__all__ = ["image", "podman"]


_clusters: list[LoopbackCluster] = []


@pytest.fixture
def ray_cluster(podman: Callable[..., str]) -> LoopbackCluster:
    """Three nodes, with settings with which containers work here."""
    del podman
    if not _clusters:
        _clusters.append(LoopbackCluster())
    return _clusters[0]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """End the cluster after its last test: idle nodes take a sixth of a processor from all other tests."""
    if nextitem is None or not nextitem.get_closest_marker("cluster"):
        _end_clusters()


def pytest_sessionfinish() -> None:
    """End the cluster also if somebody interrupts the tests."""
    _end_clusters()


def _end_clusters() -> None:
    while _clusters:
        _clusters.pop().close()


@pytest.fixture
def three_nodes(ray_cluster: LoopbackCluster) -> LoopbackCluster:
    """The same, with as many nodes as it should have: a test may have killed one."""
    while len(ray_cluster.nodes) < 3:
        ray_cluster.add()
    return ray_cluster


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project of 20 cases with three trials each; its agents say in which folder of which node they were."""
    made = Project(tmp_path / "project")
    made.env["MY_KEY"] = "sk-ant-made-up-4242424242"
    made.write("template/base.txt", "base\n")
    made.write("helper.py", "def expected(number): return f'say {number}' if number != 7 else 'something else'\n")
    made.write("agent.sh", AGENT, mode=0o755)
    made.suite(SUITE)
    made.settings(SETTINGS)
    yield made
    made.clear()


AGENT = """\
#!/bin/sh
read line
echo "$line" > said
echo "$PWD" > {outside}/$(basename $(dirname $PWD)).$(basename $PWD).$$
echo "with $MY_KEY"
sh -c 'sleep "$0"; : {token}' ${PAUSE:-0.2}
"""
SUITE = """
import helper
workspace = Workspace(mode="isolated", template_dir="template")

def made(number):
    def check(report, ctx):
        assert (ctx.workspace / "said").read_text().strip() == helper.expected(number)
        assert (ctx.workspace / "base.txt").read_text() == "base\\n"
    return Case(id=f"c{number}", prompt=f"say {number}", check=check)

suite = [made(number) for number in range(20)]
"""
SETTINGS = """
[run]
trials = 3
[runners.sh.agent]
type = "command"
command = "./agent.sh"
pass_env = ["MY_KEY", "PAUSE"]
"""
