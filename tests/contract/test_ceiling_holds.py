"""A process stays below its ceilings, in every sandbox, by a control group and by limits of the system."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from whet import plugins
from whet.errors import AgentNotFound, AgentNotStarted
from whet.model.suite import Ceilings
from whet.sandbox import limits as holds
from whet.sandbox.contract import Boundary, Command, Ended, Sandbox
from whet.sandbox.process.cgroups import CONTROLLERS, _sweep, usable_places

HOG = "held = bytearray(400 * 1024 * 1024); print(len(held))"
FORKS = """
import os, resource, time
made, limit = 0, resource.getrlimit(resource.RLIMIT_NPROC)[0]
try:
    for _ in range(200):
        if os.fork() == 0:
            time.sleep(30); os._exit(0)
        made += 1
except BlockingIOError:
    print("refused after", made, "of", limit, flush=True)
os._exit(3)
"""
BUSY = """
import resource, time
ends = time.monotonic() + 1.5
while time.monotonic() < ends: pass
used = resource.getrusage(resource.RUSAGE_SELF)
print((used.ru_utime + used.ru_stime) / 1.5)
"""


def groups_hold() -> bool:
    """Whether control groups can be made here for everything that has a ceiling."""
    return {name for place in usable_places() for name in place.controllers} == set(CONTROLLERS)


@pytest.fixture(params=[pytest.param("control group", marks=pytest.mark.root), "limits"])
def by_group(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Each way of holding in turn."""
    if request.param == "control group":
        if not groups_hold():
            pytest.skip("control groups cannot be made here")
        return True
    # A machine where no group may be made; nothing else about it is made up.
    monkeypatch.setattr(holds, "places", lambda _: ())
    return False


@pytest.fixture
def in_group() -> None:
    """For what only a control group can hold."""
    if not groups_hold():
        pytest.skip("control groups cannot be made here")


class Place:
    """A sandbox, a folder to work in, and what was printed."""

    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self._sandbox, self._folder = sandbox, folder
        self.out, self.err = bytearray(), bytearray()

    def run(self, *argv: str, timeout_s: float = 30, **ceilings: float) -> Ended:
        async def work() -> Ended:
            return await self._sandbox.run(
                Command(argv=argv, env={"PATH": os.environ["PATH"]}, cwd=self._folder),
                Boundary(writable=(self._folder,), ceilings=Ceilings(**ceilings)),  # type: ignore[arg-type]
                timeout_s=timeout_s,
                stdout=self.out.extend,
                stderr=self.err.extend,
            )

        return anyio.run(work)

    def python(self, program: str, timeout_s: float = 30, **ceilings: float) -> Ended:
        return self.run(sys.executable, "-c", program, timeout_s=timeout_s, **ceilings)


@pytest.fixture
def place(sandbox_name: str, tmp_path: Path) -> Iterator[Place]:
    before = _groups_left()
    yield Place(plugins.find("sandboxes", sandbox_name)(), tmp_path)
    assert _groups_left() == before


def _groups_left() -> set[Path]:
    return {group for place in usable_places() for group in place.folder.glob(f"whet-{os.getpid()}-*")}


def test_a_process_that_takes_too_much_memory_is_ended(place: Place, by_group: bool) -> None:
    ended = place.python(HOG, memory_mb=100)

    assert ended.exit_code != 0
    assert place.out == b""
    assert ended.reached == ("100 MB of memory" if by_group else None)


def test_one_that_takes_less_is_left_alone(place: Place, by_group: bool) -> None:
    ended = place.python(HOG, memory_mb=1000, processes=50, cpus=2)

    assert (ended.exit_code, ended.reached) == (0, None)
    assert place.out.strip() == b"419430400"


@pytest.mark.root
@pytest.mark.usefixtures("in_group")
def test_the_memory_of_all_it_starts_is_taken_together(place: Place) -> None:
    child = f"{sys.executable} -c 'held = bytearray(60 * 1024 * 1024); import time; time.sleep(1)'"

    ended = place.run("sh", "-c", f"{child} & {child} & {child} & wait; exit 3", memory_mb=100)

    assert ended.reached == "100 MB of memory"


def test_a_process_that_forks_without_end_is_refused(
    place: Place, by_group: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not by_group and os.getuid() == 0:
        # The system limits no processes of root, so the least that whet owes is to say so.
        assert "processes are not limited for root" in (holds.weaknesses(Ceilings(processes=20)) or "")
        return

    counted: list[int] = []
    count = holds._tasks_of
    monkeypatch.setattr(holds, "_tasks_of", lambda user: counted.append(count(user)) or counted[-1])

    ended = place.python(FORKS, processes=20)

    assert ended.exit_code == 3
    assert place.out.startswith(b"refused after")
    made, limit = (int(word) for word in place.out.split()[2::2])
    if by_group:
        assert made <= 20
    else:
        # The system counts all processes of the user: as many as end meanwhile, by other tests, may be added.
        assert limit == counted[-1] + 20
        assert made < 200
    assert ended.reached == ("20 processes" if by_group else None)


@pytest.mark.root
@pytest.mark.usefixtures("in_group")
def test_a_busy_process_gets_its_share_of_the_cpus(place: Place) -> None:
    ended = place.python(BUSY, cpus=0.3)

    assert ended.exit_code == 0
    assert float(place.out) < 0.6


def test_without_groups_it_gets_the_cpu_time_that_its_share_comes_to(
    sandbox_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holds, "places", lambda _: ())
    place = Place(plugins.find("sandboxes", sandbox_name)(), tmp_path)

    ended = place.python("while True: pass", timeout_s=20, cpus=0.05)

    assert not ended.timed_out
    assert ended.reached == "1 s of CPU time"


def test_a_ceiling_above_the_hard_limit_is_no_mistake(
    place: Place, by_group: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    hard = 500 * 1024 * 1024
    monkeypatch.setattr(resource, "getrlimit", lambda _: (hard, hard))

    ended = place.run("sh", "-c", "exit 0", memory_mb=2000)

    assert ended.exit_code == 0


def test_a_missing_program_is_still_told_from_one_that_fails(place: Place, by_group: bool) -> None:
    with pytest.raises(AgentNotFound):
        place.run("there-is-no-such-program", memory_mb=100)


def test_a_program_without_permission_is_told_too(place: Place, by_group: bool, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("#!/bin/sh\n")

    with pytest.raises((AgentNotStarted, AgentNotFound)):
        place.run("./plain", memory_mb=100)


def test_a_person_is_told_what_limits_of_the_system_cannot_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holds, "places", lambda _: ())

    said = holds.weaknesses(Ceilings(memory_mb=100, cpus=1))

    assert said is not None
    assert "memory is that of each single process" in said
    assert "CPUs become CPU time" in said
    assert holds.weaknesses(Ceilings()) is None


def test_groups_of_processes_that_have_ended_are_swept_away_and_others_are_left(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    names = {
        "ended": f"whet-{ended.pid}-1",
        "ours": f"whet-{os.getpid()}-1",
        "no number": "whet-x-1",
        "foreign": "other",
    }
    for name in names.values():
        (tmp_path / name).mkdir()

    _sweep(tmp_path)

    assert {what for what, name in names.items() if (tmp_path / name).exists()} == {"ours", "no number", "foreign"}
