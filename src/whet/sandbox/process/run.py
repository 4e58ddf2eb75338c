"""Run one process below a supervisor: its output goes to sinks as it arrives, and nothing outlives the call."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import marshal
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import anyio

from whet.errors import AgentNotStarted, SandboxError
from whet.sandbox.contract import Command, Ended, Sink, no_program
from whet.sandbox.process import supervisor as words
from whet.sandbox.process._pause import paused
from whet.sandbox.process.pool import SupervisorConnection, reaper, supervisors
from whet.sandbox.process.procfs import descendants

if TYPE_CHECKING:
    from whet.sandbox.process.disk import Disk

_CHUNK = 65536
# More than a pipe can hold when its writers are dead; anything beyond comes from another process.
_MOST_LEFT = 2 * 1024 * 1024
# The most that an ordinary user may ask for by default.
_PIPE_SIZE = 1024 * 1024
# The time between SIGTERM and SIGKILL.
GRACE_S = 2.0
# A supervisor reports in time what it could not end; if it does not, it is stopped or stuck.
_PATIENCE_S = words.PATIENCE_S + 5.0
_LOST = b"whet: something killed the process that watches over this command, so whet ended the command\n"


class _Child:
    """A process below its supervisor: the event loop watches its two output pipes and its end."""

    def __init__(
        self, command: Command, supervisor: SupervisorConnection, stdout: tuple[int, Sink], stderr: tuple[int, Sink]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._command = command
        self._supervisor = supervisor
        self._pipes = dict((stdout, stderr))
        self._complain = stderr[1]
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._clear: asyncio.Future[None] = self._loop.create_future()
        # If the supervisor reports no exit code, everything was killed.
        self._code = -signal.SIGKILL
        self._lost = False
        self._watch: asyncio.Task[None] | None = None
        # Why it could not be started, or what a sink raised.
        self.trouble: Exception | None = None
        self.unended: SandboxError | None = None
        self._loop.add_reader(supervisor.fileno(), self._on_words)
        for pipe in self._pipes:
            self._loop.add_reader(pipe, self._on_output, pipe)

    @property
    def exited(self) -> bool:
        """Whether it has ended."""
        return self._gone.done()

    def below(self) -> list[int]:
        """Return the process and everything that it started."""
        return descendants(self._supervisor.pid)

    def watch(self, disk: Disk) -> None:
        """End it at once when it takes too much of *disk*."""
        self._watch = self._loop.create_task(disk.watch(self._supervisor.pid, self._kill))

    def _kill(self) -> None:
        self._supervisor.say(words.END)
        self._supervisor.wake()

    async def started(self) -> None:
        """Wait until it has become its program; raises if it could not be started."""
        await asyncio.shield(self._started)
        if self.trouble is not None:
            raise self.trouble

    async def over(self) -> None:
        """Wait until it has exited or a sink has raised."""
        await asyncio.shield(self._over)

    async def exit(self, within_s: float) -> None:
        """Wait for its exit, at most *within_s* seconds."""
        with anyio.move_on_after(within_s):
            await asyncio.shield(self._gone)

    async def end(self) -> int:
        """End everything that it started, with SIGTERM first, and return its exit code; nothing can cancel this."""
        if self._watch is not None:
            self._watch.cancel()
        if not self.exited or not self._clear.done() or self._lost:
            with anyio.CancelScope(shield=True):
                await self._stop()
        self._close()
        return self._code

    async def _stop(self) -> None:
        if not self.exited:
            self._supervisor.say(words.ASK)
            await self.exit(GRACE_S)
        if not self._clear.done():
            self._kill()
            with anyio.move_on_after(_PATIENCE_S):
                await asyncio.shield(self._clear)
        if not self._clear.done():
            self._on_loss()
            self._supervisor.kill()
        if self._lost:
            await self._supervisor.gone()
            await reaper.end_strays()

    def _on_words(self) -> None:
        while not self._lost and (said := self._supervisor.hear()) is not None:
            kind, rest = said[:1], said[1:]
            match kind:
                case words.STARTED:
                    pass
                case words.REFUSED:
                    self.trouble = _refusal(self._command, *marshal.loads(rest))  # noqa: S302 - our own supervisor wrote it
                    self._finish_waiting()
                case words.EXITED:
                    self._code = words.CODE.unpack(rest[: words.CODE.size])[0]
                    _set_done(self._gone)
                    _set_done(self._over)
                    if rest[words.CODE.size :] == words.CLEAR:
                        _set_done(self._clear)
                case words.CLEAR:
                    _set_done(self._clear)
                case words.LEFT:
                    left = ", ".join(map(str, marshal.loads(rest)))  # noqa: S302 - as above
                    self.unended = SandboxError(f"these processes could not be ended: {left}")
                    self._finish_waiting()
                case _:
                    self._on_loss()
            _set_done(self._started)

    def _on_loss(self) -> None:
        """Give up on a supervisor that is gone; the processes below it become our children."""
        self._lost = True
        self._loop.remove_reader(self._supervisor.fileno())
        if not self.exited and self.trouble is None:
            self._feed(self._complain, _LOST)
        self._finish_waiting()

    def _finish_waiting(self) -> None:
        for future in (self._started, self._gone, self._over, self._clear):
            _set_done(future)

    def _on_output(self, pipe: int) -> None:
        """Pass on one chunk; stop watching a pipe at its end."""
        try:
            chunk = os.read(pipe, _CHUNK)
        except BlockingIOError:
            return
        if not chunk or not self._feed(self._pipes[pipe], chunk):
            self._loop.remove_reader(pipe)

    def _feed(self, sink: Sink, chunk: bytes) -> bool:
        """Give *chunk* to *sink*; return False if it raised, which ends the process."""
        try:
            sink(chunk)
        except Exception as error:  # noqa: BLE001 - what a sink raises is for the caller, not for the event loop
            self.trouble = self.trouble or error
            _set_done(self._over)
            return False
        return True

    def _close(self) -> None:
        """Read the rest of the pipes, once no process can write to them, and close everything."""
        if not self._lost:
            self._loop.remove_reader(self._supervisor.fileno())
        if self._lost or self.unended is not None:
            self._supervisor.close()
        else:
            supervisors.give_back(self._supervisor)
        for pipe, sink in self._pipes.items():
            self._loop.remove_reader(pipe)
            try:
                for _ in range(_MOST_LEFT // _CHUNK):
                    if self.trouble is not None or not (chunk := os.read(pipe, _CHUNK)):
                        break
                    self._feed(sink, chunk)
            except BlockingIOError:
                pass
            finally:
                os.close(pipe)


class Conversation:
    """A running process and its input pipe; see `Talk`."""

    def __init__(self, child: _Child, stdin: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._child = child
        self._stdin: int | None = stdin
        self.ended: Ended | None = None

    async def send(self, data: bytes) -> None:
        """Write all of *data* as fast as the process reads it."""
        view = memoryview(data)
        while view:
            if self._stdin is None or self._child.exited:
                raise BrokenPipeError(errno.EPIPE, "the process has ended")
            try:
                view = view[os.write(self._stdin, view) :]
            except BlockingIOError:
                await self._writable(self._stdin)

    async def _writable(self, stdin: int) -> None:
        """Wait for room in the pipe or for the end of the process, whose children may keep the pipe open for ever."""
        room: asyncio.Future[None] = self._loop.create_future()
        gone = asyncio.ensure_future(self._child.over())
        self._loop.add_writer(stdin, _set_done, room)
        try:
            await asyncio.wait({room, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._loop.remove_writer(stdin)
            gone.cancel()

    async def over(self) -> None:
        """Wait for its end, and raise what a sink raised."""
        await self._child.over()
        if self._child.trouble is not None:
            raise self._child.trouble

    def paused(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Stop the process with everything that it started, during the context."""
        return paused(self._child.below)

    def end_input(self) -> None:
        """Close its input."""
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
    started: Callable[[], object] = lambda: None,
    disk: Disk | None = None,
) -> AsyncIterator[Conversation]:
    """Start *command* below a supervisor, with an input pipe; end everything that it started when the context ends."""
    if disk is not None:
        await disk.begin()
    began = time.monotonic()
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        in_read, stdin = _pipe(theirs, ours)
        # Programs expect a blocking input; our end must not block the event loop.
        os.set_blocking(in_read, True)
        os.set_blocking(stdin, False)
        child = await _start(command, in_read, stdout, stderr, pass_fds, disk)
        ours.pop_all()
    started()
    talk = Conversation(child, stdin)
    try:
        await child.started()
        await talk.send(command.stdin)
        yield talk
        talk.end_input()
        await child.exit(GRACE_S)
    finally:
        talk.end_input()
        talk.ended = _ending(await child.end(), began)
    if disk is not None:
        talk.ended = await disk.noted(talk.ended)
    if child.unended is not None:
        raise child.unended


