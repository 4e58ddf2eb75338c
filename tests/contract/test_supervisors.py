"""Supervisors: what they hold a command to, and what happens when they are themselves ended or left alone."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from whet import plugins
from whet.linux import libc
from whet.sandbox.contract import Boundary, Command, Ended, Sandbox
from whet.sandbox.process.pool import supervisors
from whet.sandbox.process.procfs import become_subreaper, children
from whet.sandbox.process.supervisor import scope

_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE_S = 300
_STAY = "trap '' TERM HUP; sleep 60"


@pytest.fixture
def mark() -> str:
    """Among the arguments of what a test starts."""
    return f"below-{os.getpid()}-{time.monotonic_ns()}"


@pytest.fixture
def sandbox(sandbox_name: str) -> Iterator[Sandbox]:
    become_subreaper()
    made: Sandbox = plugins.find("sandboxes", sandbox_name)()
    yield made
    anyio.run(made.close)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def alive(mark: str) -> list[int]:
    """Processes with *mark* among their arguments that are more than zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "cmdline").read_bytes():
                state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
                found += [int(entry.name)] if state not in (b"Z", b"X") else []
        except OSError:
            continue
    return found


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _PATIENCE_S
    while not (held := holds()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return held


def run(
    sandbox: Sandbox, folder: Path, script: str, meanwhile: Callable[[], object] = lambda: None
) -> tuple[Ended, str]:
    """How a shell script ended and all that it printed; *meanwhile* is done once it has printed something."""
    said = bytearray()

    async def work() -> Ended:
        begun, ended = anyio.Event(), []

        def sink(chunk: bytes) -> None:
            said.extend(chunk)
            begun.set()

        async def command() -> None:
            asked = Command(argv=("sh", "-c", script), env={"PATH": os.environ["PATH"]}, cwd=folder)
            boundary = Boundary(writable=(folder,))
            ended.append(await sandbox.run(asked, boundary, timeout_s=60, stdout=sink, stderr=sink))
            begun.set()

        async with anyio.create_task_group() as group:
            group.start_soon(command)
            await begun.wait()
            meanwhile()
        return ended[0]

    return anyio.run(work), said.decode()


def watchdogs() -> list[int]:
    assert supervisors._fork_server is not None
    return children(supervisors._fork_server.pid)


def below_watchdogs() -> list[int]:
    return [pid for watchdog in watchdogs() for pid in children(watchdog)]


def end_supervisors(found: Callable[[], list[int]] = watchdogs) -> None:
    for pid in found():
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("which", [watchdogs, below_watchdogs])
def test_a_command_whose_supervisor_or_its_watchdog_is_killed_ends_as_killed_and_leaves_nothing(
    sandbox: Sandbox, tmp_path: Path, mark: str, which: Callable[[], list[int]]
) -> None:
    script = f'(setsid env -i sh -c "{_STAY}; : {mark}" &); echo begun; {_STAY}; : {mark}'

    # What is left for a moment only is not left every time.
    for _ in range(5):
        ended, said = run(sandbox, tmp_path, script, lambda: end_supervisors(which))
        left = alive(mark)

        assert (ended.signal, ended.timed_out) == (signal.SIGKILL, False)
        assert "something killed the process that watches over this command" in said
        assert left == []


def test_a_command_that_kills_its_supervisor_by_the_thread_that_started_it_leaves_nothing(
    sandbox: Sandbox, tmp_path: Path, mark: str
) -> None:
    (tmp_path / "kill.py").write_text(
        "import ctypes, os\n"
        "above = os.getppid()\n"
        "for thread in os.listdir(f'/proc/{above}/task'):\n"
        "    ctypes.CDLL(None).tgkill(above, int(thread), 9)\n"
    )
    script = f'(setsid env -i sh -c "{_STAY}; : {mark}" &); exec {sys.executable} kill.py'

    for _ in range(3):
        run(sandbox, tmp_path, script)

        assert alive(mark) == []


def test_a_program_that_asks_to_die_with_its_parent_does_so_at_its_end(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "tied.py").write_text(
        "import ctypes, time\nctypes.CDLL(None).prctl(1, 9, 0, 0, 0)\ntime.sleep(0.2)\nprint('lived')\n"
    )

    ended, said = run(sandbox, tmp_path, f"exec {sys.executable} tied.py")

    assert (ended.exit_code, said) == (0, "lived\n")


def test_children_are_found_also_while_a_thread_of_their_parent_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen(["sleep", "60"])
    threads = [path.name for path in Path(f"/proc/{os.getpid()}/task").iterdir()]
    monkeypatch.setattr(os, "listdir", lambda _: ["4194305", *threads])

    found = children(os.getpid())
    child.kill()
    child.wait()

    assert child.pid in found


def test_a_command_has_its_three_streams_and_no_file_of_ours(sandbox: Sandbox, tmp_path: Path) -> None:
    _, said = run(sandbox, tmp_path, "for fd in /proc/$$/fd/*; do test -e $fd && echo ${fd##*/}; done")

    assert set(said.split()) == {"0", "1", "2"}


def test_commands_go_on_after_the_fork_server_and_its_supervisors_were_killed(sandbox: Sandbox, tmp_path: Path) -> None:
    run(sandbox, tmp_path, "echo one")
    fork_server = supervisors._fork_server
    assert fork_server is not None
    end_supervisors()
    assert eventually(lambda: not children(fork_server.pid))
    fork_server.kill()

    ended, said = run(sandbox, tmp_path, "echo two")

    assert (ended.exit_code, said) == (0, "two\n")


def test_a_supervisor_is_used_for_one_command_after_another(sandbox: Sandbox, tmp_path: Path) -> None:
    run(sandbox, tmp_path, "echo one")
    before = watchdogs(), below_watchdogs()

    for _ in range(5):
        run(sandbox, tmp_path, "echo again; (setsid sleep 60 &)")

    assert (watchdogs(), below_watchdogs()) == before


def test_a_supervisor_that_is_left_alone_before_it_was_heard_ends_what_is_below_it(tmp_path: Path, mark: str) -> None:
    async def work() -> None:
        supervisor = await supervisors.take()
        command = Command(argv=("sh", "-c", f"{_STAY}; : {mark}"), env={}, cwd=tmp_path)
        supervisor.run(command, [0] * 3, (0, 1, 2))
        # It says that the command runs, and nobody listens: so the end of its owner comes to it as an error.
        select.select([supervisor.fileno()], [], [], _PATIENCE_S)
        assert eventually(lambda: bool(alive(mark)))
        supervisor.close()

    anyio.run(work)

    assert eventually(lambda: alive(mark) == [])


@pytest.mark.skipif(scope() is None, reason="this kernel has no Landlock with scopes, so signals are not held back")
def test_a_command_can_signal_what_it_started_and_nothing_else(sandbox: Sandbox, tmp_path: Path) -> None:
    script = f"""
        sleep 60 & kill -KILL $! && echo own
        kill -KILL {os.getpid()} 2>/dev/null || echo not-whet
        (: < /proc/{os.getpid()}/mem) 2>/dev/null || echo not-traced
        kill -KILL $PPID 2>/dev/null; echo not-above
    """

    ended, said = run(sandbox, tmp_path, script)

    assert ended.exit_code == 0
    assert said.split() == ["own", "not-whet", "not-traced", "not-above"]
