"""The contract of a sandbox: a command, its boundary and its end; and which sandbox a run uses."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from msgspec import Struct, field

from whet import plugins
from whet.errors import AgentNotFound, AgentNotStarted, UsageError
from whet.model.run import Runner
from whet.model.suite import Ceilings

if TYPE_CHECKING:
    import socket

_BEST = "bubblewrap"
_FALLBACK = "local"


class Command(Struct, frozen=True, kw_only=True):
    """A program to start: its arguments, its whole environment, its working folder and its standard input."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    stdin: bytes = b""
    # Whether the program is one of this machine, also for a sandbox that has programs of its own.
    of_host: bool = False
    # Whether the kernel confines it; what makes a boundary of its own may have to change its user, or reach others.
    confined: bool = True


# In a private network every port is free; this one is none that programs under development like to use.
_INLET_PORT = 47115


class Inlet(Struct, frozen=True, kw_only=True):
    """The one address inside a network without others; `take` gets the listening socket before the command starts."""

    take: Callable[[socket.socket], object]
    port: int = _INLET_PORT

    @property
    def address(self) -> str:
        """Where it is, for programs inside."""
        return f"http://127.0.0.1:{self.port}"


class Boundary(Struct, frozen=True, kw_only=True):
    """What a process may see besides the system, which is read-only, and how much of the machine it may use.

    `shown_at` are paths at which another, writable folder is visible. The local sandbox cannot keep all of this: it
    can neither hide files nor show folders at other paths.
    """

    writable: tuple[Path, ...]
    readable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    # The suite and its settings: no installation around a program is shown if one of them is in it.
    apart: tuple[Path, ...] = ()
    network: bool = True
    # The one address of a network that is off; only for sandboxes that have inlets.
    inlet: Inlet | None = None
    ceilings: Ceilings = field(default_factory=Ceilings)
    shown_at: tuple[tuple[Path, Path], ...] = ()


class InImage(Struct, frozen=True, kw_only=True):
    """Where the commands of a container sandbox run; plain data, because it is sent to other processes.

    `engine` is the program that makes containers, and `owner` the whet that removes them.
    """

    engine: str
    image: str
    owner: str
    run: str = "-"
    attempt: str = "-"
    # Whether a command of the settings has installed programs into the image: then these come first.
    installs: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        """The options that label a container."""
        values = {"run": self.run, "attempt": self.attempt, "owner": self.owner}
        return tuple(part for name, value in values.items() for part in ("--label", f"whet.{name}={value}"))


# Receives output as it arrives. Raising ends the process and everything it started; the caller gets the exception.
Sink: TypeAlias = Callable[[bytes], None]


class Ended(Struct, frozen=True, kw_only=True):
    """How a process ended: with an exit code, by a signal, or stopped by us at its time limit.

    `reached` is the ceiling that it reached, which did not necessarily end it; `stopped` says that it counts as the
    end all the same. `dismissed` says that everything had been said and we closed its input: how it exits then says
    nothing.
    """

    exit_code: int | None
    signal: int | None
    timed_out: bool
    duration_s: float
    reached: str | None = None
    stopped: bool = False
    dismissed: bool = False


class Talk(Protocol):
    """A running process that reads what you send; `ended` says how it ended, after its context."""

    ended: Ended | None

    async def send(self, data: bytes) -> None:
        """Write all of *data* to its standard input; raises `BrokenPipeError` if it no longer reads."""

    async def over(self) -> None:
        """Wait until it has exited or a sink has raised; raises what the sink raised."""

    def paused(self) -> AbstractAsyncContextManager[None]:
        """Stop it with everything that it started, during the context."""


class Sandbox(Protocol):
    """Starts processes, and ends everything that they start.

    A sandbox that inherits from this class has the defaults below. `choose_sandbox` adds them to all others.
    """

    name: str
    # Whether it can turn the network off, and then leave one address open.
    holds_network: bool = True
    has_inlets: bool = False
    # Whether the agent may be asked for another turn.
    goes_on: bool = True
    # Whether commands run in an image, which has programs of its own.
    in_image: bool = False

    @property
    def workdir(self) -> Path | None:
        """The working folder of commands, if the sandbox has one of its own."""
        return None

    @property
    def homes(self) -> tuple[Path, Path] | None:
        """The home and the temporary folder, if the sandbox was started with them before its attempt."""
        return None

    @property
    def place(self) -> InImage | None:
        """The engine and the image of a container."""
        return None

    @classmethod
    def availability(cls) -> Availability:
        """Return whether it can be used on this machine; asked before anything runs."""

    async def run(self, command: Command, boundary: Boundary, *, timeout_s: float, stdout: Sink, stderr: Sink) -> Ended:
        """Run *command* to its end.

        Returns only when neither the process nor anything it started is running, also when it is cancelled.
        Raises `AgentNotFound` if the program is missing, `AgentNotStarted` if the system refuses to start it,
        and `SandboxError` if the boundary cannot be set up.
        """

    def open(
        self, command: Command, boundary: Boundary, *, stdout: Sink, stderr: Sink
    ) -> AbstractAsyncContextManager[Talk]:
        """Start *command* and keep it running during the context; its input stays open after `Command.stdin`.

        At the end, close its input so that it can end by itself, and end it after the usual grace. Nothing that it
        started is running afterwards. Raises as `run` does.
        """

    async def close(self) -> None:
        """End whatever is left."""


