"""A process that the kernel continues while it is paused does nothing, or is told."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest

from whet import plugins
from whet.errors import WorkspaceSpoiled
from whet.sandbox.contract import Boundary, Command

# A change of the folder, a timer or the death of a parent makes the kernel send SIGCONT, even to a stopped process.
_BY_FOLDER = """
import fcntl, os, signal
folder = os.open(".", os.O_RDONLY)
fcntl.fcntl(folder, fcntl.F_SETSIG, signal.SIGCONT)
fcntl.fcntl(folder, fcntl.F_NOTIFY, fcntl.DN_CREATE | fcntl.DN_MODIFY | fcntl.DN_MULTISHOT)
"""
_BY_TIMER = """
import ctypes, signal
class Event(ctypes.Structure):
    _fields_ = [("value", ctypes.c_void_p), ("signo", ctypes.c_int), ("notify", ctypes.c_int), ("_", ctypes.c_int * 12)]
libc = ctypes.CDLL(None, use_errno=True)
timer = ctypes.c_void_p()
assert libc.timer_create(1, ctypes.byref(Event(None, signal.SIGCONT, 0)), ctypes.byref(timer)) == 0
each = (ctypes.c_long * 4)(0, 50_000_000, 0, 50_000_000)
assert libc.timer_settime(timer, 0, each, None) == 0
"""
_WORK = """
import os, time
open("begun", "w").close()
while not os.path.exists("answer"):
    time.sleep(0.01)
open("copied", "w").close()
time.sleep(600)
"""


@pytest.mark.parametrize("waking", [pytest.param(_BY_FOLDER, id="folder"), pytest.param(_BY_TIMER, id="timer")])
def test_a_process_that_the_kernel_wakes_while_it_is_paused_is_told(
    sandbox_name: str, tmp_path: Path, waking: str
) -> None:
    sandbox = plugins.find("sandboxes", sandbox_name)()
    boundary = Boundary(writable=(tmp_path,), readable=(Path(sys.prefix), Path(sys.base_prefix)))
    command = Command(argv=(sys.executable, "-I", "-c", waking + _WORK), cwd=tmp_path, env={})

    def ignored(chunk: bytes) -> None:
        """Nothing is printed."""

    async def work() -> None:
        async with sandbox.open(command, boundary, stdout=ignored, stderr=ignored) as talk:
            while not (tmp_path / "begun").exists():  # noqa: ASYNC110 - a file says nothing
                await anyio.sleep(0.01)
            async with talk.paused():
                (tmp_path / "answer").touch()
                with anyio.move_on_after(10):
                    while not (tmp_path / "copied").exists():  # noqa: ASYNC110 - as above
                        await anyio.sleep(0.01)
                assert (tmp_path / "copied").exists()

    with pytest.raises(WorkspaceSpoiled, match="went on while it was graded"):
        anyio.run(work)
