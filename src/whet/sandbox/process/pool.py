"""Start supervisors, talk to them and keep them for the next command; end processes that have lost theirs."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import marshal
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import anyio

from whet.errors import SandboxError
from whet.sandbox.contract import Command
from whet.sandbox.process.procfs import all_processes, children, descendants, signal_all
from whet.sandbox.process.supervisor import IDS, RUN

_PAUSE_S = 0.002
_PATIENCE_S = 10.0


class Reaper:
    """Knows which children we started on purpose, and ends the others."""

    def __init__(self) -> None:
        self._session = os.getsid(0)
        self._known: set[int] = set()

    def start_anew(self) -> None:
        """Forget everything: after a fork, our children and our session are different."""
        self._session = os.getsid(0)
        self._known.clear()

    def adopt(self, pid: int) -> None:
        """Note that we started this process on purpose."""
        self._known.add(pid)

    def release(self, pid: int) -> None:
        """Forget this process."""
        self._known.discard(pid)

    async def end_strays(self) -> None:
        """Kill processes that have lost their supervisor, and return when they are dead."""
        deadline = time.monotonic() + _PATIENCE_S
        while strays := self._strays():
            for pid in strays:
                signal_all([pid, *descendants(pid)], signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - it does not wait
            if time.monotonic() > deadline:
                return
            await anyio.sleep(_PAUSE_S)

    def _strays(self) -> list[int]:
        """Return our children that we did not start on purpose; attempts never start one in our own session."""
        return [pid for pid in children(os.getpid()) if pid not in self._known and _session_of(pid) != self._session]


def kill_marked(name: str, value: str) -> int:
    """Kill every process of this user with *name*=*value* in its environment; return how many there were.

    For runs of an earlier service that was killed before it could end them.
    """
    wanted = f"{name}={value}".encode()
    killed: set[int] = set()
    # Repeat until there is no new one: a process may fork while we look.
    while pids := set(_marked(wanted)) - killed:
        signal_all(sorted(pids), signal.SIGKILL)
        killed |= pids
    return len(killed)


def _marked(wanted: bytes) -> Iterator[int]:
    for pid in all_processes():
        if pid != os.getpid() and wanted in _environment(pid):
            yield pid


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1


reaper = Reaper()


# The folder of whet is the last entry of its path, after the standard library only: an agent cannot plant a module.
_FORK_SERVER = (
    "import sys; sys.path.append(sys.argv[3]); "
    "from whet.sandbox.process.supervisor import serve_forks; serve_forks(*map(int, sys.argv[1:3]))"
)
_WORD = 65536


class SupervisorConnection:
    """Our end of the connection to one supervisor."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        # The process ids of the supervisor and of the watchdog above it.
        self._ids: tuple[int, ...] = ()
        # Pidfds of both, because a process id can be used again.
        self._processes: list[int] = []
        self._ends = select.poll()

    @property
    def pid(self) -> int:
        """The supervisor's process id: its command and all that the command starts descend from it."""
        return self._ids[0] if self._ids else 0

    async def greet(self) -> bool:
        """Receive its process ids; return whether it is alive."""
        try:
            said = await asyncio.get_running_loop().sock_recv(self._sock, _WORD)
        except OSError:
            return False
        if not said:
            return False
        self._ids = IDS.unpack(said)
        try:
            for pid in self._ids:
                self._processes.append(os.pidfd_open(pid))
                self._ends.register(self._processes[-1], select.POLLIN)
        except ProcessLookupError:
            return False
        for pid in self._ids:
            reaper.adopt(pid)
        return True

    def is_idle(self) -> bool:
        """Return whether it can take a command: both live, and it says nothing."""
        return not self._ends.poll(0) and self.hear() is None

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when it sends a message."""
        return self._sock.fileno()

    def run(self, command: Command, fds: Sequence[int], numbers: Sequence[int]) -> None:
        """Ask it to start *command* with copies of *fds* under the given *numbers*."""
        request = os.memfd_create("command")
        try:
            with open(request, "wb", closefd=False) as file:
                file.write(marshal.dumps(_plain(command, numbers)))
            socket.send_fds(self._sock, [RUN], [request, *fds])
        finally:
            os.close(request)

    def say(self, word: bytes) -> None:
        """Send a message; `hear` notices if the supervisor is gone."""
        with contextlib.suppress(OSError):
            self._sock.send(word)

    def wake(self) -> None:
        """Continue it if something has stopped it."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for process in self._processes[:1]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(process, number)

    def hear(self) -> bytes | None:
        """Return its next message, None if there is none yet, or empty bytes if it is gone."""
        try:
            return self._sock.recv(_WORD)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def close(self) -> None:
        """Close the connection: the supervisor ends everything below it, and itself."""
        self._sock.close()
        for process in self._processes:
            os.close(process)
        self._processes.clear()
        for pid in self._ids:
            reaper.release(pid)

    def kill(self) -> None:
        """Kill a supervisor that does not answer; its watchdog ends the processes below it."""
        self._signal(signal.SIGKILL)

    async def gone(self) -> None:
        """Wait until it and its watchdog are dead: the one ends what is left when the other was killed."""
        with anyio.move_on_after(_PATIENCE_S):
            for process in self._processes:
                await anyio.wait_readable(process)


