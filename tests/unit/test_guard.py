"""Tests that are interrupted or killed leave no process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_PATIENCE_S = 300
_CONFTEST = f"""
import os, sys
sys.path.append({str(Path(__file__).resolve().parents[1])!r})
from guard import stand_guard
def pytest_configure(config):
    stand_guard(with_parent=True)
"""
# A daemon, as a database or a cluster makes of itself, and a plain child; the test itself would take for ever.
_TEST = """
import os, subprocess, sys, time
from pathlib import Path
_DAEMON = "import os, time; os.fork() and os._exit(0); os.setsid(); print(os.getpid(), flush=True); time.sleep(9999)"
def test_something():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(9999)"])
    with subprocess.Popen([sys.executable, "-c", _DAEMON], stdout=subprocess.PIPE, text=True) as daemon:
        pids = [int(daemon.stdout.readline()), child.pid, os.getpid(), os.getppid()]
        Path("pids.new").write_text(" ".join(map(str, pids)))
        Path("pids.new").rename("pids")
        END
"""


class Session:
    """A session of pytest below a shell, and the processes that belong to it."""

    def __init__(self, folder: Path, end: str = "time.sleep(9999)") -> None:
        (folder / "conftest.py").write_text(_CONFTEST)
        (folder / "test_it.py").write_text(_TEST.replace("END", end))
        command = f"{sys.executable} -m pytest -q -p no:cacheprovider ."
        self.shell = subprocess.Popen(
            ["/bin/sh", "-c", f"{command}; exit $?"],
            cwd=folder,
            # Importing the plug-ins that are installed takes most of such a session.
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            start_new_session=True,
            stdout=subprocess.PIPE,
        )
        assert self.shell.stdout is not None
        self.printed = self.shell.stdout
        _wait_until((folder / "pids").exists)
        self.daemon, self.child, self.tests, self.inner = map(int, (folder / "pids").read_text().split())
        self.outer = int(Path(f"/proc/{self.inner}/stat").read_bytes().rpartition(b")")[2].split()[1])

    def left(self) -> list[int]:
        """Return those that still run after a while."""
        everybody = (self.daemon, self.child, self.tests, self.inner, self.outer)
        deadline = time.monotonic() + _PATIENCE_S
        while (running := [pid for pid in everybody if _runs(pid)]) and time.monotonic() < deadline:
            time.sleep(0.02)
        return running


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    session = Session(tmp_path)
    yield session
    session.shell.kill()
    session.shell.wait()
    session.printed.close()


@pytest.mark.parametrize("who", ["outer", "inner", "tests", "shell"])
def test_whoever_is_killed_no_process_is_left(session: Session, who: str) -> None:
    pid = session.shell.pid if who == "shell" else getattr(session, who)

    os.kill(pid, signal.SIGKILL)

    assert session.left() == []


def test_a_killed_process_group_leaves_no_process(session: Session) -> None:
    os.killpg(session.shell.pid, signal.SIGKILL)

    assert session.left() == []


def test_an_interrupted_session_reports_and_leaves_no_process(session: Session) -> None:
    os.killpg(session.shell.pid, signal.SIGINT)

    assert session.left() == []
    assert b"KeyboardInterrupt" in session.printed.read()


def test_a_terminated_session_leaves_no_process(session: Session) -> None:
    os.kill(session.outer, signal.SIGTERM)

    assert session.left() == []


def test_a_session_that_ends_by_itself_keeps_its_exit_code_and_leaves_no_process(tmp_path: Path) -> None:
    session = Session(tmp_path, "daemon.kill(); raise AssertionError")

    out, _ = session.shell.communicate(timeout=_PATIENCE_S)

    assert session.shell.returncode == 1, out
    assert session.left() == []


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state not in (b"Z", b"X")


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)
