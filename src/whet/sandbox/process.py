"""One process from start to end: its output goes to sinks as it comes, and it does not outlive the call."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import math
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable

import anyio

from whet.errors import AgentNotFound, AgentNotStarted
from whet.sandbox.base import Command, Ended, Sink
from whet.sandbox.reaper import descendants, reaper, signal_all

_CHUNK = 65536
# What a pipe can hold by the time its writers are dead; whoever writes more than that is not one of them.
_MOST_LEFT = 2 * 1024 * 1024
# As much as anybody may ask for by default.
_PIPE_SIZE = 1024 * 1024
# How long a process may take to tidy up between SIGTERM and SIGKILL.
GRACE_S = 2.0


class _Child:
    """A started process, its two output pipes and the moment of its end, watched by the event loop."""

    def __init__(self, process: subprocess.Popen[bytes], pipes: dict[int, Sink]) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._pidfd = os.pidfd_open(process.pid)
        self._pipes = pipes
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self.trouble: Exception | None = None
        self._loop.add_reader(self._pidfd, self._on_exit)
        for pipe in pipes:
            self._loop.add_reader(pipe, self._on_output, pipe)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exited(self) -> bool:
        """Whether it has ended by now."""
        return self._gone.done()

    async def over(self) -> None:
        """Wait until it has exited, or a sink has had enough of it."""
        await asyncio.shield(self._over)

    async def exit(self, within_s: float) -> None:
        """Wait for its exit, at most so long."""
        with anyio.move_on_after(within_s):
            await asyncio.shield(self._gone)

    def _on_exit(self) -> None:
        self._loop.remove_reader(self._pidfd)
        _settle(self._gone)
        _settle(self._over)

    def _on_output(self, pipe: int) -> None:
        """Pass on one chunk; a pipe at its end is no longer watched."""
        try:
            chunk = os.read(pipe, _CHUNK)
            if chunk:
                self._pipes[pipe](chunk)
            else:
                self._loop.remove_reader(pipe)
        except BlockingIOError:
            pass
        except Exception as error:  # noqa: BLE001 - a sink's refusal is the caller's business, not the event loop's
            self._loop.remove_reader(pipe)
            self.trouble = self.trouble or error
            _settle(self._over)

    def wait(self) -> int:
        """The return code of a process that has exited; from here on its id may be used again by the system."""
        code = self._process.wait()
        reaper.release(self.pid)
        return code

    def close(self) -> None:
        """Read what the pipes still hold, once nobody can write any more, and let go of everything."""
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        _settle(self._over)
        for pipe, sink in self._pipes.items():
            self._loop.remove_reader(pipe)
            try:
                for _ in range(_MOST_LEFT // _CHUNK):
                    if self.trouble is not None or not (chunk := os.read(pipe, _CHUNK)):
                        break
                    sink(chunk)
            except BlockingIOError:
                pass
            except Exception as error:  # noqa: BLE001 - as above
                self.trouble = error
            finally:
                os.close(pipe)


class Conversation:
    """A running process and the pipe that it reads from; see `Talk`."""

    def __init__(self, child: _Child, stdin: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._child = child
        self._stdin: int | None = stdin
        self.exit_code: int | None = None

    async def send(self, data: bytes) -> None:
        """Write all of *data*, as fast as it is read."""
        view = memoryview(data)
        while view:
            if self._stdin is None or self._child.exited:
                raise BrokenPipeError(errno.EPIPE, "the process has ended")
            try:
                view = view[os.write(self._stdin, view) :]
            except BlockingIOError:
                await self._writable(self._stdin)

    async def _writable(self, stdin: int) -> None:
        """Until there is room, or the process is gone: a child of its own may hold the other end open for ever."""
        room: asyncio.Future[None] = self._loop.create_future()
        gone = asyncio.ensure_future(self._child.over())
        self._loop.add_writer(stdin, _settle, room)
        try:
            await asyncio.wait({room, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._loop.remove_writer(stdin)
            gone.cancel()

    async def over(self) -> None:
        """Wait for its end, or for the refusal of a sink."""
        await self._child.over()
        if self._child.trouble is not None:
            raise self._child.trouble

    def end_input(self) -> None:
        """Let it know that nothing more comes."""
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None


@contextlib.asynccontextmanager
async def open_process(
    command: Command,
    *,
    stdout: Sink,
    stderr: Sink,
    pass_fds: tuple[int, ...] = (),
    started: Callable[[], object] | None = None,
) -> AsyncIterator[Conversation]:
    """Start *command* in a session of its own, with a pipe to it; its process group is dead at the end."""
    child, stdin = _start_talking(command, stdout, stderr, pass_fds)
    if started:
        started()
    talk = Conversation(child, stdin)
    try:
        await talk.send(command.stdin)
        yield talk
        talk.end_input()
        await child.exit(GRACE_S)
    finally:
        with anyio.CancelScope(shield=True):
            talk.end_input()
            talk.exit_code = await _stop(child)
            child.close()


async def run_process(
    command: Command,
    *,
    timeout_s: float,
    stdout: Sink,
    stderr: Sink,
    pass_fds: tuple[int, ...] = (),
    started: Callable[[], object] | None = None,
) -> Ended:
    """Run *command* in a session of its own; its process group is dead when this returns or raises."""
    began = time.monotonic()
    child = _start(command, stdout, stderr, pass_fds)
    if started:
        started()
    timed_out = False
    code = 0
    try:
        with anyio.move_on_after(timeout_s) as scope:
            await child.over()
        timed_out = scope.cancelled_caught and not child.exited
    finally:
        with anyio.CancelScope(shield=True):
            code = await _stop(child)
            child.close()
    if child.trouble is not None:
        raise child.trouble
    return Ended(
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        timed_out=timed_out,
        duration_s=time.monotonic() - began,
    )


def _start(command: Command, stdout: Sink, stderr: Sink, pass_fds: tuple[int, ...]) -> _Child:
    with contextlib.ExitStack() as ours:
        out_read, out_write = _pipe(ours)
        err_read, err_write = _pipe(ours)
        stdin = _input(command.stdin, ours)
        process = _spawn(command, stdin, out_write, err_write, pass_fds)
        ours.pop_all()
    for fd in (out_write, err_write, stdin):
        os.close(fd)
    reaper.adopt(process.pid)
    return _Child(process, {out_read: stdout, err_read: stderr})


def _start_talking(command: Command, stdout: Sink, stderr: Sink, pass_fds: tuple[int, ...]) -> tuple[_Child, int]:
    with contextlib.ExitStack() as ours:
        out_read, out_write = _pipe(ours)
        err_read, err_write = _pipe(ours)
        in_read, in_write = _pipe(ours)
        # The end that is its own must be as programs expect it; ours must not hold up the event loop.
        os.set_blocking(in_read, True)
        os.set_blocking(in_write, False)
        process = _spawn(command, in_read, out_write, err_write, pass_fds)
        ours.pop_all()
    for fd in (out_write, err_write, in_read):
        os.close(fd)
    reaper.adopt(process.pid)
    return _Child(process, {out_read: stdout, err_read: stderr}), in_write


def _pipe(ours: contextlib.ExitStack) -> tuple[int, int]:
    read, write = os.pipe2(os.O_CLOEXEC)
    ours.callback(os.close, read)
    ours.callback(os.close, write)
    os.set_blocking(read, False)
    # Some programs exit without waiting for a full pipe to be read, and lose their last words.
    with contextlib.suppress(OSError):
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
    return read, write


def _input(data: bytes, ours: contextlib.ExitStack) -> int:
    """A file that holds *data*: nobody has to feed it, and a program that never reads it breaks nothing."""
    if data:
        fd = os.memfd_create("stdin")
        ours.callback(os.close, fd)
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
    else:
        fd = os.open(os.devnull, os.O_RDONLY)
        ours.callback(os.close, fd)
    return fd


def _spawn(command: Command, stdin: int, out: int, err: int, pass_fds: tuple[int, ...]) -> subprocess.Popen[bytes]:
    program = command.argv[0]
    try:
        # No preexec_fn: it would force a real fork, which costs 44 ms under a large heap instead of 0.7 ms.
        return subprocess.Popen(
            command.argv,
            stdin=stdin,
            stdout=out,
            stderr=err,
            env=dict(command.env),
            cwd=command.cwd,
            start_new_session=True,
            pass_fds=pass_fds,
        )
    except FileNotFoundError as error:
        if error.filename is not None and str(error.filename) == str(command.cwd):
            raise AgentNotStarted(f"its working folder {command.cwd} does not exist") from error
        raise AgentNotFound(
            f'there is no program "{program}"', hint="install it, or correct `command` of this runner"
        ) from error
    except PermissionError as error:
        raise AgentNotStarted(f'"{program}" cannot be executed: {error.strerror}') from error
    except (OSError, ValueError) as error:
        too_long = isinstance(error, OSError) and error.errno == errno.E2BIG
        raise AgentNotStarted(
            f'"{program}" could not be started: {error}',
            hint="an argument is too long; let the program read the prompt from standard input" if too_long else None,
        ) from error


async def _stop(child: _Child) -> int:
    """See to it that the process and its group are dead; TERM first, so that it can tidy up."""
    if not child.exited:
        signal_all([child.pid, *descendants(child.pid)], signal.SIGTERM)
        await child.exit(GRACE_S)
    if not child.exited:
        signal_all(descendants(child.pid), signal.SIGKILL)
    # The group, not the process: agents leave servers behind. Before the wait, while its id cannot be reused.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    await child.exit(math.inf)
    return child.wait()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
