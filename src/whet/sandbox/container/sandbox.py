"""The container sandbox: each command in a container of its own, from an image, with only the declared folders."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from whet.errors import AgentError, AgentNotStarted, SandboxError, UsageError
from whet.model.suite import Ceilings
from whet.sandbox.container._calls import filter_options, holds_modes
from whet.sandbox.container.host_programs import CarriedCommand, carry, has_program
from whet.sandbox.container.leftovers import handing_over
from whet.sandbox.contract import (
    Availability,
    Boundary,
    Command,
    Ended,
    InImage,
    Sandbox,
    Sink,
    Talk,
    is_there,
    no_program,
)
from whet.sandbox.engine import Engine, engine_state
from whet.sandbox.gateway_port import network_of
from whet.sandbox.limits import disk_of
from whet.sandbox.process.output import OutputHead
from whet.sandbox.process.pool import end_all
from whet.sandbox.process.run import open_process, run_process
from whet.workspace.copy import drop_privileges

# How both engines say that it was not the command that failed.
_OF_ENGINE, _NOT_EXECUTABLE, _NOT_THERE = 125, 126, 127
_KILLED, _TERMINATED = 137, 143
# How the first process of a container says that it could not start the command.
_INIT_SAYS = ("ERROR (catatonit", "[FATAL tini")
_OF_INIT = (1, _NOT_EXECUTABLE, _NOT_THERE)


class ContainerSandbox(Sandbox):
    """Runs each command in a new container and removes it; the file system of the image is read-only."""

    name = "container"
    holds_network = True
    has_inlets = True
    in_image = True

    @classmethod
    def availability(cls) -> Availability:
        """Return whether podman or docker answers here."""
        return engine_state()

    def __init__(self, place: InImage | None = None) -> None:
        self._place = place

    @property
    def place(self) -> InImage:
        """The engine and the image; raises if none is named."""
        if self._place is None:
            raise UsageError("the container sandbox needs an image", hint='set run.image = "NAME", or a folder')
        return self._place

    async def run(self, command: Command, boundary: Boundary, *, timeout_s: float, stdout: Sink, stderr: Sink) -> Ended:
        """Run *command*; see `Sandbox.run`."""
        said = OutputHead(stderr)
        async with self._container(command, boundary) as (outer, container):
            disk = disk_of(boundary)
            ended = await run_process(outer, timeout_s=timeout_s, stdout=stdout, stderr=said, disk=disk)
            return ended if ended.timed_out or ended.stopped else await container.explained(ended, said.text)

    @asynccontextmanager
    async def open(self, command: Command, boundary: Boundary, *, stdout: Sink, stderr: Sink) -> AsyncIterator[Talk]:
        """Keep *command* running; see `Sandbox.open`."""
        said = OutputHead(stderr)
        async with self._container(command, boundary) as (outer, container):
            try:
                async with open_process(outer, stdout=stdout, stderr=said, disk=disk_of(boundary)) as talk:
                    if not container.engine.is_podman:
                        # The processes of other engines are not below ours.
                        talk.paused = container.paused  # type: ignore[method-assign]
                    yield talk
            except BrokenPipeError:
                # Perhaps because there is no such program.
                if talk.ended is not None:
                    await container.explained(talk.ended, said.text)
                raise
            if talk.ended is not None:
                talk.ended = await container.explained(talk.ended, said.text)

    @asynccontextmanager
    async def _container(self, command: Command, boundary: Boundary) -> AsyncIterator[tuple[Command, _Container]]:
        place = self.place
        engine, name = Engine(place.engine), new_name()
        carried = await carry(command, place)
        env = inner_env(carried)
        async with AsyncExitStack() as stack:
            network = await stack.enter_async_context(network_of(boundary, engine))
            env_words = stack.enter_context(env_options(env))
            calls = stack.enter_context(filter_options(engine))
            argv = (
                *("run", "--interactive", "--pull", "never", "--name", name, *place.labels, *engine.init),
                *(*streams(engine), *_user(engine), "--read-only"),
                *("--cap-drop", "ALL", "--security-opt", "no-new-privileges", *calls),
                *("--network", network, *limits(boundary.ceilings)),
                *mounts(boundary, carried, engine),
                *("--workdir", str(command.cwd), *env_words, "--entrypoint", carried.argv[0]),
                *(place.image, *carried.argv[1:]),
            )
            try:
                container = _Container(engine, name, place.image, command, boundary)
                yield engine.command(*argv, stdin=command.stdin, env=of_lines(env)), container
            finally:
                # Also if a signal ends it: whatever runs in it would go on.
                with anyio.CancelScope(shield=True):
                    await engine.remove(name)
                    if not holds_modes(engine):
                        await anyio.to_thread.run_sync(drop_privileges, boundary.writable)

    async def close(self) -> None:
        """End the supervisors."""
        await end_all()


class _Container(Struct, frozen=True):
    """A container, and why it ended."""

    engine: Engine
    name: str
    image: str
    command: Command
    boundary: Boundary

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Let the engine stop everything in it, during the context."""
        said = await self.engine.call("pause", self.name)
        if not said.ok:
            raise SandboxError(f"the container cannot be paused while its work is graded: {said.why}")
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await self.engine.call("unpause", self.name)

    async def explained(self, ended: Ended, said: str) -> Ended:
        """Raise if it was not the command that failed; note a ceiling that was reached."""
        program, ceilings = self.command.argv[0], self.boundary.ceilings
        if ended.exit_code in (_OF_ENGINE, _NOT_EXECUTABLE, _NOT_THERE):
            # The command may end with the same code and say the same: what the engine knows decides.
            if not _has_started(await self.engine.state(self.name)):
                raise refusal(ended.exit_code, program, said)
        elif ended.signal is not None or ended.exit_code == _TERMINATED:
            # We ended it, perhaps while a slow engine was still looking for the program.
            if not _has_started(await self.engine.state(self.name)):
                await anyio.to_thread.run_sync(self._look_for, program)
        elif ended.exit_code == _KILLED and ceilings.memory_mb is not None:
            state = await self.engine.state(self.name)
            if state.get("OOMKilled"):
                return replace(ended, reached=f"{ceilings.memory_mb:,} MB of memory")
        if ended.exit_code in _OF_INIT and said.startswith(_INIT_SAYS):
            # Such words can be the command's own too, so look for the program.
            await anyio.to_thread.run_sync(self._look_for, program)
        return ended

    def _look_for(self, program: str) -> None:
        """Raise if there is no such program in the image or in what is mounted."""
        path = self.command.cwd / program
        shown = (*self.boundary.writable, *self.boundary.readable)
        if "/" in program and any(path.is_relative_to(folder) for folder in shown):
            if not path.is_file():
                raise no_program(program)
            if not os.access(path, os.X_OK):
                raise AgentNotStarted(f'"{program}" cannot be executed: Permission denied')
        elif not has_program(self.engine.program, self.image, program):
            raise refusal(_NOT_THERE, program, "")