async def run_process(
    command: Command,
    *,
    timeout_s: float,
    stdout: Sink,
    stderr: Sink,
    pass_fds: tuple[int, ...] = (),
    started: Callable[[], object] = lambda: None,
    disk: Disk | None = None,
) -> Ended:
    """Run *command* below a supervisor; end everything that it started before returning or raising."""
    if disk is not None:
        await disk.begin()
    began = time.monotonic()
    with contextlib.ExitStack() as theirs:
        child = await _start(command, _input(command.stdin, theirs), stdout, stderr, pass_fds, disk)
    started()
    timed_out = False
    code = 0
    try:
        with anyio.move_on_after(timeout_s) as scope:
            await child.over()
        timed_out = scope.cancelled_caught and not child.exited
    finally:
        code = await child.end()
    if trouble := child.trouble or child.unended:
        raise trouble
    ended = _ending(code, began, timed_out=timed_out)
    return ended if disk is None else await disk.noted(ended)


def _ending(code: int, began: float, *, timed_out: bool = False) -> Ended:
    return Ended(
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        timed_out=timed_out,
        duration_s=time.monotonic() - began,
    )


async def _start(
    command: Command, stdin: int, stdout: Sink, stderr: Sink, pass_fds: tuple[int, ...], disk: Disk | None
) -> _Child:
    """Ask a supervisor to start *command*; the result arrives later."""
    supervisor = await supervisors.take()
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        # If starting fails, the supervisor ends everything below it.
        ours.callback(supervisor.close)
        out_read, out_write = _pipe(ours, theirs)
        err_read, err_write = _pipe(ours, theirs)
        try:
            supervisor.run(command, (stdin, out_write, err_write, *pass_fds), (0, 1, 2, *pass_fds))
        except (OSError, ValueError) as error:
            raise AgentNotStarted(f'"{command.argv[0]}" could not be started: {error}') from error
        ours.pop_all()
    child = _Child(command, supervisor, (out_read, stdout), (err_read, stderr))
    if disk is not None:
        child.watch(disk)
    return child


