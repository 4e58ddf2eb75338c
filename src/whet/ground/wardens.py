"""Our end of the wardens: one for each command that runs, kept for the next one."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import marshal
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import anyio

from whet.errors import SandboxError
from whet.ground.descent import children, descendants, signal_all
from whet.ground.sandbox import Command
from whet.ground.warden import CODE, RUN

_PAUSE_S = 0.002
_PATIENCE_S = 10.0


class Reaper:
    """Knows which children are ours by intent, and ends the others."""

    def __init__(self) -> None:
        self._session = os.getsid(0)
        self._known: set[int] = set()

    def start_anew(self) -> None:
        """In a fresh process: its parent's children are not its own, and its session is another."""
        self._session = os.getsid(0)
        self._known.clear()

    def adopt(self, pid: int) -> None:
        """This process is meant to be there."""
        self._known.add(pid)

    def release(self, pid: int) -> None:
        """This one is not ours any more."""
        self._known.discard(pid)

    async def end_strays(self) -> None:
        """Kill what lost its warden, and return when it is dead."""
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
        """Our children that nobody started on purpose; what is in our own session, no attempt started."""
        return [pid for pid in children(os.getpid()) if pid not in self._known and _session_of(pid) != self._session]


def kill_marked(name: str, value: str) -> int:
    """Kill every process of this user whose environment says *name*=*value*; how many there were.

    For runs that an earlier service could not end because it was itself killed.
    """
    wanted = f"{name}={value}".encode()
    killed: set[int] = set()
    # Again until a look finds no new one: a process may fork while we look.
    while found := set(_marked(wanted)) - killed:
        signal_all(sorted(found), signal.SIGKILL)
        killed |= found
    return len(killed)


def _marked(wanted: bytes) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid() and wanted in _environment(int(entry.name)):
            yield int(entry.name)


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


# The folder of whet comes last on its path, and no other is on it: nobody can plant a module.
_NURSERY = (
    "import sys; sys.path.append(sys.argv[3]); "
    "from whet.ground.warden import be_nursery; be_nursery(*map(int, sys.argv[1:3]))"
)
_WORD = 65536
# How long one that was killed may take to be dead.


class Warden:
    """One warden: what it is told, and what it says."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.pid = 0
        # The process itself: its id may be another's one day.
        self._process: int | None = None

    async def greet(self) -> bool:
        """Learn its process id; whether it is there at all."""
        try:
            said = await asyncio.get_running_loop().sock_recv(self._sock, _WORD)
        except OSError:
            return False
        if not said:
            return False
        self.pid = CODE.unpack(said)[0]
        try:
            self._process = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        reaper.adopt(self.pid)
        return True

    def fileno(self) -> int:
        """What becomes readable when it says something."""
        return self._sock.fileno()

    def run(self, command: Command, fds: Sequence[int], numbers: Sequence[int]) -> None:
        """Let it start *command*, with *fds* under the given *numbers*; it keeps copies of them."""
        request = os.memfd_create("command")
        try:
            with open(request, "wb", closefd=False) as file:
                file.write(marshal.dumps(_plain(command, numbers)))
            socket.send_fds(self._sock, [RUN], [request, *fds])
        finally:
            os.close(request)

    def say(self, word: bytes) -> None:
        """Tell it something; one that is no more is noticed where it is listened to."""
        with contextlib.suppress(OSError):
            self._sock.send(word)

    def wake(self) -> None:
        """Let it go on, should something have stopped it."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(self._process, number)

    def hear(self) -> bytes | None:
        """The next thing that it said, if there is one; nothing where it is no more."""
        try:
            return self._sock.recv(_WORD)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def close(self) -> None:
        """Let it go: it ends all that is below it, and itself."""
        self._sock.close()
        if self._process is not None:
            os.close(self._process)
            self._process = None
        reaper.release(self.pid)

    def kill(self) -> None:
        """End one that does not answer; what was below it comes to us."""
        self._signal(signal.SIGKILL)

    async def gone(self) -> None:
        """Wait until it is dead, and what was below it has come to us; its socket is closed a moment before."""
        if self._process is not None:
            with anyio.move_on_after(_PATIENCE_S):
                await anyio.wait_readable(self._process)


def _plain(
    command: Command, numbers: Sequence[int]
) -> tuple[tuple[bytes, ...], dict[bytes, bytes], bytes, tuple[int, ...]]:
    """What `marshal` can write; both ends are the same interpreter."""
    argv = tuple(map(os.fsencode, command.argv))
    env = {os.fsencode(name): os.fsencode(value) for name, value in command.env.items()}
    return argv, env, os.fsencode(command.cwd), tuple(numbers)


def _view_of_mounts() -> int:
    return os.stat("/proc/self/ns/mnt").st_ino  # noqa: PTH116 - before every command


class Wardens:
    """As many as there are commands at once; the nursery that they are forked from is started with the first."""

    def __init__(self) -> None:
        self._nursery: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._idle: list[Warden] = []
        self._busy = 0
        self._held: tuple[int, ...] = ()
        # The view of mounts that the nursery was started in.
        self._view = 0

    async def take(self) -> Warden:
        """One that has nothing to do."""
        if self._nursery is not None and self._view != _view_of_mounts():
            # Its wardens would not see what we mount.
            self.close()
        self._busy += 1
        while self._idle:
            warden = self._idle.pop()
            if warden.hear() is None:
                return warden
            # Something ended it while it had nothing to do.
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
        """It has nothing below it, and can take the next command."""
        self._busy -= 1
        self._idle.append(warden)

    @property
    def settled(self) -> bool:
        """Whether every one that was taken has been given back, and so nothing runs below any of them."""
        return self._busy == 0

    def lend(self) -> int:
        """What a worker asks the same nursery with."""
        return self._started().fileno()

    def start(self) -> None:
        """Start the nursery now, so that it is ready when the first command needs it."""
        self._started()

    def borrow(self, control: int, held: int) -> None:
        """In a worker: ask the nursery of whet; each warden holds *held* open until it has ended."""
        for warden in self._idle:
            warden.close()
        if self._control is not None:
            self._control.close()
        self.__init__()  # type: ignore[misc] # what was copied by a fork is not ours
        self._control = socket.socket(fileno=control)
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
        if self._control is None:
            self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._view = _view_of_mounts()
            home = str(Path(__file__).parents[2])
            argv = (sys.executable, "-I", "-S", "-c", _NURSERY, str(theirs.fileno()), str(os.getpid()), home)
            # Agents could read an environment; the one variable is what some interpreters do not start without.
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
        return self._control

    def _drop_nursery(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._nursery is not None:
            self._nursery.kill()
            self._nursery.wait()
            reaper.release(self._nursery.pid)
            self._nursery = None

    def close(self) -> None:
        """End those that have nothing to do, and the nursery."""
        for warden in self._idle:
            warden.close()
        self._idle.clear()
        self._drop_nursery()


wardens = Wardens()
# A process that ends without a word, as tests do, should not leave us with a warning.
atexit.register(wardens.close)


async def end_all() -> None:
    """End the wardens that have nothing to do, and what came to us because something killed one."""
    wardens.close()
    await reaper.end_strays()