class _PlainSandbox(Sandbox):
    """A sandbox of a third party that has only the methods, completed with the defaults of the contract."""

    def __init__(self, sandbox: Any) -> None:
        self._sandbox = sandbox
        self.name = sandbox.name
        self.holds_network = getattr(sandbox, "holds_network", True)
        self.has_inlets = bool(getattr(sandbox, "has_inlets", False))
        self.in_image = bool(getattr(sandbox, "in_image", False))

    @classmethod
    def availability(cls) -> Availability:
        """Return that the sandbox can be used: it was asked before."""
        return Availability(usable=True)

    async def run(self, command: Command, boundary: Boundary, *, timeout_s: float, stdout: Sink, stderr: Sink) -> Ended:
        """Run *command*; see `Sandbox.run`."""
        ended: Ended = await self._sandbox.run(command, boundary, timeout_s=timeout_s, stdout=stdout, stderr=stderr)
        return ended

    def open(
        self, command: Command, boundary: Boundary, *, stdout: Sink, stderr: Sink
    ) -> AbstractAsyncContextManager[Talk]:
        """Keep *command* running; see `Sandbox.open`."""
        talk: AbstractAsyncContextManager[Talk] = self._sandbox.open(command, boundary, stdout=stdout, stderr=stderr)
        return talk

    async def close(self) -> None:
        """End whatever is left."""
        await self._sandbox.close()


class Availability(Struct, frozen=True, kw_only=True):
    """Whether a sandbox can be used on this machine; if not, why, and what to do."""

    usable: bool
    reason: str = ""
    remedy: str = ""
    details: Mapping[str, str] = field(default_factory=dict)


def find_program(command: Command) -> str:
    """Return the full path of the program, looked up as the command would; raises if it is missing."""
    name = command.argv[0]
    if os.sep in name:
        path = str(command.cwd / name) if is_there(command.cwd / name) else None
    else:
        path = shutil.which(name, path=command.env.get("PATH", os.defpath))
    if path is None:
        raise no_program(name)
    if not os.access(path, os.X_OK):
        raise AgentNotStarted(f'"{name}" cannot be executed: Permission denied')
    return path


def no_program(name: str) -> AgentNotFound:
    """Return the error for a program that does not exist."""
    return AgentNotFound(f'there is no program "{name}"', hint="install it, or correct `command` of this runner")


def is_there(path: Path) -> bool:
    """Return whether *path* exists and we can reach it; False for text that cannot be a path."""
    # `Path.exists` raises for a folder that we may not read.
    return os.path.exists(path)


def probe_early(name: str) -> None:
    """Begin to find out whether the sandbox *name* can be used here, so that `choose_sandbox` need not wait."""
    if name in ("auto", _BEST):
        plugins.find("sandboxes", _BEST).probe_early()


def choose_sandbox(name: str) -> tuple[Sandbox, str | None]:
    """Return the sandbox *name*, or the best that works for `auto`; and a note about the choice, if there is one."""
    if name != "auto":
        require_sandbox(name)
        sandbox = plugins.find("sandboxes", name)()
        return sandbox if Sandbox in type(sandbox).__mro__ else _PlainSandbox(sandbox), None
    state = plugins.find("sandboxes", _BEST).availability()
    if state.usable:
        return plugins.find("sandboxes", _BEST)(), None
    note = f"{state.reason}: agents run without a boundary and can read, change and delete your files (--sandbox local)"
    return plugins.find("sandboxes", _FALLBACK)(), note


def why_unbounded(asked: str, sandbox: Sandbox) -> Availability | None:
    """Return why *sandbox* is no boundary although no setting chose that: *asked* is what the settings say."""
    if asked != "auto" or sandbox.name != _FALLBACK:
        return None
    state: Availability = plugins.find("sandboxes", _BEST).availability()
    return state


def require_sandbox(name: str) -> None:
    """Raise if the sandbox *name* cannot be used here; for `auto` there is always one."""
    if name == "auto":
        return
    state: Availability = plugins.find("sandboxes", name).availability()
    if not state.usable:
        remedy = f"{state.remedy}, or use --sandbox local" if state.remedy else "use --sandbox local"
        raise UsageError(f"sandbox {name}: {state.reason}", hint=remedy)


def require_network_off(sandbox: Sandbox, runners: Iterable[Runner]) -> tuple[str, ...]:
    """Raise for runners whose network must be off and cannot be; return a note for each that may run with it."""
    if sandbox.holds_network:
        return ()
    asked = {runner.id: runner for runner in runners if runner.options.get("network") is False}
    strict = [name for name, runner in asked.items() if runner.options.get("network_required", True)]
    if strict:
        raise UsageError(
            "\n".join(
                f"runners.{name}.agent.network = false: the {sandbox.name} sandbox cannot turn the network off"
                for name in strict
            ),
            hint="use bubblewrap (`whet doctor` says what it needs), or set `network_required = false` as well "
            "to run with the network",
        )
    return tuple(f"runner {name} has the network, although it says `network = false`" for name in asked)
