"""Running inside bubblewrap: a private process namespace, a read-only system, and only what was declared."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Self

import anyio

from whet.errors import AgentNotFound, SandboxError
from whet.sandbox.base import Availability, Boundary, Command, Ended, Sink, Talk
from whet.sandbox.ceilings import Hold, holding, judged
from whet.sandbox.process import open_process, run_process
from whet.sandbox.programs import find_program
from whet.sandbox.reaper import reaper

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/snap", "/sys")
# Where /etc/resolv.conf points on many machines.
_SYSTEM_RUN = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager", "/run/current-system")
_PRIVATE = ("/etc/shadow", "/etc/gshadow", "/etc/shadow-", "/etc/gshadow-")
_OWN_TEMPORARY = ("/tmp", "/var/tmp", "/run")  # noqa: S108 - these are the ones inside
_INNER_USER = "1000"
_PROBE_TIMEOUT_S = 10
_CHILD = re.compile(rb'"child-pid": (\d+)')
_EXIT = b'"exit-code"'


class BubblewrapSandbox:
    """One private namespace per process: what escapes a process group still dies with it."""

    name = "bubblewrap"

    @classmethod
    def availability(cls) -> Availability:
        """Whether bubblewrap is there and may make namespaces here."""
        program = shutil.which("bwrap")
        if program is None:
            return Availability(usable=False, reason="bubblewrap (bwrap) is not installed")
        argv = (program, *_namespaces(network=False), *_system(), "--", "/bin/sh", "-c", "exit 0")
        try:
            tried = subprocess.run(argv, capture_output=True, timeout=_PROBE_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return Availability(usable=False, reason=f"bubblewrap does not run: {error}")
        if tried.returncode != 0:
            said = tried.stderr.decode(errors="replace").strip()
            return Availability(usable=False, reason=f"bubblewrap may not make namespaces here: {said}")
        return Availability(usable=True, details={"program": program})

    def __init__(self) -> None:
        self._program = shutil.which("bwrap") or "bwrap"

    async def run(self, command: Command, boundary: Boundary, *, timeout_s: float, stdout: Sink, stderr: Sink) -> Ended:
        """Run *command*; see `Sandbox.run`."""
        program = find_program(command)
        with holding(boundary.ceilings, timeout_s) as hold, _Status() as status, _FirstWords(stderr) as said:
            outer = self._outer(command, boundary, program, status, hold)
            try:
                ended = await run_process(
                    outer,
                    timeout_s=timeout_s,
                    stdout=stdout,
                    stderr=said,
                    pass_fds=(status.write,),
                    started=status.close_write,
                )
            finally:
                await _see_dead(status)
            if ended.exit_code == 1 and not ended.timed_out:
                _raise_for_setup(status, said.text, program)
            return judged(hold, ended)

    @asynccontextmanager
    async def open(self, command: Command, boundary: Boundary, *, stdout: Sink, stderr: Sink) -> AsyncIterator[Talk]:
        """Keep *command* running; see `Sandbox.open`."""
        program = find_program(command)
        with holding(boundary.ceilings, None) as hold, _Status() as status, _FirstWords(stderr) as said:
            outer = self._outer(command, boundary, program, status, hold)
            try:
                async with open_process(
                    outer, stdout=stdout, stderr=said, pass_fds=(status.write,), started=status.close_write
                ) as talk:
                    yield talk
            finally:
                await _see_dead(status)
            if talk.exit_code == 1:
                _raise_for_setup(status, said.text, program)

    def _outer(self, command: Command, boundary: Boundary, program: str, status: _Status, hold: Hold) -> Command:
        """The call of bubblewrap that starts *command* behind the boundary."""
        argv = (
            self._program,
            *_namespaces(network=boundary.network),
            *_system(),
            *_declared(boundary, _toolchains(command.env.get("PATH", ""), program)),
            *("--chdir", str(command.cwd)),
            *("--json-status-fd", str(status.write)),
            *("--", program, *command.argv[1:]),
        )
        # The environment is given to bwrap itself: --clearenv would leave ours readable in /proc/1/environ.
        return Command(argv=hold.argv(argv), env=command.env, cwd=Path("/"), stdin=command.stdin)

    async def close(self) -> None:
        """Nothing is left: every namespace died with its process."""
        await reaper.end_all()


async def _see_dead(status: _Status) -> None:
    """bwrap tells how its namespace ended, or is killed, before the last process in it is dead."""
    with anyio.CancelScope(shield=True):
        await reaper.see_dead(status.namespace)


class _Status:
    """The pipe on which bubblewrap says that it came as far as starting the command."""

    def __enter__(self) -> Self:
        self._read, self.write = os.pipe2(os.O_CLOEXEC)
        self._write_open = True
        return self

    def close_write(self) -> None:
        """Let go of our end, so that the pipe has an end."""
        if self._write_open:
            os.close(self.write)
            self._write_open = False

    @cached_property
    def namespace(self) -> int | None:
        """The first process of the namespace, with which all others die; None where it did not come so far."""
        told = _CHILD.search(self._told)
        return int(told[1]) if told else None

    @property
    def ran(self) -> bool:
        """Whether the command was really started: only then does bubblewrap say how it ended."""
        return _EXIT in self._told

    @cached_property
    def _told(self) -> bytes:
        os.set_blocking(self._read, False)
        try:
            return os.read(self._read, 4096)
        except BlockingIOError:
            return b""

    def __exit__(self, *_: object) -> None:
        self.close_write()
        os.close(self._read)


class _FirstWords:
    """A sink that passes everything on and remembers how it began."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._kept = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, chunk: bytes) -> None:
        if len(self._kept) < 1000:  # noqa: PLR2004 - a message of bubblewrap's is one line
            self._kept += chunk[:1000]
        self._sink(chunk)

    @property
    def text(self) -> str:
        return self._kept.decode(errors="replace").strip()