def _has_started(state: Mapping[str, object]) -> bool:
    return not str(state.get("StartedAt", "0001")).startswith("0001")


def refusal(code: int | None, program: str, said: str) -> AgentError | SandboxError:
    """Return the error for a container that did not start."""
    why = said.strip().splitlines()[-1] if said.strip() else f"exit code {code}"
    if code == _NOT_THERE:
        error = no_program(program)
        error.message += " in the image"
        return error
    if code == _NOT_EXECUTABLE and "exec" in why:
        return AgentNotStarted(f'"{program}" cannot be executed in the image: {why}')
    return SandboxError(f"the container did not start: {why}")


def new_name() -> str:
    """Return a name for a container."""
    return f"whet-{secrets.token_hex(8)}"


def streams(engine: Engine) -> tuple[str, ...]:
    """Return the options that give a command our own pipes, which are larger than those of the engine.

    And no volumes that its image asks for, which would be neither in its layer nor limited; docker always makes them.
    """
    own = ("--log-driver", "passthrough", "--image-volume", "ignore")
    return own if engine.is_podman else ("--log-driver", "none")


def _user(engine: Engine) -> tuple[str, ...]:
    """Return the options by which files belong to us: root inside of podman is who started it."""
    return ("--user", "0:0") if engine.is_podman else ("--user", f"{os.getuid()}:{os.getgid()}")


