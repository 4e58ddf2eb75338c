"""Agents that would rather have the reward than do the work, as root in the container of a task."""

from __future__ import annotations

import pytest
from images import containers_left
from project import Outcome, Project
from tasks import AGENT, write_task

FORGED = "echo 1 > /logs/verifier/reward.txt; echo '{\"reward\": 1}' > /logs/verifier/reward.json; "


@pytest.fixture
def tasks(project: Project) -> Project:
    """A project whose sandbox is left to the tasks."""
    project.sandbox = "auto"
    project.settings(AGENT)
    return project


def attack(tasks: Project, image: str, script: str, tests: str | None = None) -> Outcome:
    """Run one task with *script* as its agent, which does not write what the tests look for."""
    files = {} if tests is None else {"tests__test_DOT_sh": tests}
    write_task(tasks.root / "tasks/one", image, instruction_DOT_md=script, **files)
    return tasks.whet("run", "tasks")


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(FORGED, id="a reward is there before"),
        pytest.param(
            f"(setsid sh -c 'while :; do {FORGED} sleep 0.01; done' >/dev/null 2>&1 &) ; sleep 0.3", id="daemon"
        ),
        pytest.param(
            "(trap '' TERM; setsid sh -c 'while :; do (sleep 0.01; exec sh -c \""
            + FORGED.replace('"', "")
            + "\") & done'"
            " >/dev/null 2>&1 &); sleep 0.3",
            id="daemon that forks",
        ),
        pytest.param(
            "echo '#!/bin/sh\n" + FORGED.replace("'", "") + "' > /tests/test.sh; " + "true", id="edited tests"
        ),
        pytest.param("mkdir /x; mount --bind /x /tests || umount /logs/verifier; true", id="mounts"),
        pytest.param("ln -s /app/mine /logs/verifier/reward.txt; echo 1 > /app/mine", id="link"),
        pytest.param("mv /logs/verifier /logs/gone; rm -rf /logs/verifier; chmod 0 /logs/verifier; true", id="closed"),
    ],
)
def test_a_forged_reward_never_passes(tasks: Project, image: str, script: str) -> None:
    ended = attack(tasks, image, script)

    assert ended.statuses == {"one": "failed"}, ended.message("one")
    assert tasks.left_after_a_while() == []


def test_an_agent_that_takes_the_logs_away_fails_and_is_not_errored(tasks: Project, image: str) -> None:
    ended = attack(tasks, image, "mv /logs /elsewhere; mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt")

    assert ended.statuses == {"one": "failed"}, ended.message("one")


def test_an_agent_that_keeps_its_container_from_working_fails_and_is_not_errored(tasks: Project, image: str) -> None:
    ended = attack(tasks, image, "rm -rf /bin /usr /lib* 2>/dev/null; true")

    assert ended.statuses == {"one": "failed"}, ended.message("one")


def test_no_way_leads_out_of_the_container(tasks: Project, image: str) -> None:
    secret = tasks.outside / "secret"
    secret.write_text("of the machine")
    script = f"""
        cat {secret}; ls /proc/1/root{tasks.outside}; echo 1 > /proc/sys/kernel/core_pattern
        mknod /tmp/disk b 8 0 && head -c 1 /tmp/disk; mount -t proc proc /mnt; chroot /proc/1/root cat {secret}
        echo b > /proc/sysrq-trigger; unshare -Ur true && echo unshared; kill -9 -1
        ls /var/run/docker.sock /run/podman /var/tmp/whet-0; true
    """

    ended = attack(tasks, image, script)

    said = ended.session("one")["final_output"]
    assert "of the machine" not in said
    assert secret.read_text() == "of the machine"
    assert ended.statuses == {"one": "failed"}
    assert containers_left(f"whet.run={ended.folder.name}") == []


def test_processes_that_fill_the_container_end_with_it(tasks: Project, image: str) -> None:
    tasks.settings(AGENT + "[defaults]\nmax_processes = 200\n")

    ended = attack(
        tasks, image, "(for i in $(seq 150); do setsid sh -c 'trap \"\" TERM; sleep 600' & done) 2>/dev/null; true"
    )

    assert ended.statuses == {"one": "failed"}, ended.message("one")
    assert containers_left(f"whet.run={ended.folder.name}") == []


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("head -c 80000000 /dev/zero > /var/tmp/large; sleep 60", id="layer"),
        pytest.param("head -c 80000000 /dev/zero > /logs/artifacts/large; sleep 60", id="logs"),
        pytest.param("head -c 80000000 /dev/zero > $HOME/large; sleep 60", id="home"),
        pytest.param("exec 3> /app/large; rm /app/large; head -c 80000000 /dev/zero >&3; sleep 60", id="no name"),
        pytest.param(
            "for i in $(seq 200); do mkdir $(printf 'd%.0s' $(seq 60)) && cd d*; done; "
            "head -c 80000000 /dev/zero > large; sleep 60",
            id="deep",
        ),
        pytest.param("trap 'exit 0' TERM; head -c 80000000 /dev/zero > large", id="and is done"),
    ],
)
def test_an_agent_that_fills_the_disk_of_its_task_is_ended_and_has_failed(
    tasks: Project, image: str, script: str
) -> None:
    write_task(
        tasks.root / "tasks/one",
        image,
        task_DOT_toml="[environment]\nstorage_mb = 50\n",
        instruction_DOT_md="echo right > answer.txt; " + script,
    )

    ended = tasks.whet("run", "tasks")

    assert ended.statuses == {"one": "failed"}, ended.message("one")
    assert ended.codes == {"one": "ceiling"}, ended.message("one")
    assert "50 MB of disk" in ended.message("one")
