"""Processes of our own that answer calls: whoever hangs or dies in one takes nothing else along.

They are forked from a small parent that was itself forked before the event loop and its threads began, so that they
hold what was loaded by then, such as a suite's functions, and so that one that was killed or changed is replaced in
two milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from typing import NoReturn

import anyio

from whet.errors import SandboxError
from whet.sandbox.reaper import MARK, become_subreaper, descendants, die_with_parent, reaper, signal_all

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
    """Our end of one worker."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self.pid = 0

    async def greet(self) -> None:
        """Learn its process id."""
        self.pid = _HEADER.unpack(await self._receive(_HEADER.size))[0]

    async def call(self, mark: str, request: bytes) -> tuple[bytes, bool]:
        """Send a request and wait for the answer to it, and for whether it can take another one."""
        named = mark.encode()
        body = _HEADER.pack(len(named)) + named + request
        await self._loop.sock_sendall(self._sock, _HEADER.pack(len(body)) + body)
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
        """Let it go; it ends by itself."""
        self._sock.close()

    def kill(self) -> None:
        """End it, and the group around it."""
        self._sock.close()
        if self.pid:
            for end in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    end(self.pid, signal.SIGKILL)


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
        pid = os.fork()
        if pid == 0:
            ours.close()
            _be_parent(theirs, serve, watch)
        theirs.close()
        reaper.adopt(pid)
        return cls(ours, pid)

    async def call(self, request: bytes, *, mark: str, timeout_s: float) -> bytes:
        """The answer to *request*; a worker that hangs is killed, one that dies is replaced."""
        worker = self._idle.pop() if self._idle else await self._new()
        answered = reusable = False
        try:
            with anyio.fail_after(timeout_s):
                answer, reusable = await worker.call(mark, request)
            answered = True
        except TimeoutError:
            raise WorkerHung(f"it did not end within {timeout_s:g} s") from None
        except OSError as error:
            raise WorkerDied("the process that ran it ended") from error
        finally:
            if answered and reusable:
                self._idle.append(worker)
            elif answered:
                worker.close()
            else:
                worker.kill()
                with anyio.CancelScope(shield=True):
                    # A signal is not yet a death, and only its death makes orphans of what it started.
                    await _dead(worker.pid)
                    await reaper.end(mark)
        return answer

    async def _new(self) -> _Worker:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        try:
            with theirs:
                socket.send_fds(self._control, [b"w"], [theirs.fileno()])
        except OSError as error:
            ours.close()
            raise WorkersGone("something killed the process that workers are forked from", hint=_GO_ON) from error
        worker = _Worker(ours)
        await worker.greet()
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


async def _dead(pid: int) -> None:
    """Wait until the process is gone."""
    with anyio.move_on_after(_PATIENCE_S):
        while _exists(pid):  # noqa: ASYNC110 - there is no event: it is nobody's child but its parent's
            await anyio.sleep(0.001)


def _exists(pid: int) -> bool:
    if pid == 0:
        return False
    # It has become our child where the call killed the one between us, and then waits for us to look at it.
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _be_parent(control: socket.socket, serve: Serve, watch: Watch) -> NoReturn:
    """Fork a worker for every socket that comes in, until there is nobody to send one."""
    die_with_parent()
    # Out of the terminal's foreground group: Ctrl-C is for the run to handle.
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    # Nobody waits for workers; the kernel shall forget them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        data, fds, _, _ = socket.recv_fds(control, 1, 1)
        if not data:
            os._exit(0)
        if os.fork() == 0:
            control.close()
            try:
                _shield(fds[0])
                _be_worker(socket.socket(fileno=fds[0]), serve, watch)
            finally:
                # Whatever is raised must not go on in a copy of whoever forked us.
                os._exit(1)
        os.close(fds[0])


def _shield(sock: int) -> None:
    """Put a process between a worker and the parent of all: a call that kills its own parent ends only itself."""
    die_with_parent()
    if os.fork() == 0:
        return
    os.close(sock)
    with contextlib.suppress(ChildProcessError):
        # Dead children are not kept for us, so this waits until there is none.
        os.waitpid(-1, 0)
    os._exit(0)


def _be_worker(sock: socket.socket, serve: Serve, watch: Watch) -> NoReturn:
    die_with_parent()
    os.setsid()
    become_subreaper()
    reaper.start_anew()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    printed = Printed()
    worker = os.getpid()
    sock.sendall(_HEADER.pack(worker))
    unchanged = watch()
    while True:
        body = _read(sock, _HEADER.unpack(_read(sock, _HEADER.size))[0])
        split = _HEADER.size + _HEADER.unpack(body[: _HEADER.size])[0]
        mark = body[_HEADER.size : split].decode()
        printed.clear()
        with _environment(mark):
            answer = serve(body[split:], printed)
        if os.getpid() != worker:
            # The call forked, and this is the copy: only the original answers.
            os._exit(0)
        _end_children()
        state = _UNCHANGED if unchanged() and printed.whole() else _CHANGED
        sock.sendall(_HEADER.pack(1 + len(answer)) + state + answer)


@contextlib.contextmanager
def _environment(mark: str) -> Iterator[None]:
    """What a call starts bears its mark."""
    os.environ[MARK] = mark
    try:
        yield
    finally:
        os.environ.pop(MARK, None)


def _end_children() -> None:
    """What a call started ends with it."""
    try:
        # Orphans come to us, so where there is no child there is nothing else either.
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return
    while children := descendants(os.getpid()):
        signal_all(children, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, 0)[0]:
                pass


def _read(sock: socket.socket, size: int) -> bytes:
    data = memoryview(bytearray(size))
    filled = 0
    while filled < size:
        count = sock.recv_into(data[filled:])
        if not count:
            os._exit(0)
        filled += count
    return bytes(data)