def limits(ceilings: Ceilings) -> Iterator[str]:
    """Yield the options for *ceilings*."""
    if ceilings.memory_mb is not None:
        yield from ("--memory", f"{ceilings.memory_mb}m", "--memory-swap", f"{ceilings.memory_mb}m")
    if ceilings.processes is not None:
        yield from ("--pids-limit", str(ceilings.processes))
    if ceilings.cpus is not None:
        yield from ("--cpus", f"{ceilings.cpus:g}")


def mounts(boundary: Boundary, carried: CarriedCommand, engine: Engine) -> Iterator[str]:
    """Yield the options for what is visible, outer folders first."""
    for folder in ("/tmp", "/var/tmp", "/run"):  # noqa: S108 - inside of the container
        yield from ("--tmpfs", f"{folder}:rw,exec,mode=1777,size={boundary.ceilings.in_memory_mb}m")
    layers = [(path, 0, bound(path, path, "ro")) for path in boundary.readable if is_there(path)]
    layers += [(inside, 0, bound(path, inside, "ro")) for inside, path in carried.mounts]
    layers += [(path, 1, _covered(path, engine)) for path in _hidden(boundary)]
    layers += [(path, 2, bound(path, path, "rw")) for path in boundary.writable]
    layers += [(path, 3, bound(folder, path, "rw")) for path, folder in boundary.shown_at]
    # Of two for one path, the engine takes only one: the later kind.
    chosen = {path: (kind, options) for path, kind, options in sorted(layers, key=lambda layer: layer[1])}
    for _, (_, options) in sorted(chosen.items(), key=lambda layer: len(layer[0].parts)):
        yield from options


def _hidden(boundary: Boundary) -> Iterator[Path]:
    """Yield only what would be visible."""
    seen = (*boundary.readable, *boundary.writable)
    for path in boundary.hidden:
        outer = any(path != other and path.is_relative_to(other) for other in boundary.hidden)
        if not outer and is_there(path) and any(path != other and path.is_relative_to(other) for other in seen):
            yield path


def _covered(path: Path, engine: Engine) -> tuple[str, ...]:
    if not path.is_dir():
        return bound(Path("/dev/null"), path, "ro")
    # Podman would copy into the new folder what it should hide.
    how = "type=tmpfs,tmpfs-size=1m,notmpcopyup" if engine.is_podman else "type=tmpfs,tmpfs-size=1m"
    return ("--mount", f"{how},destination={path}")


def bound(path: Path, inside: Path, mode: str) -> tuple[str, ...]:
    """Return the options that show *path* inside."""
    if ":" in f"{path}{inside}":
        raise SandboxError(f"{path} cannot be shown in a container: it has a colon in its name")
    return ("--volume", f"{path}:{inside}:{mode}")


def inner_env(carried: CarriedCommand) -> dict[str, str]:
    """Return the variables of a command, with the PATH of the image unless somebody chose another."""
    env = dict(carried.env)
    if env.get("PATH") == os.environ.get("PATH"):
        env.pop("PATH", None)
    return env


def of_lines(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of several lines, which a file cannot hold: the engine passes them on from its own."""
    variables = {name: value for name, value in env.items() if "\n" in value or "\r" in value}
    if clash := next((name for name in variables if name in os.environ and name.startswith(_OF_ENGINES)), None):
        raise SandboxError(f"variable {clash} has a line break in it, and is one of the engine itself")
    return variables


@contextmanager
def env_options(env: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Write variables into a file that only we can read: what is among arguments, everybody can read."""
    several = of_lines(env)
    with handing_over() as folder:
        file = folder / "env"
        lines = (f"{name}={value}\n" for name, value in env.items() if name not in several)
        file.write_text("".join(lines), encoding="utf-8", errors="surrogateescape")
        yield ("--env-file", str(file), *(part for name in several for part in ("--env", name)))


_OF_ENGINES = ("PATH", "HOME", "XDG_", "CONTAINER", "DOCKER", "BUILDAH", "STORAGE", "TMPDIR", "LD_")
