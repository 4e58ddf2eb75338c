"""The bubblewrap sandbox: a private process namespace, a read-only system, and only the declared folders."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import ClassVar, Self, TypeAlias

from whet.errors import AgentNotFound, SandboxError
from whet.sandbox.bubblewrap._visible import READ_ONLY, hidden, shown, system, temporary, toolchains
from whet.sandbox.bubblewrap.seccomp import as_file, refused_calls
from whet.sandbox.contract import (
    Availability,
    Boundary,
    Command,
    Ended,
    Inlet,
    Sandbox,
    Sink,
    Talk,
    find_program,
    is_there,
)
from whet.sandbox.gateway_port import PortHandover
from whet.sandbox.limits import Hold, disk_of, holding
from whet.sandbox.process.output import OutputHead
from whet.sandbox.process.pool import end_all
from whet.sandbox.process.run import open_process, run_process
from whet.workspace.mounts import private_mounts

_INNER_USER = "1000"
_PROBE_TIMEOUT_S = 10
# What a shell needs to start.
_PROBE_FOLDERS = ("/usr", "/bin", "/lib", "/lib64", "/nix")
_PROBE = (
    *("--proc", "/proc", "--dev", "/dev"),
    *chain(*(("--ro-bind-try", folder, folder) for folder in _PROBE_FOLDERS)),
)
_ALLOW_NAMESPACES = "allow user namespaces (`whet doctor` says by which setting; a container must allow them too)"
_CHILD = re.compile(rb'"child-pid": (\d+)')
_EXIT = b'"exit-code"'

_MOUNTS_HINT = "add its folder to `mounts` of this runner, or use --sandbox local"


class BubblewrapSandbox(Sandbox):
    """Runs each command in its own namespace: processes that leave the process group still die with it."""

    name = "bubblewrap"
    holds_network = True
    has_inlets = True
    _probe: ClassVar[_Probe | None] = None

    @classmethod
    def probe_early(cls) -> None:
        """Begin to find out what `availability` says."""
        program = shutil.which("bwrap")
        if program is not None:
            with contextlib.suppress(OSError):
                cls._probe = _start_probe(program)

    @classmethod
    def availability(cls) -> Availability:
        """Return whether bubblewrap is installed and may make namespaces here."""
        program = shutil.which("bwrap")
        if program is None:
            return Availability(
                usable=False, reason="bubblewrap (bwrap) is not installed", remedy="install the package bubblewrap"
            )
        try:
            probe, cls._probe = cls._probe or _start_probe(program), None
            code, said = _end_of(probe)
        except (OSError, subprocess.TimeoutExpired) as error:
            remedy = f"run {program} by hand to see why"
            return Availability(usable=False, reason=f"bubblewrap does not run: {error}", remedy=remedy)
        if code != 0:
            reason = f"bubblewrap is installed ({program}), but may not make namespaces here: {said}"
            return Availability(usable=False, reason=reason, remedy=_ALLOW_NAMESPACES)
        return Availability(usable=True, details={"program": program})

    def __init__(self) -> None:
        self._program = shutil.which("bwrap") or "bwrap"
        # Now, while there is one thread: mounts for root are then made once, for processes that we fork as well.
        if private_mounts():
            system(network=True)

    async def run(self, command: Command, boundary: Boundary, *, timeout_s: float, stdout: Sink, stderr: Sink) -> Ended:
        """Run *command*; see `Sandbox.run`."""
        program = find_program(command)
        said = OutputHead(stderr)
        with holding(boundary.ceilings, timeout_s) as hold, _Status(boundary.inlet) as status:
            outer = self._outer(command, boundary, program, status, hold)
            ended = await run_process(
                outer,
                timeout_s=timeout_s,
                stdout=stdout,
                stderr=said,
                pass_fds=status.passed_on,
                started=status.close_write,
                disk=disk_of(boundary),
            )
            if ended.exit_code == 1 and not ended.timed_out:
                _raise_for_setup(status, said.text, program)
            return hold.with_reached(ended)

    @asynccontextmanager
    async def open(self, command: Command, boundary: Boundary, *, stdout: Sink, stderr: Sink) -> AsyncIterator[Talk]:
        """Keep *command* running; see `Sandbox.open`."""
        program = find_program(command)
        said = OutputHead(stderr)
        with holding(boundary.ceilings, None) as hold, _Status(boundary.inlet) as status:
            outer = self._outer(command, boundary, program, status, hold)
            async with open_process(
                outer,
                stdout=stdout,
                stderr=said,
                pass_fds=status.passed_on,
                started=status.close_write,
                disk=disk_of(boundary),
            ) as talk:
                yield talk
            if talk.ended and talk.ended.exit_code == 1:
                _raise_for_setup(status, said.text, program)
            talk.ended = talk.ended and hold.with_reached(talk.ended)

    def _outer(self, command: Command, boundary: Boundary, program: str, status: _Status, hold: Hold) -> Command:
        """Return the call of bubblewrap that starts *command* behind the boundary."""
        argv = (
            self._program,
            *_namespaces(network=boundary.network),
            *system(network=boundary.network),
            *temporary(boundary.ceilings.in_memory_mb),
            *_declared(boundary, toolchains(command.env.get("PATH", ""), program, boundary.apart)),
            *READ_ONLY,
            *("--chdir", str(command.cwd)),
            *status.arguments,
            *("--", *status.port_handover.argv(program, command.argv[1:], command.env)),
        )
        # Give the environment to bwrap itself: with --clearenv, ours would be readable in /proc/1/environ.
        return Command(argv=hold.argv(argv), env=command.env, cwd=Path("/"), stdin=command.stdin)

    async def close(self) -> None:
        """End the supervisors."""
        await end_all()


_Probe: TypeAlias = subprocess.Popen[bytes]


def _start_probe(program: str) -> _Probe:
    argv = (program, *_namespaces(network=False), *_PROBE, "--", "/bin/sh", "-c", "exit 0")
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _end_of(probe: _Probe) -> tuple[int, str]:
    """Return the exit code and what it said; raises `TimeoutExpired` if it does not end."""
    try:
        said = probe.communicate(timeout=_PROBE_TIMEOUT_S)[1]
    except subprocess.TimeoutExpired:
        probe.kill()
        probe.communicate()
        raise
    return probe.returncode, said.decode(errors="replace").strip()


class _Status:
    """The pipe on which bubblewrap reports its start, the file with the seccomp filter, and the way to an inlet."""

    def __init__(self, inlet: Inlet | None) -> None:
        self.port_handover = PortHandover(inlet)

    def __enter__(self) -> Self:
        self.port_handover.__enter__()
        self._read, self.write = os.pipe2(os.O_CLOEXEC)
        calls = refused_calls()
        self.inherited: tuple[int, ...] = (self.write,) if calls is None else (self.write, as_file(calls))
        self._inherited_open = True
        return self

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments that name both to bubblewrap."""
        return tuple(chain(*zip(("--json-status-fd", "--seccomp"), map(str, self.inherited), strict=False)))

    @property
    def passed_on(self) -> tuple[int, ...]:
        """All descriptors that bubblewrap inherits."""
        return (*self.inherited, *self.port_handover.inherited)

    def close_write(self) -> None:
        """Close our copies of what bubblewrap has inherited, so that the pipe can end."""
        self.port_handover.close_theirs()
        if self._inherited_open:
            for fd in self.inherited:
                os.close(fd)
            self._inherited_open = False

    @cached_property
    def namespace(self) -> int | None:
        """The first process of the namespace, with which all others die; None if there is no namespace."""
        match = _CHILD.search(self._report)
        return int(match[1]) if match else None

    @property
    def ran(self) -> bool:
        """Whether the command was started: only then does bubblewrap report how it ended."""
        return _EXIT in self._report

    @cached_property
    def _report(self) -> bytes:
        os.set_blocking(self._read, False)
        try:
            return os.read(self._read, 4096)
        except BlockingIOError:
            return b""

    def __exit__(self, *_: object) -> None:
        self.close_write()
        self.port_handover.__exit__()
        os.close(self._read)


