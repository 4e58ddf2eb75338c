"""Run calls in worker processes, so that a call that hangs or dies harms nothing else.

Workers are forked from a small parent, which is forked before the event loop and its threads start. So they have
everything that is loaded by then, such as the functions of a suite, and replacing one takes two milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import os
import resource
import select
import signal
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable
from typing import NoReturn

import anyio

from whet.errors import SandboxError
from whet.linux import die_with_parent
from whet.sandbox.process.cgroups import memory_here
from whet.sandbox.process.pool import reaper, supervisors
from whet.sandbox.process.procfs import become_subreaper, end_descendants, signal_all, wake_with_parent
from whet.sandbox.process.supervisor import receive

_HEADER = struct.Struct("!I")
_OUTPUT_KEPT = 65536
_UNCHANGED, _CHANGED = b"=", b"!"
_PATIENCE_S = 10.0
_PIECE = 65536
# With so many calls under way, another one waits for a moment before it takes a worker of its own.
_AT_ONCE, _MOMENT_S = 4, 0.05
# No real answer is longer; a longer one was garbled by the call, and must not use up our memory.
_LONGEST_ANSWER = 256 * 2**20
# What a worker may take of the memory, and half of what there is if that is less.
_MOST_MEMORY = 4 * 2**30

# Answers one request; `PrintedOutput` collects what it prints.
Serve = Callable[[bytes, "PrintedOutput"], bytes]
# Looks at a fresh worker, and returns a function that tells whether the worker is unchanged.
Watch = Callable[[], Callable[[], bool]]


class WorkerDied(SandboxError):
    """A worker ended during a call."""

    code = "worker-died"


class WorkersGone(SandboxError):
    """The parent of all workers is gone, so there are no new workers."""

    code = "workers-gone"


_GO_ON = "end this run and continue with --resume"


class WorkerHung(SandboxError):
    """A worker did not answer in time, and was killed."""

    code = "worker-hung"


class PrintedOutput:
    """Collects in memory what a call, or anything it started, prints to file descriptors 1 and 2."""

    def __init__(self) -> None:
        self._file = os.memfd_create("printed")
        for fd in (1, 2):
            os.dup2(self._file, fd)
        self._stdout, self._stderr = (
            os.fdopen(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False) for fd in (1, 2)
        )
        sys.stdout, sys.stderr = self._stdout, self._stderr

    def clear(self) -> None:
        """Forget the output of the last call."""
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)

    def whole(self) -> bool:
        """Return whether output still goes here."""
        try:
            same = all(os.fstat(fd).st_ino == os.fstat(self._file).st_ino for fd in (1, 2))
        except OSError:
            return False
        return same and sys.stdout is self._stdout and sys.stderr is self._stderr

    def text(self) -> str:
        """Return the output, at most 64 KiB of it."""
        for stream in (self._stdout, self._stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        size = os.fstat(self._file).st_size
        kept = os.pread(self._file, _OUTPUT_KEPT, 0).decode(errors="replace")
        return kept if size <= _OUTPUT_KEPT else f"{kept}\n... ({size} bytes in all)\n"


class _Worker:
    """Our end of the connections to one worker and to the watchdog above it."""

    def __init__(self, sock: socket.socket, watchdog: socket.socket) -> None:
        self._sock = sock
        self._watchdog = watchdog
        self._pid = 0

    async def greet(self) -> None:
        """Receive the process id of its watchdog, if that was not done yet."""
        if not self._pid:
            self._pid = _HEADER.unpack(await self._receive(_HEADER.size))[0]
            reaper.adopt(self._pid)

    async def call(self, request: bytes) -> tuple[bytes, bool]:
        """Send a request; return the answer and whether the worker can take another request."""
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._sock, _HEADER.pack(len(request)) + request)
        # Most answers are one piece.
        begin = await loop.sock_recv(self._sock, _PIECE)
        if len(begin) < _HEADER.size:
            begin += await self._receive(_HEADER.size - len(begin))
        size = _HEADER.unpack_from(begin)[0]
        missing = size - (len(begin) - _HEADER.size)
        if size > _LONGEST_ANSWER or missing < 0:
            raise WorkerDied("the process that ran it sent an invalid answer")
        answer = begin[_HEADER.size :] + (await self._receive(missing) if missing else b"")
        return answer[1:], answer[:1] == _UNCHANGED

    async def _receive(self, size: int) -> bytes:
        data = memoryview(bytearray(size))
        filled = 0
        # Not that of its making: a worker may be made while something is asked before the run, in a loop of its own.
        loop = asyncio.get_running_loop()
        while filled < size:
            count = await loop.sock_recv_into(self._sock, data[filled:])
            if not count:
                raise WorkerDied("the process that ran it ended")
            filled += count
        return bytes(data)

    def close(self) -> None:
        """Close the connections; the watchdog ends the worker and everything it started."""
        self._sock.close()
        self._watchdog.close()
        reaper.release(self._pid)

    async def end(self) -> None:
        """End the worker and everything it started, and return when they are gone."""
        with contextlib.suppress(OSError):
            self._watchdog.shutdown(socket.SHUT_WR)
        # The call may have stopped the watchdog.
        signal_all([self._pid] if self._pid else [], signal.SIGCONT)
        with anyio.move_on_after(_PATIENCE_S) as waiting, contextlib.suppress(OSError):
            # The watchdog sends nothing; the socket ends when it and the supervisors of the worker have ended.
            await asyncio.get_running_loop().sock_recv(self._watchdog, 1)
        if waiting.cancelled_caught:
            # The worker dies with it, and the processes below become our children.
            signal_all([self._pid] if self._pid else [], signal.SIGKILL)
        self.close()
        # The call may have killed the watchdog.
        await reaper.end_strays()


class Workers:
    """One worker for each call that runs now; a worker that a call has changed is not used again."""

    def __init__(self, channel: socket.socket, pid: int) -> None:
        self._channel = channel
        self._pid = pid
        self._idle: list[_Worker] = []
        self._busy = 0
        # Calls that wait for a worker before they ask for a new one.
        self._waiting: deque[asyncio.Future[None]] = deque()

    @classmethod
    def fork(
        cls, serve: Serve, watch: Watch = lambda: lambda: True, prepare: Callable[[], object] = lambda: None
    ) -> Workers:
        """Fork the parent of all workers, which calls *prepare*; do this before there are threads or an event loop."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        # Collecting garbage in a child would only copy memory pages.
        gc.freeze()
        whet = os.getpid()
        pid = os.fork()
        if pid == 0:
            ours.close()
            _be_parent(theirs, whet, serve, watch, prepare)
        theirs.close()
        reaper.adopt(pid)
        return cls(ours, pid)

    async def call(self, request: bytes, *, timeout_s: float) -> bytes:
        """Return the answer to *request*; kill a worker that hangs, and replace one that dies."""
        worker = await self._take()
        self._busy += 1
        try:
            await self._greet(worker)
            return await self._ask(worker, request, timeout_s)
        finally:
            self._busy -= 1

    async def _ask(self, worker: _Worker, request: bytes, timeout_s: float) -> bytes:
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
                self._give_back(worker)
            else:
                with anyio.CancelScope(shield=True):
                    await worker.end()
        return answer

    async def _take(self) -> _Worker:
        """Return an idle worker, one that becomes idle in a moment, or a new one.

        Many trials may end at once, and most calls take less time than a new worker.
        """
        if not self._idle and self._busy >= _AT_ONCE:
            with anyio.move_on_after(_MOMENT_S):
                while not self._idle:
                    self._waiting.append(asyncio.get_running_loop().create_future())
                    await self._waiting[-1]
        return self._idle.pop() if self._idle else self._new()

    def _give_back(self, worker: _Worker) -> None:
        self._idle.append(worker)
        while self._waiting:
            waiting = self._waiting.popleft()
            # Unless it has waited long enough.
            if not waiting.done():
                waiting.set_result(None)
                break

    def warm_up(self) -> None:
        """Fork a worker now, so that the first call finds it ready."""
        with contextlib.suppress(WorkersGone):
            self._idle.append(self._new())

    def _new(self) -> _Worker:
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(2)]
        (sock, talk), (watchdog, lifeline) = pairs
        worker = _Worker(sock, watchdog)
        for ours in (sock, watchdog):
            ours.setblocking(False)
        try:
            with talk, lifeline:
                socket.send_fds(self._channel, [b"w"], [talk.fileno(), lifeline.fileno(), supervisors.lend()])
        except OSError as error:
            worker.close()
            raise WorkersGone("something killed the process that workers are forked from", hint=_GO_ON) from error
        return worker

    async def _greet(self, worker: _Worker) -> None:
        try:
            await worker.greet()
        except BaseException:
            worker.close()
            raise

    def close(self) -> None:
        """End all workers and their parent."""
        for worker in self._idle:
            worker.close()
        self._idle.clear()
        self._channel.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        reaper.release(self._pid)


