"""Which processes of a container are services: real processes, and only those below one of ours are looked at."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from whet.sandbox.container import _services as services
from whet.sandbox.container._services import Services
from whet.sandbox.process.procfs import descendants, is_running

# The first process and a service below it. Each forks itself when it is told to.
_FIRST = """
import os, signal, time
def tell():
    os.write(1, f"{name} {os.getpid()}\\n".encode())
def fork(signum, frame):
    if os.fork() == 0:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        tell()
signal.signal(signal.SIGUSR1, fork)
name = "first"
if os.fork() == 0:
    name = "service"
tell()
while True:
    time.sleep(60)
"""


@pytest.fixture
def first(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """The first process of what stands for a container."""
    monkeypatch.setattr(services, "members", lambda pid: [each for each in descendants(pid) if each != pid])
    with subprocess.Popen([sys.executable, "-c", _FIRST], stdout=subprocess.PIPE, text=True) as process:
        yield process
        for pid in descendants(process.pid):
            subprocess.run(["kill", "-9", str(pid)], check=False)
        process.kill()


def test_a_fork_of_a_service_stays_and_a_double_of_the_first_process_ends(first: subprocess.Popen[str]) -> None:
    own = dict(_told(first, 2))
    there = Services(own["first"])
    for pid in own.values():
        _signal(pid)
    forks = dict(_told(first, 2))

    there.end_strays()

    assert is_running(own["service"])
    assert is_running(forks["service"])
    assert not is_running(forks["first"])


def _signal(pid: int) -> None:
    subprocess.run(["kill", f"-{signal.SIGUSR1.value}", str(pid)], check=True)


def _told(process: subprocess.Popen[str], lines: int) -> list[tuple[str, int]]:
    assert process.stdout is not None
    told = (process.stdout.readline().split() for _ in range(lines))
    return [(name, int(pid)) for name, pid in told]
