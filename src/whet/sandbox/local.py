"""The sandbox without a boundary: commands run below a supervisor, so nothing is left, but they see all files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from whet.sandbox.contract import Availability, Boundary, Command, Ended, Sandbox, Sink, Talk
from whet.sandbox.limits import disk_of, holding
from whet.sandbox.process.pool import end_all
from whet.sandbox.process.run import open_process, run_process


class LocalSandbox(Sandbox):
    """The fallback if bubblewrap cannot run."""

    name = "local"
    holds_network = False

    @classmethod
    def availability(cls) -> Availability:
        """Return that the sandbox can be used: it runs anywhere."""
        return Availability(usable=True)

    async def run(self, command: Command, boundary: Boundary, *, timeout_s: float, stdout: Sink, stderr: Sink) -> Ended:
        """Run *command*; see `Sandbox.run`."""
        # Only the ceilings of the boundary hold: nothing can be hidden without namespaces.
        with holding(boundary.ceilings, timeout_s) as hold:
            ended = await run_process(
                hold.command(command), timeout_s=timeout_s, stdout=stdout, stderr=stderr, disk=disk_of(boundary)
            )
            return hold.with_reached(ended)

    @asynccontextmanager
    async def open(self, command: Command, boundary: Boundary, *, stdout: Sink, stderr: Sink) -> AsyncIterator[Talk]:
        """Keep *command* running; see `Sandbox.open`."""
        with holding(boundary.ceilings, None) as hold:
            held = hold.command(command)
            async with open_process(held, stdout=stdout, stderr=stderr, disk=disk_of(boundary)) as talk:
                yield talk
            talk.ended = talk.ended and hold.with_reached(talk.ended)

    async def close(self) -> None:
        """End the supervisors."""
        await end_all()
