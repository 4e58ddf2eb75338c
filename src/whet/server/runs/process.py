"""A process of `whet run`: started so that it ends with us, watched, and ended in steps."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
from anyio.abc import Process

# Agents are given two seconds by their run; then the run is asked again, which ends everything at once.
_PATIENCE_S = (15.0, 5.0)


async def run_process(
    command: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path, ask_to_end: anyio.Event
) -> int:
    """Start *command* and wait for it; ends it in good time once *ask_to_end* is set, or when we are cancelled."""
    with log.open("ab") as output:
        process = await anyio.open_process(
            list(command), stdin=None, stdout=output, stderr=output, cwd=cwd, env=env, start_new_session=True
        )
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_when, ask_to_end, process)
            code = await process.wait()
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
    return code


async def _end_when(asked: anyio.Event, process: Process) -> None:
    await asked.wait()
    await _end(process)


async def _end(process: Process) -> None:
    """Ask twice, then insist; also whatever is left of its group."""
    for patience_s in _PATIENCE_S:
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
