"""Running without a boundary: a session of its own, and nothing left behind; files cannot be hidden."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from whet.sandbox.base import Availability, Boundary, Command, Ended, Sink, Talk
from whet.sandbox.ceilings import held_to, holding, judged
from whet.sandbox.process import open_process, run_process
from whet.sandbox.reaper import MARK, become_subreaper, reaper


class LocalSandbox:
    """The fallback where bubblewrap cannot run."""

    name = "local"

    def __init__(self) -> None:
        become_subreaper()
        self._numbers = itertools.count(1)

    @classmethod
    def availability(cls) -> Availability:
        """It runs anywhere."""
        return Availability(usable=True)

    async def run(self, command: Command, boundary: Boundary, *, timeout_s: float, stdout: Sink, stderr: Sink) -> Ended:
        """Run *command*; see `Sandbox.run`."""
        # What may be seen cannot be limited without namespaces.
        with holding(boundary.ceilings, timeout_s) as hold:
            async with self._marked(held_to(hold, command)) as marked:
                return judged(hold, await run_process(marked, timeout_s=timeout_s, stdout=stdout, stderr=stderr))

    @asynccontextmanager
    async def open(self, command: Command, boundary: Boundary, *, stdout: Sink, stderr: Sink) -> AsyncIterator[Talk]:
        """Keep *command* running; see `Sandbox.open`."""
        with holding(boundary.ceilings, None) as hold:
            async with (
                self._marked(held_to(hold, command)) as marked,
                open_process(marked, stdout=stdout, stderr=stderr) as talk,
            ):
                yield talk

    @asynccontextmanager
    async def _marked(self, command: Command) -> AsyncIterator[Command]:
        """The command with a mark by which all that it starts is found, and ended at the end."""
        mark = f"{os.getpid()}-{next(self._numbers)}"
        reaper.begin(mark)
        try:
            yield Command(argv=command.argv, env={**command.env, MARK: mark}, cwd=command.cwd, stdin=command.stdin)
        finally:
            with anyio.CancelScope(shield=True):
                await reaper.end(mark)

    async def close(self) -> None:
        """Nothing is left but what shed its mark, and the reaper ends that."""
        await reaper.end_all()