def _plain(
    command: Command, numbers: Sequence[int]
) -> tuple[tuple[bytes, ...], dict[bytes, bytes], bytes, tuple[int, ...], bool]:
    """Return *command* as data for `marshal`; both ends are the same interpreter."""
    argv = tuple(map(os.fsencode, command.argv))
    env = {os.fsencode(name): os.fsencode(value) for name, value in command.env.items()}
    return argv, env, os.fsencode(command.cwd), tuple(numbers), command.confined


def _view_of_mounts() -> int:
    return os.stat("/proc/self/ns/mnt").st_ino


def _unlimit(pid: int) -> None:
    """Lift the ceiling of memory that holds for whet itself: commands have their own."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with contextlib.suppress(OSError):
        resource.prlimit(pid, resource.RLIMIT_DATA, (hard, hard))


class SupervisorPool:
    """All supervisors, one for each command that runs now; starts their fork server with the first."""

    def __init__(self) -> None:
        self._fork_server: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._idle: list[SupervisorConnection] = []
        self._busy = 0
        self._held: tuple[int, ...] = ()
        # The view of mounts when the fork server was started.
        self._view = 0

    async def take(self) -> SupervisorConnection:
        """Return an idle supervisor, or a new one."""
        if self._fork_server is not None and self._view != _view_of_mounts():
            # Supervisors of that fork server would not see what we mount.
            self.close()
        self._busy += 1
        while self._idle:
            supervisor = self._idle.pop()
            if supervisor.is_idle():
                return supervisor
            # Something ended it while it was idle.
            supervisor.close()
        for _ in range(2):
            supervisor = SupervisorConnection(self._ask_for_one())
            try:
                if await supervisor.greet():
                    return supervisor
            except BaseException:
                supervisor.close()
                raise
            supervisor.close()
            self._drop_fork_server()
        raise SandboxError("the process that watches over commands does not start")

    def give_back(self, supervisor: SupervisorConnection) -> None:
        """Keep a supervisor with nothing below it for the next command."""
        self._busy -= 1
        self._idle.append(supervisor)

    @property
    def all_idle(self) -> bool:
        """Whether every supervisor was given back, so that no command runs."""
        return self._busy == 0

    def lend(self) -> int:
        """Return the descriptor with which a worker asks the same fork server for supervisors."""
        return self._started().fileno()

    def start(self) -> None:
        """Start the fork server now, so that it is ready when the first command needs it."""
        self._started()

    def allow_files(self, soft: int, hard: int) -> None:
        """Let commands have so many files open, as we may: the fork server may have started before."""
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if self._fork_server is not None:
            resource.prlimit(self._fork_server.pid, resource.RLIMIT_NOFILE, (soft, hard))

    def borrow(self, channel: int, held: int) -> None:
        """In a worker: ask the fork server of whet for supervisors; each keeps *held* open until it ends."""
        for supervisor in self._idle:
            supervisor.close()
        if self._channel is not None:
            self._channel.close()
        # The fork copied the supervisors of our parent, and its fork server, which it ends itself.
        self._idle.clear()
        self._busy, self._fork_server, self._view = 0, None, 0
        self._channel = socket.socket(fileno=channel)
        self._held = (held,)

    def _ask_for_one(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        owner = os.pidfd_open(os.getpid())
        with theirs:
            for _ in range(2):
                try:
                    socket.send_fds(self._started(), [b"w"], [theirs.fileno(), owner, *self._held])
                    break
                except OSError:
                    self._drop_fork_server()
        os.close(owner)
        return ours

    def _started(self) -> socket.socket:
        if self._channel is None:
            self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._view = _view_of_mounts()
            home = str(Path(__file__).parents[3])
            argv = (sys.executable, "-I", "-S", "-c", _FORK_SERVER, str(theirs.fileno()), str(os.getpid()), home)
            # Agents could read the fork server's environment. Some interpreters do not start without this variable.
            env = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
            with theirs:
                self._fork_server = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=env,
                    cwd="/",
                    start_new_session=True,
                    pass_fds=(theirs.fileno(),),
                )
            reaper.adopt(self._fork_server.pid)
            _unlimit(self._fork_server.pid)
        return self._channel

    def _drop_fork_server(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._fork_server is not None:
            self._fork_server.kill()
            self._fork_server.wait()
            reaper.release(self._fork_server.pid)
            self._fork_server = None

    def close(self) -> None:
        """End the idle supervisors and the fork server."""
        for supervisor in self._idle:
            supervisor.close()
        self._idle.clear()
        self._drop_fork_server()


supervisors = SupervisorPool()
# A process may end without closing them, as tests do; that should not print a warning.
atexit.register(supervisors.close)


async def end_all() -> None:
    """End the idle supervisors, and processes whose supervisor was killed."""
    supervisors.close()
    await reaper.end_strays()