def _raise_for_setup(status: _Status, said: str, program: str) -> None:
    """Raise if bubblewrap itself failed; the command may print the same text, so look at the status first."""
    status.port_handover.raise_for_trouble(program)
    if status.ran:
        return
    if said.startswith("bwrap: execvp"):
        raise AgentNotFound(f'"{program}" cannot be started inside the sandbox: {said}', hint=_MOUNTS_HINT)
    if status.namespace is None and said.startswith("bwrap: "):
        raise SandboxError(said, hint=_MOUNTS_HINT)


@lru_cache
def _namespaces(*, network: bool) -> tuple[str, ...]:
    argv = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    if not network:
        argv.append("--unshare-net")
    if os.getuid() == 0:
        # Some agents refuse their unattended mode as root, and nothing inside needs root.
        argv += ["--uid", _INNER_USER, "--gid", _INNER_USER]
    return (*argv, "--cap-drop", "ALL", "--disable-userns", "--die-with-parent")


def _declared(boundary: Boundary, installed: Iterable[Path]) -> Iterator[str]:
    """Yield outer folders first, so that inner ones are mounted over them; hide only what would be visible."""
    layers: list[tuple[Path, int, tuple[str, ...]]] = [(path, 0, shown(str(path))) for path in installed]
    layers += [(path, 0, ("--ro-bind-try", str(path), str(path))) for path in boundary.readable]
    layers += [(path, 2, ("--bind", str(path), str(path))) for path in boundary.writable]
    seen = tuple(str(path).rstrip("/") + "/" for path, _, _ in layers)
    layers += [
        (path, 1, hidden(str(path))) for path in boundary.hidden if str(path).startswith(seen) and is_there(path)
    ]
    layers += [(path, 3, ("--bind", str(folder), str(path))) for path, folder in boundary.shown_at]
    for _, _, arguments in sorted(layers, key=lambda layer: (len(layer[0].parts), layer[1])):
        yield from arguments
