"""The contract of a sandbox: a command, what it may see, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

from whet.model.ceilings import Ceilings


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program to start: its own arguments, its whole environment, and what it reads from standard input."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    stdin: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """What a process may see beyond the system, which it sees read-only, and how much of the machine it may take.

    A boundary is a promise only where the sandbox can keep it; the local one cannot hide files, nor show writable
    folders at other paths (`shown_at`: the path, and the folder that is seen there).
    """

    writable: tuple[Path, ...]
    readable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    network: bool = True
    ceilings: Ceilings = field(default_factory=Ceilings)
    shown_at: tuple[tuple[Path, Path], ...] = ()


# Receives output as it comes. Raising ends the process and everything it started; the exception reaches the caller.
Sink: TypeAlias = Callable[[bytes], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a process ended: by itself with an exit code, by a signal, or stopped by us at its time limit.

    `reached` tells which of its ceilings it ran into, which need not have ended it.
    """

    exit_code: int | None
    signal: int | None
    timed_out: bool
    duration_s: float
    reached: str | None = None


class Talk(Protocol):
    """A process that is running and reads what it is sent."""

    async def send(self, data: bytes) -> None:
        """Write all of *data* to its standard input; `BrokenPipeError` where it reads no more."""

    async def over(self) -> None:
        """Wait until it has exited, or a sink has had enough of it; what the sink raised is raised here."""


class Sandbox(Protocol):
    """Starts processes and sees to it that none of them outlives its call."""

    name: str

    async def run(self, command: Command, boundary: Boundary, *, timeout_s: float, stdout: Sink, stderr: Sink) -> Ended:
        """Run *command* to its end.

        Returns only when neither the process nor anything it started is running any more, also when it is cancelled.
        Raises `AgentNotFound` where the program is missing, `AgentNotStarted` where the system refuses to start it,
        and `SandboxError` where the boundary cannot be set up.
        """

    def open(
        self, command: Command, boundary: Boundary, *, stdout: Sink, stderr: Sink
    ) -> AbstractAsyncContextManager[Talk]:
        """Start *command* and keep it for as long as the context lasts; its input stays open behind `Command.stdin`.

        At the end its input is closed, so that it can end by itself; after the usual grace it is ended. Nothing that
        it started is running any more afterwards. Raises as `run` does.
        """

    async def close(self) -> None:
        """End whatever is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """Whether a sandbox can be used on this machine, why not, and what to do about it."""

    usable: bool
    reason: str = ""
    remedy: str = ""
    details: Mapping[str, str] = field(default_factory=dict)
