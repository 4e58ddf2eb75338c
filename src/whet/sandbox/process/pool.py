"""Start wardens, talk to them and keep them for the next command; end processes that have lost theirs."""

from __future__ import annotations

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
from whet.ground.descent import all_processes, children, descendants, signal_all
from whet.ground.sandbox import Command
from whet.ground.warden import IDS, RUN

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
        """Kill processes that have lost their warden, and return when they are dead."""
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
    while found := set(_marked(wanted)) - killed:
        signal_all(sorted(found), signal.SIGKILL)
        killed |= found
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
_NURSERY = (
    "import sys; sys.path.append(sys.argv[3]); "
    "from whet.ground.warden import be_nursery; be_nursery(*map(int, sys.argv[1:3]))"
)
_WORD = 65536


class Warden:
    """Our end of the connection to one warden."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        # Its process id, and that of the guard above it.
        self._ids: tuple[int, ...] = ()
        # Pidfds of both, because a process id can be used again.
        self._processes: list[int] = []
        self._ends = select.poll()

    @property
    def pid(self) -> int:
        """Its process id: its command and all that this starts descend from it."""
        return self._ids[0] if self._ids else 0

    async def greet(self) -> bool:
        """Receive its process ids; return whether it is alive."""
        # Only here: the nursery starts before there is an event loop, and while asyncio is imported.
        import asyncio  # noqa: PLC0415

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
        """Send a message; `hear` notices if the warden is gone."""
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
        """Close the connection: the warden ends everything below it, and itself."""
        self._sock.close()
        for process in self._processes:
            os.close(process)
        self._processes.clear()
        for pid in self._ids:
            reaper.release(pid)

    def kill(self) -> None:
        """Kill a warden that does not answer; its guard ends the processes below it."""
        self._signal(signal.SIGKILL)

    async def gone(self) -> None:
        """Wait until it and its guard are dead: the one ends what is left when the other was killed."""
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
    return os.stat("/proc/self/ns/mnt").st_ino  # noqa: PTH116 - before every command


def _unlimit(pid: int) -> None:
    """Lift the ceiling of memory that holds for whet itself: commands have their own."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with contextlib.suppress(OSError):
        resource.prlimit(pid, resource.RLIMIT_DATA, (hard, hard))


class Wardens:
    """All wardens, one for each command that runs now; starts their nursery with the first."""

    def __init__(self) -> None:
        self._nursery: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._idle: list[Warden] = []
        self._busy = 0
        self._held: tuple[int, ...] = ()
        # The view of mounts when the nursery was started.
        self._view = 0

    async def take(self) -> Warden:
        """Return an idle warden, or a new one."""
        if self._nursery is not None and self._view != _view_of_mounts():
            # Its wardens would not see what we mount.
            self.close()
        self._busy += 1
        while self._idle:
            warden = self._idle.pop()
            if warden.is_idle():
                return warden
            # Something ended it while it was idle.
            warden.close()
        for _ in range(2):
            warden = Warden(self._ask_for_one())
            try:
                if await warden.greet():
                    return warden
            except BaseException:
                warden.close()
                raise
            warden.close()
            self._drop_nursery()
        raise SandboxError("the process that watches over commands does not start")

    def give_back(self, warden: Warden) -> None:
        """Keep a warden with nothing below it for the next command."""
        self._busy -= 1
        self._idle.append(warden)

    @property
    def settled(self) -> bool:
        """Whether every warden was given back, so that no command runs."""
        return self._busy == 0

    def lend(self) -> int:
        """Return the descriptor with which a worker asks the same nursery for wardens."""
        return self._started().fileno()

    def start(self) -> None:
        """Start the nursery now, so that it is ready when the first command needs it."""
        self._started()

    def allow_files(self, soft: int, hard: int) -> None:
        """Let commands have so many files open, as we may: the nursery may have started before."""
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if self._nursery is not None:
            resource.prlimit(self._nursery.pid, resource.RLIMIT_NOFILE, (soft, hard))

    def borrow(self, channel: int, held: int) -> None:
        """In a worker: ask the nursery of whet for wardens; each keeps *held* open until it ends."""
        for warden in self._idle:
            warden.close()
        if self._channel is not None:
            self._channel.close()
        self.__init__()  # type: ignore[misc] # the fork copied the wardens of our parent
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
                    self._drop_nursery()
        os.close(owner)
        return ours

    def _started(self) -> socket.socket:
        if self._channel is None:
            self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._view = _view_of_mounts()
            home = str(Path(__file__).parents[2])
            argv = (sys.executable, "-I", "-S", "-c", _NURSERY, str(theirs.fileno()), str(os.getpid()), home)
            # Agents could read the environment of the nursery. Some interpreters do not start without this variable.
            env = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
            with theirs:
                self._nursery = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=env,
                    cwd="/",
                    start_new_session=True,
                    pass_fds=(theirs.fileno(),),
                )
            reaper.adopt(self._nursery.pid)
            _unlimit(self._nursery.pid)
        return self._channel

    def _drop_nursery(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._nursery is not None:
            self._nursery.kill()
            self._nursery.wait()
            reaper.release(self._nursery.pid)
            self._nursery = None

    def close(self) -> None:
        """End the idle wardens and the nursery."""
        for warden in self._idle:
            warden.close()
        self._idle.clear()
        self._drop_nursery()


wardens = Wardens()
# A process may end without closing them, as tests do; that should not print a warning.
atexit.register(wardens.close)


async def end_all() -> None:
    """End the idle wardens, and processes whose warden was killed."""
    wardens.close()
    await reaper.end_strays()
