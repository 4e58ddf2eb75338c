"""Running without a boundary: a session of its own, and nothing left behind; files cannot be hidden."""

from __future__ import annotations

import itertools
import os

import anyio

from whet.sandbox.base import Availability, Boundary, Command, Ended, Sink
from whet.sandbox.ceilings import held_to, holding, judged
from whet.sandbox.process import run_process
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
        if not boundary.ceilings:
            return await self._run(command, timeout_s=timeout_s, stdout=stdout, stderr=stderr)
        with holding(boundary.ceilings, timeout_s) as hold:
            held = held_to(hold, command)
            return judged(hold, await self._run(held, timeout_s=timeout_s, stdout=stdout, stderr=stderr))

    async def _run(self, command: Command, *, timeout_s: float, stdout: Sink, stderr: Sink) -> Ended:
        mark = f"{os.getpid()}-{next(self._numbers)}"
        marked = Command(argv=command.argv, env={**command.env, MARK: mark}, cwd=command.cwd, stdin=command.stdin)
        reaper.begin(mark)
        try:
            return await run_process(marked, timeout_s=timeout_s, stdout=stdout, stderr=stderr)
        finally:
            with anyio.CancelScope(shield=True):
                await reaper.end(mark)

    async def close(self) -> None:
        """Nothing is left but what shed its mark, and the reaper ends that."""
        await reaper.end_all()