def _be_parent(
    channel: socket.socket, whet: int, serve: Serve, watch: Watch, prepare: Callable[[], object]
) -> NoReturn:
    """Fork a worker for every pair of sockets that arrives, until whet closes the connection."""
    watched = os.pidfd_open(whet)
    die_with_parent()
    if os.getppid() != whet:
        os._exit(0)
    # Leave the foreground group of the terminal, so that only the run gets Ctrl-C.
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    # We do not wait for watchdogs, so let the kernel reap them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    _take_ceiling()
    prepare()
    # What was made until now is in no check's way: some look for objects that it has left.
    gc.freeze()
    while True:
        data, fds = receive(channel, 1, 3)
        if not data:
            os._exit(0)
        if os.fork() == 0:
            channel.close()
            try:
                talk, lifeline, fork_server = fds
                _watchdog(talk, lifeline, fork_server, watched)
                supervisors.borrow(fork_server, lifeline)
                _be_worker(socket.socket(fileno=talk), serve, watch)
            finally:
                # After any exception: do not continue as a second parent.
                os._exit(1)
        for fd in fds:
            os.close(fd)


def _take_ceiling() -> None:
    """Let no worker take the memory of the machine: what an agent left may be larger than that, and a check reads it.

    Only as far as a suite may raise it again.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = min(_MOST_MEMORY, memory_here() // 2)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def _watchdog(talk: int, lifeline: int, fork_server: int, whet: int) -> None:
    """Fork the worker and return in it; in the parent, end all descendants when the worker, the lifeline or whet ends.

    If a call kills its own parent, it kills the watchdog, and the worker dies as well.
    """
    os.setsid()
    become_subreaper()
    wake_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    watchdog = os.getpid()
    worker = os.fork()
    if worker == 0:
        die_with_parent()
        if os.getppid() != watchdog:
            os._exit(0)
        os.close(whet)
        return
    os.close(talk)
    os.close(fork_server)
    ends = select.poll()
    for watched in (lifeline, whet, os.pidfd_open(worker)):
        ends.register(watched, select.POLLIN)
    ends.poll()
    end_descendants(math.inf)
    os._exit(0)


def _be_worker(sock: socket.socket, serve: Serve, watch: Watch) -> NoReturn:
    watchdog, worker = os.getppid(), os.getpid()
    os.setsid()
    become_subreaper()
    reaper.start_anew()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    printed = PrintedOutput()
    sock.sendall(_HEADER.pack(watchdog))
    unchanged = watch()
    while True:
        request = _read(sock, _HEADER.unpack(_read(sock, _HEADER.size))[0])
        printed.clear()
        answer = serve(request, printed)
        if os.getpid() != worker:
            # The call forked and this is the copy; only the original answers.
            os._exit(0)
        # End what the call has started.
        end_descendants(_PATIENCE_S)
        state = _UNCHANGED if unchanged() and printed.whole() and supervisors.all_idle else _CHANGED
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
