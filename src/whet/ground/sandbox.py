"""The contract of a sandbox: a command, what it may see, and how it ended."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from pathlib import Path
from typing import Protocol, TypeAlias

from whet.dataclass import dataclass
from whet.errors import AgentNotFound, AgentNotStarted, UsageError
from whet.model import plugins
from whet.model.run import Runner
from whet.model.suite import Ceilings


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


def find_program(command: Command) -> str:
    """The full path of the program, looked up as the command itself would be."""
    name = command.argv[0]
    if os.sep in name:
        found = str(command.cwd / name) if is_there(command.cwd / name) else None
    else:
        found = shutil.which(name, path=command.env.get("PATH", os.defpath))
    if found is None:
        raise AgentNotFound(f'there is no program "{name}"', hint="install it, or correct `command` of this runner")
    if not os.access(found, os.X_OK):
        raise AgentNotStarted(f'"{name}" cannot be executed: Permission denied')
    return found


def is_there(path: Path) -> bool:
    """Whether there is something at *path* that we can get to; what cannot be a path is not there either."""
    try:
        path.stat()
    except (OSError, ValueError):
        return False
    return True


_BEST = "bubblewrap"
_FALLBACK = "local"


def choose_sandbox(name: str) -> tuple[Sandbox, str | None]:
    """The sandbox called *name*, or for `auto` the best that works; and what a person should know about the choice."""
    if name != "auto":
        require_sandbox(name)
        return plugins.find("sandboxes", name)(), None
    state = plugins.find("sandboxes", _BEST).availability()
    if state.usable:
        return plugins.find("sandboxes", _BEST)(), None
    note = f"{state.reason}: agents run without a boundary and can see your files (--sandbox local)"
    return plugins.find("sandboxes", _FALLBACK)(), note


def require_sandbox(name: str) -> None:
    """Refuse to go on where the sandbox called *name* cannot be used here; for `auto` there is always one."""
    if name == "auto":
        return
    state: Availability = plugins.find("sandboxes", name).availability()
    if not state.usable:
        remedy = f"{state.remedy}, or use --sandbox local" if state.remedy else "use --sandbox local"
        raise UsageError(f"sandbox {name}: {state.reason}", hint=remedy)


def hold_network(sandbox: Sandbox, runners: Iterable[Runner]) -> tuple[str, ...]:
    """Refuse runners whose network was asked to be off and cannot be; what to know of those that go on all the same."""
    if sandbox.name != _FALLBACK:
        return ()
    asked = {runner.id: runner for runner in runners if runner.options.get("network") is False}
    strict = [name for name, runner in asked.items() if runner.options.get("network_required", True)]
    if strict:
        raise UsageError(
            "\n".join(f"runners.{name}.agent.network = false: the local sandbox cannot keep it" for name in strict),
            hint="use bubblewrap (`whet doctor` says what it needs), or set `network_required = false` beside it "
            "to run with the network",
        )
    return tuple(f"runner {name} has the network, although it says `network = false`" for name in asked)
