"""The container of a task: one for a whole attempt, in which the agent works and the verifier decides afterwards.

The container is a sandbox: each command is executed in it. It starts with the first one, because only then it is known
what to mount. Everything that the agent started ends before anything else is executed, and `/tests` is empty until
then.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
from msgspec import Struct, field
from msgspec.structs import replace

from whet.errors import EnvironmentFailed, SandboxError
from whet.model.suite import MOST_FILES, Ceilings
from whet.model.task import Healthcheck, TaskEnvironment, TaskStep
from whet.sandbox.container._runtime import RunningContainer, mark_options
from whet.sandbox.container._services import Services
from whet.sandbox.container.environment import ceilings_of, from_host
from whet.sandbox.container.host_programs import PLACE, CarriedCommand, carry, has_program
from whet.sandbox.container.sandbox import (
    bound,
    env_options,
    inner_env,
    limits,
    new_name,
    of_lines,
    refusal,
    streams,
)
from whet.sandbox.contract import Availability, Boundary, Command, Ended, InImage, Inlet, Sink, Talk, is_there
from whet.sandbox.engine import LEFT_LABEL, Engine
from whet.sandbox.gateway_port import opened
from whet.sandbox.process.disk import NOTHING, Disk
from whet.sandbox.process.output import OutputHead
from whet.sandbox.process.pool import end_all
from whet.sandbox.process.procfs import members, space_of
from whet.sandbox.process.run import open_process, run_process
from whet.workspace.copy import remove_tree

TESTS, LOGS = Path("/tests"), Path("/logs")
_PARTS = ("agent", "verifier", "artifacts")
_PATIENCE_S = 120.0
# How the engine, and the runtime below it, say that there is no such program.
_NOT_STARTED, _NOT_THERE = (1, 126, 127, 255), 127
_ENGINE_SAYS = re.compile(r"Error: |OCI runtime|runc exec|exec failed|time=|[0-9TZ:.-]+ ")
# Waits for the end of its input, which is ours, without a program that the agent could replace. An entrypoint may
# have closed the input.
_STAY = 'echo "$0"; while read -r _; do :; done; exec sleep 86400'


async def workdir_of(engine: Engine, image: str) -> str:
    """Return the folder that commands of an image start in."""
    return (await engine.call("image", "inspect", "--format", "{{.Config.WorkingDir}}", image)).out.strip() or "/"


class TaskContainer(Struct, eq=False):
    """The sandbox of one attempt; `folder` is its place on this machine, for what both sides see."""

    name = "container"
    holds_network = True
    has_inlets = True
    in_image = True

    place: InImage
    environment: TaskEnvironment
    folder: Path
    workdir: Path
    network: bool
    keep_services: bool = False
    user: str | None = None
    ceilings: Ceilings = field(default_factory=Ceilings)
    # The images of separate verifiers, by the name of the step.
    verifier_images: Mapping[str, str] = field(default_factory=dict)
    # An image of a verifier's own has its tests in it.
    shows_tests: bool = True
    # Whether the rewards so far allow another step.
    goes_on: bool = True
    # What is put there before the next command of the agent.
    _next: TaskStep | None = None
    # The home and the temporary folder that it was started with, if that was before its trial began.
    homes: tuple[Path, Path] | None = None
    _started_with: tuple[Boundary, CarriedCommand] | None = None
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _name: str | None = None
    _first: int = 0
    _running: RunningContainer | None = None
    _services: Services | None = None
    _mounted: tuple[Path, ...] = ()
    _disk: Disk | None = None

    @classmethod
    def availability(cls) -> Availability:
        """Return that the sandbox can be used: the engine was asked before."""
        return Availability(usable=True)

    @property
    def engine(self) -> Engine:
        """What makes containers."""
        return Engine(self.place.engine)

    @property
    def tests(self) -> Path:
        """What is visible at `/tests`, read-only; empty until the agent is done."""
        return self.folder / "tests"

    def logs(self, part: str) -> Path:
        """What is visible at `/logs/PART`."""
        return self.folder / "logs" / part

    async def run(self, command: Command, boundary: Boundary, *, timeout_s: float, stdout: Sink, stderr: Sink) -> Ended:
        """Execute *command* in the container; afterwards nothing that it started is left, unless services are kept."""
        said = OutputHead(stderr)
        async with self._executing(command, boundary) as (outer, program):
            ended = await run_process(outer, timeout_s=timeout_s, stdout=stdout, stderr=said, disk=self._disk)
        return self._explained(ended, said.text, program)

    @asynccontextmanager
    async def open(self, command: Command, boundary: Boundary, *, stdout: Sink, stderr: Sink) -> AsyncIterator[Talk]:
        """Keep *command* running; see `Sandbox.open`."""
        said = OutputHead(stderr)
        async with (
            self._executing(command, boundary) as (outer, program),
            open_process(outer, stdout=stdout, stderr=said, disk=self._disk) as talk,
        ):
            yield talk
        if talk.ended is not None:
            self._explained(talk.ended, said.text, program)

    @asynccontextmanager
    async def _executing(self, command: Command, boundary: Boundary) -> AsyncIterator[tuple[Command, str]]:
        carried = await carry(command, self.place)
        if self._name is None:
            await self._start(boundary, carried)
        elif lacking := [path for path, _ in carried.mounts if path not in self._mounted]:
            raise SandboxError(f"{lacking[0]} was not mounted when the container started")
        if self._next is not None:
            step, self._next = self._next, None
            await self._prepare(step)
        if boundary.inlet is not None:
            await self._open(boundary.inlet)
        env = {name: value for name, value in inner_env(carried).items() if name != "TMPDIR"}
        cwd = command.cwd if command.cwd.is_relative_to(self.workdir) else self.workdir
        with self._exec(carried.argv, env, cwd, self.user) as outer:
            try:
                yield replace(outer, stdin=command.stdin), carried.argv[0]
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(self._end_strays)

    async def _open(self, inlet: Inlet) -> None:
        """Open the port of the gateway inside; what listened there before has ended."""
        if self.network or not self._first:
            raise SandboxError("the container has no network of its own that the gateway could be in")
        async with opened(inlet, self.engine, self._first):
            pass

    @contextmanager
    def _exec(self, argv: tuple[str, ...], env: Mapping[str, str], cwd: Path, user: str | None) -> Iterator[Command]:
        """Yield the call that executes *argv* in the container."""
        if self._running is not None and self._running.takes(user):
            # Services are what ran before the agent.
            is_environment = self._services is None
            with self._running.executing(argv, env, cwd, user, is_environment=is_environment) as words:
                yield replace(self.engine.command(), argv=words)
            return
        who = () if user is None else ("--user", user)
        with env_options(env) as options:
            call = ("exec", "--interactive", "--workdir", str(cwd), *who, *options, str(self._name), *argv)
            yield self.engine.command(*call, env=of_lines(env))

    def _explained(self, ended: Ended, said: str, program: str) -> Ended:
        """Raise if the command could not be started; as it may say the same itself, look for it in the image."""
        if ended.exit_code in _NOT_STARTED and _ENGINE_SAYS.match(said):
            there = program.startswith(f"{PLACE}/") or has_program(self.place.engine, self.place.image, program)
            if not there:
                raise refusal(_NOT_THERE, program, said)
        return ended

    async def _start(self, boundary: Boundary, carried: CarriedCommand) -> None:
        """Start the container, wait until it stays, and wait until its environment is healthy."""
        name, token, heard = new_name(), secrets.token_hex(8), _WordListener()
        self._started_with = (boundary, carried)
        await anyio.to_thread.run_sync(self._make_folders)
        shown = tuple(self._shown(boundary, carried))
        env = from_host(self.environment.env, os.environ)
        argv = (
            *("run", "--interactive", "--pull", "never", "--name", name, *self.place.labels, *self.engine.init),
            *("--cidfile", str(self.folder / "id")),
            *(*streams(self.engine), "--network", "host" if self.network else "none", *limits(self.ceilings)),
            *mark_options(self.engine),
            *(option for options in shown for option in options),
        )
        heard.wanted = token.encode()
        with env_options(env) as env_words:
            tail = ("--workdir", str(self.workdir), *env_words, self.place.image, "sh", "-c", _STAY, token)
            outer = self.engine.command(*argv, *tail, env=of_lines(env))
            # In this order at the end: the container is removed, and then nothing is left to wait for.
            opened = open_process(outer, stdout=heard, stderr=heard)
            talk = await self._stack.enter_async_context(opened)
            self._stack.push_async_callback(self._remove, name)
            await _until(heard, talk)
        self._name, self._mounted = name, tuple(inside for inside, _ in carried.mounts)
        await self._find(name, token)
        if self.ceilings.disk_mb is not None or self.ceilings.files != MOST_FILES:
            self._disk = await self._disk_of(name, boundary)
        await self._find_user()
        if self.environment.healthcheck is not None:
            await self.wait_until_healthy(self.environment.healthcheck)
        self._services = await anyio.to_thread.run_sync(Services, self._first)

    async def _find(self, name: str, token: str) -> None:
        """Find the container among the processes of this machine, to execute in it and to end what it started."""
        identifier = await anyio.to_thread.run_sync((self.folder / "id").read_text)
        self._running = await anyio.to_thread.run_sync(RunningContainer.find, self.engine, identifier.strip())
        if self._running is not None:
            self._first = self._running.pid
        else:
            self._first = int(str((await self.engine.state(name)).get("Pid") or 0))
            if not _is_ours(self._first, token):
                raise SandboxError(
                    "the processes of the container cannot be seen from here, so nothing could end them",
                    hint="use an engine of this machine, as root or as podman of your own",
                )

    async def _find_user(self) -> None:
        """Raise if the image does not have the user; later, it would look as if the agent had failed."""
        if self.user is None or self.user.isdigit():
            return
        ended, said = await self.execute("true", timeout_s=_PATIENCE_S)
        if ended.exit_code != 0:
            shown = said.decode(errors="replace").strip()[-500:]
            raise EnvironmentFailed(f"nothing can be executed as user {self.user} of the task", hint=shown or None)

    async def _disk_of(self, name: str, boundary: Boundary) -> Disk:
        """Return what the container may write: into its layer, its logs and what is mounted, all of it new."""
        folders = (self.folder / "logs", *boundary.writable, *await self.engine.own_files(name))
        written = None if self._running is None else self._running.layer
        if written is None and not self.engine.is_podman and os.geteuid() == 0:
            written = Path(await self.engine.inspected(name, "{{.GraphDriver.Data.UpperDir}}"))
        if written is not None and written.is_absolute() and is_there(written):
            return Disk(self.ceilings, (*folders, written), before=NOTHING, held_by=partial(members, self._first))

        async def layer() -> int:
            size = await self.engine.inspected(name, "{{.SizeRw}}", "--size")
            return int(size) if size.isdigit() else 0

        # Files of other users inside cannot be seen from here, so the engine measures them.
        at = await self.engine.inspected(name, "{{.StaticDir}}")
        held_by = partial(members, self._first)
        return Disk(self.ceilings, folders, layer=layer, at=Path(at) if at else None, before=NOTHING, held_by=held_by)

    def _make_folders(self) -> None:
        for folder in (self.tests, *(self.logs(part) for part in _PARTS)):
            folder.mkdir(parents=True, exist_ok=True)
            # The user of the image may be anybody.
            folder.chmod(0o777)

    def _shown(self, boundary: Boundary, carried: CarriedCommand) -> Iterator[tuple[str, ...]]:
        if self.shows_tests:
            yield bound(self.tests, TESTS, "ro")
        for part in _PARTS:
            yield bound(self.logs(part), LOGS / part, "rw")
        for path in boundary.readable:
            if is_there(path):
                yield bound(path, path, "ro")
        for path in boundary.writable:
            # The user of the image may be any; no other user of this machine gets as far as here.
            path.chmod(0o777)
            yield bound(path, path, "rw")
        for path, folder in boundary.shown_at:
            yield bound(folder, path, "ro")
        for inside, path in carried.mounts:
            yield bound(path, inside, "ro")

    def expect(self, step: TaskStep) -> None:
        """Prepare for *step* before the next command: only then the container is sure to run."""
        self._next = step

    async def _prepare(self, step: TaskStep) -> None:
        """Begin a step: with logs of its own, its files in the working folder, and a healthy environment."""
        await anyio.to_thread.run_sync(self.forget, *_PARTS)
        if step.workdir is not None:
            await self.put(step.workdir, str(self.workdir))
            if (step.workdir / "setup.sh").is_file():
                ended, said = await self.execute("sh ./setup.sh", timeout_s=_PATIENCE_S)
                if ended.exit_code != 0:
                    shown = said.decode(errors="replace").strip()[-500:]
                    raise EnvironmentFailed(f"setup.sh of step {step.name} failed", hint=shown or None)
        if step.healthcheck is not None:
            await self.wait_until_healthy(step.healthcheck)

    async def wait_until_healthy(self, check: Healthcheck) -> None:
        """Ask until the environment is ready; raises `EnvironmentFailed` after as many failures as it may have."""
        began, failures, said = time.monotonic(), 0, b""
        while True:
            starting = time.monotonic() - began < check.start_period_s
            ended, said = await self.execute(check.command, timeout_s=check.timeout_s)
            if ended.exit_code == 0 and not ended.timed_out:
                return
            failures += not starting
            if failures >= check.retries:
                shown = said.decode(errors="replace").strip()[-500:]
                raise EnvironmentFailed(f"the environment did not become healthy: {check.command}", hint=shown or None)
            await anyio.sleep(check.start_interval_s if starting else check.interval_s)

    async def execute(
        self, script: str, *, timeout_s: float, user: str | None = None, env: Mapping[str, str] | None = None
    ) -> tuple[Ended, bytes]:
        """Execute a line of shell, whose processes may stay; return how it ended and the end of what it printed."""
        assert self._name is not None
        kept = bytearray()

        def keep(chunk: bytes) -> None:
            kept.extend(chunk)
            del kept[:-1_000_000]

        with self._exec(("sh", "-c", script), env or {}, self.workdir, user or self.user) as command:
            ended = await run_process(command, timeout_s=timeout_s, stdout=keep, stderr=keep, disk=self._disk)
        return ended, bytes(kept)

    async def begin(self, boundary: Boundary | None = None) -> None:
        """Start the container now, if no command has done so."""
        if self._name is None:
            await self._start(boundary or Boundary(writable=()), CarriedCommand(argv=("sh",), env={}))

    async def put(self, source: Path, inside: str) -> None:
        """Copy what is in the folder *source* to the folder *inside*."""
        said = await self.engine.call("cp", f"{source}/.", f"{self._name}:{inside}", timeout_s=_PATIENCE_S)
        if not said.ok:
            raise EnvironmentFailed(f"{source} cannot be copied to {inside}: {said.why}")

    async def take(self, inside: str, target: Path) -> bool:
        """Copy *inside* out of the container to *target*; return whether there was such a file or folder."""
        target.parent.mkdir(parents=True, exist_ok=True)
        return (await self.engine.call("cp", f"{self._name}:{inside}", str(target), timeout_s=_PATIENCE_S)).ok

    def anew(self, folder: Path) -> TaskContainer:
        """Return a container as this one was at its start."""
        return replace(
            self,
            folder=folder,
            goes_on=True,
            homes=None,
            _next=None,
            _stack=AsyncExitStack(),
            _name=None,
            _first=0,
            _running=None,
            _services=None,
            _mounted=(),
            _disk=None,
        )

    def next(self, folder: Path, attempt: str, homes: tuple[Path, Path]) -> TaskContainer:
        """Return the container of another trial of the same task, which `warm` starts."""
        return replace(self.anew(folder), place=replace(self.place, attempt=attempt), homes=homes)

    async def warm(self, before: tuple[Path, Path]) -> None:
        """Start as the container of the last trial did, whose homes were *before*, with homes of its own."""
        if self._started_with is None or self.homes is None:
            return
        boundary, carried = self._started_with
        own = dict(zip(before, self.homes, strict=True))
        writable = tuple(own.get(path, path) for path in boundary.writable)
        await self._start(replace(boundary, writable=writable), carried)

    async def other(
        self, folder: Path, *, network: bool, environment: TaskEnvironment | None, image: str
    ) -> TaskContainer:
        """Return a new container for a verifier: of its own image, or with the file system of this one."""
        if environment is None:
            tag = f"localhost/whet-left:{secrets.token_hex(8)}"
            label = f"LABEL {LEFT_LABEL}={self.place.owner}"
            argv = ("commit", "--change", label, str(self._name), tag)
            said = await self.engine.call(*argv, timeout_s=_PATIENCE_S)
            if not said.ok:
                raise EnvironmentFailed(f"what the agent left cannot be shown to its verifier: {said.why}")
            self._stack.push_async_callback(self.engine.call, "image", "rm", "--force", tag)
            place, workdir, own = replace(self.place, image=tag), self.workdir, False
            environment = replace(self.environment, healthcheck=None)
        else:
            place, own = replace(self.place, image=image), True
            workdir = Path(environment.workdir or await workdir_of(self.engine, image))
        return TaskContainer(
            place=place,
            environment=environment,
            folder=folder,
            workdir=workdir,
            network=network,
            ceilings=ceilings_of(environment, self.ceilings),
            shows_tests=not own,
        )

    def show_tests(self, folders: tuple[Path, ...]) -> None:
        """Put the tests into `/tests`, later folders over earlier ones; nothing else is there."""
        _empty(self.tests)
        for folder in folders:
            try:
                shutil.copytree(folder, self.tests, symlinks=True, dirs_exist_ok=True)
            except shutil.Error as error:
                raise EnvironmentFailed(f"the tests cannot be shown: {error.args[0][0][2]}") from error
        for path in self.tests.rglob("*.sh"):
            if not path.is_symlink():
                path.chmod(0o755)

    def forget(self, *parts: str) -> None:
        """Remove what is in the logs of *parts*: whatever the agent wrote there decides nothing."""
        for part in parts:
            _empty(self.logs(part))

    def _end_strays(self) -> None:
        """End what was started since the environment was ready; services of the environment go on."""
        if self._services is not None and not self.keep_services:
            self._services.end_strays()

    async def _remove(self, name: str) -> None:
        with anyio.CancelScope(shield=True):
            await self.engine.remove(name)

    async def remove(self) -> None:
        """Remove the container and what it showed."""
        with anyio.CancelScope(shield=True):
            await self._stack.aclose()
            await anyio.to_thread.run_sync(remove_tree, self.folder)

    async def close(self) -> None:
        """End the supervisors."""
        await end_all()


def _empty(folder: Path) -> None:
    """Remove what is in *folder*, and not the folder itself, which is mounted."""
    if problems := [problem for path in list(folder.iterdir()) for problem in remove_tree(path)]:
        raise SandboxError(problems[0])


def _is_ours(first: int, token: str) -> bool:
    """Return whether we can see the first process of a container: of another machine, only its number is known."""
    try:
        return space_of(first) is not None and token.encode() in Path(f"/proc/{first}/cmdline").read_bytes()
    except OSError:
        return False


class _WordListener:
    """A sink that waits for a word."""

    def __init__(self) -> None:
        self.wanted = b""
        self.event = anyio.Event()
        self._kept = bytearray()

    def __call__(self, chunk: bytes) -> None:
        self._kept += chunk[:10_000]
        del self._kept[:-20_000]
        if self.wanted in self._kept:
            self.event.set()

    @property
    def text(self) -> str:
        return self._kept.decode(errors="replace").strip()


async def _until(heard: _WordListener, talk: Talk) -> None:
    """Wait until the container stays; raises if it ends, or says nothing for too long."""

    async def over(scope: anyio.CancelScope) -> None:
        await talk.over()
        scope.cancel()

    with anyio.move_on_after(_PATIENCE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(over, group.cancel_scope)
            await heard.event.wait()
            group.cancel_scope.cancel()
    if not heard.event.is_set():
        last = heard.text.splitlines()[-1:] or ["it said nothing"]
        raise EnvironmentFailed(f"the container of the task does not stay: {last[0]}")
