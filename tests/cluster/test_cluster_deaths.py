"""Whatever is killed during a run on a cluster: no trial is lost, none is recorded twice, and nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable

import pytest
from loopback import LoopbackCluster, end, of_folder
from project import Outcome, Project

from whet.cluster._node_run import spool_name
from whet.model.run import TrialKey

PATIENCE_S = 300
TRIALS = 40


def until(is_so: Callable[[], object], what: str) -> None:
    """Wait for something that will be so."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.02)


def of_cluster(cluster: LoopbackCluster, text: str) -> list[int]:
    """Return the processes of the cluster with *text* in their arguments."""
    return of_folder(text, cluster.folder)


def begin(cluster: LoopbackCluster, project: Project) -> subprocess.Popen[bytes]:
    """Begin a run on the cluster, and return when some trials have ended and every node is at work."""
    project.env["PAUSE"] = "1"
    process = project.start("suite.py", "--trials", "2", "--on", cluster.on)

    def at_work() -> bool:
        return len(project.journal()) >= 5 and all(map(cluster.holding, cluster.nodes))

    until(lambda: process.poll() is not None or at_work(), "work on all nodes")
    assert process.poll() is None, project.outcome(process).stderr
    return process


def go_on(project: Project) -> Outcome:
    """Do on this machine what is left of the run; nobody needs to see its agents at work."""
    project.env["PAUSE"] = "0"
    return project.outcome(project.start("--resume", "latest"), within_s=PATIENCE_S)


def hold_whole(cluster: LoopbackCluster, project: Project, ended: Outcome) -> None:
    """Check that every trial has one line, that each went as it should, and that nothing is left on the nodes."""
    keys = Counter(f"{line['key']['case']}#{line['key']['number']}" for line in project.journal())
    assert ended.code == 1, ended.stderr
    assert len(keys) == TRIALS
    assert set(keys.values()) == {1}
    assert Counter(line["status"] for line in project.journal()) == {"passed": TRIALS - 2, "failed": 2}
    assert project.whet("verify", "latest").code == 0
    assert project.left_after_a_while() == []
    assert cluster.left() == []


def lost_attempts(project: Project) -> list[str]:
    """Return why attempts were lost."""
    attempts = [attempt for line in project.journal() for attempt in line["attempts"]]
    return [each["failure"]["cause"] for each in attempts if (each["failure"] or {}).get("code") == "node-lost"]


@pytest.mark.parametrize("victim", ["ray::run_trial_task_here", "whet.cluster.node", "ray::NodeActor"])
def test_a_process_that_is_killed_costs_attempts_and_no_trial(
    three_nodes: LoopbackCluster, project: Project, victim: str
) -> None:
    # On a loaded machine, actors of a run that has just ended are still there.
    earlier = of_cluster(three_nodes, victim)
    process = begin(three_nodes, project)

    def victims() -> list[int]:
        return [pid for pid in of_cluster(three_nodes, victim) if pid not in earlier]

    until(victims, victim)

    end(victims()[0])
    ended = project.outcome(process, within_s=PATIENCE_S)

    hold_whole(three_nodes, project, ended)
    assert set(lost_attempts(project)) == {"infrastructure"}
    assert "was lost" in ended.stdout + ended.stderr


def test_a_node_that_is_killed_costs_attempts_and_no_trial(three_nodes: LoopbackCluster, project: Project) -> None:
    process = begin(three_nodes, project)

    three_nodes.kill(three_nodes.nodes[-1])
    ended = project.outcome(process, within_s=PATIENCE_S)
    lost = lost_attempts(project)
    # What it could not clean up, the next process of that machine does.
    again = go_on(project)

    assert set(lost) == {"infrastructure"}
    assert ended.code == 1, ended.stderr
    hold_whole(three_nodes, project, again)


def test_a_driver_that_is_killed_leaves_nothing_running_and_goes_on_with_what_ended_meanwhile(
    three_nodes: LoopbackCluster, project: Project
) -> None:
    process = begin(three_nodes, project)
    spool = three_nodes.folder / f"whet-node-{os.geteuid()}" / "spool"

    def recorded() -> int:
        # What is fetched is forgotten a second later, so some are both here and there.
        here = {spool_name(TrialKey(**line["key"])) for line in project.journal()}
        return len(here | {path.name for path in spool.glob("*/*") if not path.name.startswith(".")})

    def started() -> int:
        return len(list(project.outside.iterdir()))

    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: recorded() >= started() and not project.left(), "the end of what had begun")
    in_journal, begun = len(project.journal()), started()
    end(process.pid)
    process.communicate()
    left = three_nodes_left(three_nodes), project.left_after_a_while(30)
    ended = go_on(project)

    assert in_journal < begun < TRIALS
    assert left == ([], [])
    hold_whole(three_nodes, project, ended)
    # No agent worked twice on a trial that had ended.
    assert started() == TRIALS
    # Also what the driver had fetched and could not tell the nodes to forget is gone.
    assert [*spool.glob("*/*")] == []
    assert lost_attempts(project) == []


def three_nodes_left(cluster: LoopbackCluster) -> list[str]:
    """Return the processes and scratch folders that are left; what trials left waits for the driver."""
    until(lambda: not of_cluster(cluster, "whet.cluster.node"), "the end of the nodes' processes")
    return cluster.scratch()


@pytest.mark.parametrize("killed", [None, "whet.cluster.node"])
def test_an_interrupted_run_ends_its_agents_on_all_nodes_and_can_go_on(
    three_nodes: LoopbackCluster, project: Project, killed: str | None
) -> None:
    process = begin(three_nodes, project)

    if killed:
        # No other process of this run comes there in its place, and the folders of attempts go all the same.
        end(of_cluster(three_nodes, killed)[0])
    os.kill(process.pid, signal.SIGINT)
    interrupted = project.outcome(process, within_s=PATIENCE_S)
    left = project.left_after_a_while(), three_nodes.left()
    ended = go_on(project)

    assert interrupted.code == 130, interrupted.stderr
    assert left == ([], [])
    hold_whole(three_nodes, project, ended)
