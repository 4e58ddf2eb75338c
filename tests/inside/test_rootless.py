"""Containers of an ordinary user: the contract, whole runs, and nothing that stays, not even podman's own process."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from images import containers_left, why_not
from project import SHELL, Project
from tasks import AGENT, write_task

from whet.sandbox.container.leftovers import Mark, this_process
from whet.sandbox.container.sandbox import ContainerSandbox
from whet.sandbox.contract import InImage
from whet.sandbox.engine import Engine, engine_state
from whet.testing.sandbox import PROMISES, Promise, check_promise

pytestmark = pytest.mark.skipif(os.geteuid() == 0, reason="is about ordinary users, and you are root")
_RUN = f"rootless-{os.getpid()}"


@pytest.fixture(autouse=True)
def _works() -> None:
    """Skip where podman does not work without root, and say why."""
    if reason := why_not():
        pytest.skip(reason)
    state = engine_state("podman")
    if not state.usable:
        pytest.skip(f"{state.reason}: {state.remedy}")


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_containers_of_an_ordinary_user_keep_the_promises_of_a_sandbox(image: str, promise: Promise) -> None:
    engine = shutil.which("podman")
    assert engine is not None
    place = InImage(engine=engine, image=image, owner=this_process(), run=_RUN)

    class InTheImage(ContainerSandbox):
        def __init__(self) -> None:
            super().__init__(place)

    # As a run has it.
    with Mark(Engine(engine)):
        check_promise(InTheImage, promise)

    assert containers_left(f"whet.run={_RUN}") == []


def pauses() -> list[str]:
    """The processes by which podman keeps a namespace for this user."""
    listed = subprocess.run(("ps", "-o", "args=", "-u", str(os.getuid())), capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if line.split() in (["catatonit", "-P"], ["podman", "pause"])]


def test_a_run_of_an_ordinary_user_leaves_neither_containers_nor_the_process_of_podman(
    project: Project, image: str, cleaning: None
) -> None:
    before = pauses()
    project.settings(SHELL + "[defaults]\nmax_disk_mb = 30\n")
    project.suite(f"""
        workspace = Workspace(mode="isolated")
        suite = [
            Case(id="works", prompt="id -u; echo hello > made", check=ok),
            Case(id="fills", prompt="head -c 60000000 /dev/zero > large; sleep 60", check=ok),
            Case(id="peeks", prompt="cat {project.outside}/secret || touch /etc/new || true", check=ok),
        ]
    """)
    (project.outside / "secret").write_text("of the machine")

    ended = project.run("--image", image, "--max-parallel", "3")

    assert ended.statuses == {"works": "passed", "fills": "failed", "peeks": "passed"}, ended.stdout
    assert ended.session("works")["final_output"].split() == ["0"]
    assert "of the machine" not in ended.session("peeks")["final_output"]
    assert containers_left(f"whet.run={ended.folder.name}") == []
    assert pauses() == before


def test_a_task_of_an_ordinary_user_is_built_run_and_graded_and_a_daemon_ends_with_its_agent(
    project: Project, image: str
) -> None:
    project.sandbox = "auto"
    project.settings(AGENT)
    write_task(project.root / "tasks/good", image)
    forging = "(setsid sh -c 'while :; do echo 1 > /logs/verifier/reward.txt; sleep 0.01; done' >/dev/null 2>&1 &)"
    write_task(project.root / "tasks/forged", image, instruction_DOT_md=f"{forging}; sleep 0.3")
    write_task(
        project.root / "tasks/large",
        image,
        task_DOT_toml="[environment]\nstorage_mb = 30\n",
        instruction_DOT_md="echo right > answer.txt; head -c 60000000 /dev/zero > /var/tmp/large",
    )

    ended = project.whet("run", "tasks")

    assert ended.statuses == {"good": "passed", "forged": "failed", "large": "failed"}, ended.stdout
    assert ended.codes["large"] == "ceiling"
    assert containers_left(f"whet.run={ended.folder.name}") == []


@pytest.mark.parametrize("command", [("doctor",), ("clean", "--images"), ("run",)])
def test_what_needs_no_container_starts_no_process_that_stays(
    tmp_path: Path, command: tuple[str, ...], cleaning: None
) -> None:
    project = Project(tmp_path / "project")
    project.settings(SHELL)
    project.suite("suite = [Case(id='a', prompt='true', check=ok)]")
    before = pauses()

    ended = project.run() if command == ("run",) else project.whet(*command)

    assert ended.code == 0, ended.stderr
    assert pauses() == before
