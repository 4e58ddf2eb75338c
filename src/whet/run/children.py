"""Processes of `whet` that a server of ours starts: their command, and how they end together with what they run."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

import anyio
from anyio.abc import Process

# A run gives its agents two seconds to end. The second signal ends everything at once.
_ENDING_PATIENCE_S = (15.0, 5.0)


def child_command(arguments: Sequence[str], *, most_bytes: int = 0) -> list[str]:
    """Return the command of a `whet` that ends when we do, with at most so many bytes of memory; 0 is no limit."""
    return [sys.executable, "-P", "-m", "whet.run.child", str(os.getpid()), str(most_bytes), *arguments]


async def end_child(process: Process) -> None:
    """Ask the process twice to end, then kill it and its group; it has to lead a session of its own."""
    for patience_s in _ENDING_PATIENCE_S:
        if process.returncode is not None:
            return
        _signal(process.terminate)
        with anyio.move_on_after(patience_s):
            await process.wait()
    if process.returncode is None:
        _signal(lambda: os.killpg(process.pid, signal.SIGKILL))
        await process.wait()


def _signal(send: Callable[[], object]) -> None:
    with suppress(ProcessLookupError):
        send()