def _raise_for_setup(status: _Status, said: str, program: str) -> None:
    """Tell bubblewrap's own failures from the command's, which may say whatever it likes."""
    if status.ran:
        return
    if said.startswith("bwrap: execvp"):
        raise AgentNotFound(f'"{program}" cannot be started inside the sandbox: {said}', hint=_MOUNTS_HINT)
    if status.namespace is None and said.startswith("bwrap: "):
        raise SandboxError(said, hint=_MOUNTS_HINT)


_MOUNTS_HINT = "add its folder to `mounts` of this runner, or use --sandbox local"


@lru_cache
def _namespaces(*, network: bool) -> tuple[str, ...]:
    argv = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    if not network:
        argv.append("--unshare-net")
    if os.getuid() == 0:
        # Some agents refuse their unattended mode to root; and nothing inside needs to be it.
        argv += ["--uid", _INNER_USER, "--gid", _INNER_USER]
    return (*argv, "--cap-drop", "ALL", "--disable-userns", "--die-with-parent")


@lru_cache
def _system() -> tuple[str, ...]:
    argv: list[str] = []
    for folder in _OWN_TEMPORARY:
        argv += ["--tmpfs", folder]
    for folder in (*_SYSTEM, *_SYSTEM_RUN):
        argv += ["--ro-bind-try", folder, folder]
    for file in _PRIVATE:
        if Path(file).exists():
            # Root outside owns these, and may read them whatever its name is inside.
            argv += ["--ro-bind", os.devnull, file]
    return (*argv, "--proc", "/proc", "--dev", "/dev")


@lru_cache(maxsize=64)
def _toolchains(path: str, program: str) -> tuple[Path, ...]:
    """Programs installed outside the system: what stands on PATH, the program itself and the running Python."""
    wanted = {Path(sys.prefix), Path(sys.base_prefix)}
    for entry in path.split(os.pathsep):
        if Path(entry).is_absolute() and Path(entry) != Path.home():
            wanted.update(_installation(Path(entry)))
    for place in (Path(program), Path(program).resolve()):
        # The program alone: its folder may be anybody's home.
        wanted.update(folder for folder in _installation(place.parent) if folder != place.parent)
        wanted.add(place)
    return tuple(_uncovered(wanted))


def _installation(folder: Path) -> Iterator[Path]:
    """A folder of programs, and the installation around it where it looks like one.

    `~/.pyenv/shims` is nothing without `~/.pyenv`, and `node/v20/bin` needs `node/v20/lib`; but `~/.cargo` also holds
    credentials and `~/.local` anything at all, so those show their `bin` only.
    """
    yield folder
    whole = folder.parent
    # PATH may name folders that are closed to us, and those are as good as not there.
    is_whole = folder.name == "bin" and os.access(whole / "lib", os.X_OK) and whole.name != ".local"
    if folder.name == "shims" or is_whole:
        yield whole


def _uncovered(paths: Iterable[Path]) -> Iterator[Path]:
    """Those that are there and not below another one, or below the system."""
    covered = [Path(folder) for folder in _SYSTEM]
    for path in sorted(set(paths), key=lambda path: len(path.parts)):
        # Not exists(), which raises where a folder above is closed to us.
        is_there = path != Path("/") and os.access(path, os.F_OK)
        if is_there and not any(path.is_relative_to(other) for other in covered):
            covered.append(path)
            yield path


def _declared(boundary: Boundary, toolchains: Iterable[Path]) -> Iterator[str]:
    """Outer folders first, so that an inner one is laid over them; a hidden one matters only where it would be seen."""
    layers: list[tuple[Path, int, tuple[str, ...]]] = [
        (path, 0, ("--ro-bind-try", str(path), str(path))) for path in (*toolchains, *boundary.readable)
    ]
    layers += [(path, 2, ("--bind", str(path), str(path))) for path in boundary.writable]
    seen = [path for path, _, _ in layers]
    layers += [
        (path, 1, _covered(path))
        for path in boundary.hidden
        if path.exists() and any(path != other and path.is_relative_to(other) for other in seen)
    ]
    layers += [(path, 3, ("--bind", str(folder), str(path))) for path, folder in boundary.shown_at]
    for _, _, arguments in sorted(layers, key=lambda layer: (len(layer[0].parts), layer[1])):
        yield from arguments


def _covered(path: Path) -> tuple[str, ...]:
    """A folder is seen empty, and so is a file."""
    return ("--tmpfs", str(path)) if path.is_dir() else ("--ro-bind", os.devnull, str(path))
