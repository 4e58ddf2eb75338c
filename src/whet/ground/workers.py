"""Processes of our own that answer calls: whoever hangs or dies in one takes nothing else along.

They are forked from a small parent that was itself forked before the event loop and its threads began, so that they
hold what was loaded by then, such as a suite's functions, and so that one that was killed or changed is replaced in
two milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable
from typing import NoReturn

import anyio

from whet.errors import SandboxError
from whet.ground.descent import become_subreaper, die_with_parent, end_descendants, signal_all, wake_with_parent
from whet.ground.warden import receive
from whet.ground.wardens import reaper, wardens

_HEADER = struct.Struct("!I")
_OUTPUT_KEPT = 65536
_UNCHANGED, _CHANGED = b"=", b"!"
_PATIENCE_S = 10.0
# No answer is so long; one that says so was garbled by the call, and must not cost us the memory.
_LONGEST_ANSWER = 256 * 2**20

# Answers one request; what it prints meanwhile is collected for it.
Serve = Callable[[bytes, "Printed"], bytes]
# Looks at a fresh worker, and gives what tells later whether it is still as it was.
Watch = Callable[[], Callable[[], bool]]


class WorkerDied(SandboxError):
    """A worker ended in the middle of a call."""

    code = "worker-died"


class WorkersGone(SandboxError):
    """No worker can be made any more."""

    code = "workers-gone"


_GO_ON = "end this run and go on with --resume"


class WorkerHung(SandboxError):
    """A worker did not answer in time, and was killed."""

    code = "worker-hung"


class Printed:
    """What a call printed, by Python or by anything it started, collected in memory behind file descriptors 1 and 2."""

    def __init__(self) -> None:
        self._file = os.memfd_create("printed")
        for fd in (1, 2):
            os.dup2(self._file, fd)
        self._stdout, self._stderr = (
            os.fdopen(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False) for fd in (1, 2)
        )
        sys.stdout, sys.stderr = self._stdout, self._stderr

    def clear(self) -> None:
        """Forget the last call's."""
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)

    def whole(self) -> bool:
        """Whether everything still goes where it should."""
        try:
            same = all(os.fstat(fd).st_ino == os.fstat(self._file).st_ino for fd in (1, 2))
        except OSError:
            return False
        return same and sys.stdout is self._stdout and sys.stderr is self._stderr

    def text(self) -> str:
        """What was printed, at most 64 KiB of it."""
        for stream in (self._stdout, self._stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        size = os.fstat(self._file).st_size
        kept = os.pread(self._file, _OUTPUT_KEPT, 0).decode(errors="replace")
        return kept if size <= _OUTPUT_KEPT else f"{kept}\n... ({size} bytes in all)\n"


class _Worker:
    """Our end of one worker, and of the guard above it."""

    def __init__(self, sock: socket.socket, guard: socket.socket) -> None:
        self._sock = sock
        self._guard = guard
        self._loop = asyncio.get_running_loop()
        self._pid = 0

    async def greet(self) -> None:
        """Learn the process id of its guard."""
        self._pid = _HEADER.unpack(await self._receive(_HEADER.size))[0]
        reaper.adopt(self._pid)

    async def call(self, request: bytes) -> tuple[bytes, bool]:
        """Send a request and wait for the answer to it, and for whether it can take another one."""
        await self._loop.sock_sendall(self._sock, _HEADER.pack(len(request)) + request)
        size = _HEADER.unpack(await self._receive(_HEADER.size))[0]
        if size > _LONGEST_ANSWER:
            raise WorkerDied("the process that ran it answered nonsense")
        answer = await self._receive(size)
        return answer[1:], answer[:1] == _UNCHANGED

    async def _receive(self, size: int) -> bytes:
        data = memoryview(bytearray(size))
        filled = 0
        while filled < size:
            count = await self._loop.sock_recv_into(self._sock, data[filled:])
            if not count:
                raise WorkerDied("the process that ran it ended")
            filled += count
        return bytes(data)

    def close(self) -> None:
        """Let it go; its guard ends it, and all that it started."""
        self._sock.close()
        self._guard.close()
        reaper.release(self._pid)

    async def end(self) -> None:
        """End it, and return when nothing that it started is left."""
        with contextlib.suppress(OSError):
            self._guard.shutdown(socket.SHUT_WR)
        # The call may have stopped it.
        signal_all([self._pid] if self._pid else [], signal.SIGCONT)
        with anyio.move_on_after(_PATIENCE_S) as waiting, contextlib.suppress(OSError):
            # Nobody says anything: it comes to its end when the guard and the wardens below it have ended.
            await self._loop.sock_recv(self._guard, 1)
        if waiting.cancelled_caught:
            # Its worker dies with it, and what was below comes to us.
            signal_all([self._pid] if self._pid else [], signal.SIGKILL)
        self.close()
        # Where the call killed the guard.
        await reaper.end_strays()


class Workers:
    """As many workers as there are calls at once; one that a call has changed is not used again."""

    def __init__(self, control: socket.socket, pid: int) -> None:
        self._control = control
        self._pid = pid
        self._idle: list[_Worker] = []

    @classmethod
    def fork(cls, serve: Serve, watch: Watch = lambda: lambda: True) -> Workers:
        """Fork the parent of all workers; to be called before there are threads or an event loop."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        # What is loaded now stays; collecting it in a child would only copy its pages.
        gc.freeze()
        whet = os.getpid()
        pid = os.fork()
        if pid == 0:
            ours.close()
            _be_parent(theirs, whet, serve, watch)
        theirs.close()
        reaper.adopt(pid)
        return cls(ours, pid)

    async def call(self, request: bytes, *, timeout_s: float) -> bytes:
        """The answer to *request*; a worker that hangs is killed, one that dies is replaced."""
        worker = self._idle.pop() if self._idle else await self._new()
        answered = reusable = False
        try:
            with anyio.fail_after(timeout_s):
                answer, reusable = await worker.call(request)
            answered = True
        except TimeoutError:
            raise WorkerHung(f"it did not end within {timeout_s:g} s") from None
        except OSError as error:
            raise WorkerDied("the process that ran it ended") from error
        finally:
            if answered and reusable:
                self._idle.append(worker)
            else:
                with anyio.CancelScope(shield=True):
                    await worker.end()
        return answer

    async def _new(self) -> _Worker:
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(2)]
        (sock, talk), (guard, lifeline) = pairs
        worker = _Worker(sock, guard)
        for ours in (sock, guard):
            ours.setblocking(False)
        try:
            with talk, lifeline:
                socket.send_fds(self._control, [b"w"], [talk.fileno(), lifeline.fileno(), wardens.lend()])
        except OSError as error:
            worker.close()
            raise WorkersGone("something killed the process that workers are forked from", hint=_GO_ON) from error
        try:
            await worker.greet()
        except BaseException:
            worker.close()
            raise
        return worker

    def close(self) -> None:
        """End all of them."""
        for worker in self._idle:
            worker.close()
        self._idle.clear()
        self._control.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        reaper.release(self._pid)


def _be_parent(control: socket.socket, whet: int, serve: Serve, watch: Watch) -> NoReturn:
    """Fork a worker for every pair of sockets that comes in, until there is nobody to send one."""
    watched = os.pidfd_open(whet)
    die_with_parent()
    if os.getppid() != whet:
        os._exit(0)
    # Out of the terminal's foreground group: Ctrl-C is for the run to handle.
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    # Nobody waits for guards; the kernel shall forget them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        data, fds = receive(control, 1, 3)
        if not data:
            os._exit(0)
        if os.fork() == 0:
            control.close()
            try:
                talk, lifeline, nursery = fds
                _guard(talk, lifeline, nursery, watched)
                wardens.borrow(nursery, lifeline)
                _be_worker(socket.socket(fileno=talk), serve, watch)
            finally:
                # Whatever is raised must not go on in a copy of whoever forked us.
                os._exit(1)
        for fd in fds:
            os.close(fd)


def _guard(talk: int, lifeline: int, nursery: int, whet: int) -> None:
    """Stay above a worker and end all that descends from it when it ends, when we are told to, or with whet.

    Returns in the worker. A call that kills its own parent kills this, and then the worker dies as well.
    """
    os.setsid()
    become_subreaper()
    wake_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    guard = os.getpid()
    worker = os.fork()
    if worker == 0:
        die_with_parent()
        if os.getppid() != guard:
            os._exit(0)
        os.close(whet)
        return
    os.close(talk)
    os.close(nursery)
    ends = select.poll()
    for watched in (lifeline, whet, os.pidfd_open(worker)):
        ends.register(watched, select.POLLIN)
    ends.poll()
    end_descendants(math.inf)
    os._exit(0)


def _be_worker(sock: socket.socket, serve: Serve, watch: Watch) -> NoReturn:
    guard, worker = os.getppid(), os.getpid()
    os.setsid()
    become_subreaper()
    reaper.start_anew()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    printed = Printed()
    sock.sendall(_HEADER.pack(guard))
    unchanged = watch()
    while True:
        request = _read(sock, _HEADER.unpack(_read(sock, _HEADER.size))[0])
        printed.clear()
        answer = serve(request, printed)
        if os.getpid() != worker:
            # The call forked, and this is the copy: only the original answers.
            os._exit(0)
        # What a call started ends with it.
        end_descendants(_PATIENCE_S)
        state = _UNCHANGED if unchanged() and printed.whole() and wardens.settled else _CHANGED
        sock.sendall(_HEADER.pack(1 + len(answer)) + state + answer)


def _read(sock: socket.socket, size: int) -> bytes:
    data = memoryview(bytearray(size))
    filled = 0
    while filled < size:
        count = sock.recv_into(data[filled:])
        if not count:
            os._exit(0)
        filled += count
    return bytes(data)