def _pipe(ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> tuple[int, int]:
    """Open a pipe to read from; closing *theirs* closes our copy of the other end."""
    read, write = os.pipe2(os.O_CLOEXEC)
    ours.callback(os.close, read)
    theirs.callback(os.close, write)
    os.set_blocking(read, False)
    # Some programs exit while a pipe is full, and lose the end of their output.
    with contextlib.suppress(OSError):
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
    return read, write


def _input(data: bytes, ours: contextlib.ExitStack) -> int:
    """Put *data* into a file in memory: nothing has to feed it, and a program need not read it."""
    fd = os.memfd_create("stdin") if data else os.open(os.devnull, os.O_RDONLY)
    ours.callback(os.close, fd)
    if data:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _refusal(command: Command, step: str, number: int | None, text: str) -> Exception:
    """Return the error for a command that could not be started."""
    program = command.argv[0]
    if step == words.IN_FOLDER:
        why = "does not exist" if number == errno.ENOENT else f"cannot be entered: {text}"
        return AgentNotStarted(f"its working folder {command.cwd} {why}")
    if number in (errno.ENOENT, errno.ENOTDIR):
        return no_program(program)
    if number in (errno.EACCES, errno.EPERM):
        return AgentNotStarted(f'"{program}" cannot be executed: {os.strerror(number)}')
    if number is not None:
        text = str(OSError(number, os.strerror(number), program))
    return AgentNotStarted(
        f'"{program}" could not be started: {text}',
        hint="an argument is too long; let the program read the prompt from standard input"
        if number == errno.E2BIG
        else None,
    )


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
