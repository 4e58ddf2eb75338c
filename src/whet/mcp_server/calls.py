"""Call `whet` in a process of its own, because what it loads and runs must not share the streams of the server."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import anyio
from anyio.abc import ByteReceiveStream
from msgspec import Struct, field

from whet.errors import UsageError
from whet.mcp_server.refusals import in_arguments
from whet.reading.text import clean, duration
from whet.run.children import child_command, end_child

_MOST_PRINTED = 1 << 20
_LONGEST_LINE = 1 << 16
# What is printed after the process has ended, by something that it left.
_AFTERWARDS_S = 2.0
# Each loads a suite in a process of its own, and a client may ask for any number at once.
_LOADS = anyio.CapacityLimiter(4)
Line = Callable[[str], Awaitable[None]]


class KeptLines(Struct):
    """What a stream of a process held: its lines up to a size, and whether there were more."""

    lines: list[str] = field(default_factory=list)
    size: int = 0
    cut: bool = False

    def add(self, line: str) -> None:
        """Keep *line* if there is room."""
        self.size += len(line)
        if self.size > _MOST_PRINTED:
            self.cut = True
        else:
            self.lines.append(line)


class WhetCall(Struct):
    """A call of `whet` that ended: its exit code, what it printed, and whether its time was over."""

    code: int
    out: KeptLines
    err: KeptLines
    timed_out: bool = False


async def call_whet(arguments: Sequence[str], *, cwd: Path, seconds: float, on_line: Line | None = None) -> WhetCall:
    """Run `whet` with *arguments*; when its time is over or we are cancelled, it ends with all that it started."""
    out, err = KeptLines(), KeptLines()
    process = await anyio.open_process(
        child_command(arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env={**os.environ, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "120"},
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    timed_out = False
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read, process.stdout, out, on_line)
            tasks.start_soon(_read, process.stderr, err, None)
            with anyio.move_on_after(seconds) as limit:
                await process.wait()
            timed_out = limit.cancelled_caught
            await end_child(process)
            # Readers end by themselves, unless something else still holds the streams.
            tasks.cancel_scope.deadline = anyio.current_time() + _AFTERWARDS_S
    finally:
        with anyio.CancelScope(shield=True):
            await end_child(process)
            await process.aclose()
    assert process.returncode is not None
    return WhetCall(process.returncode, out, err, timed_out)


async def load_by_whet(arguments: Sequence[str], *, cwd: Path, seconds: float) -> WhetCall:
    """Run a command of `whet` that loads a suite and starts no agent, a few at a time."""
    async with _LOADS:
        return await call_whet(arguments, cwd=cwd, seconds=seconds)


async def _read(stream: ByteReceiveStream, printed: KeptLines, on_line: Line | None) -> None:
    """Read lines until the stream ends; a line without an end is cut."""
    rest = b""
    async for chunk in stream:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            await _take(line, printed, on_line)
        if len(rest) > _LONGEST_LINE:
            await _take(rest, printed, on_line)
            rest = b""
    if rest:
        await _take(rest, printed, on_line)


async def _take(line: bytes, printed: KeptLines, on_line: Line | None) -> None:
    text = clean(line[:_LONGEST_LINE].decode("utf-8", "replace"))
    printed.add(text)
    if on_line is not None:
        await on_line(text)


def refuse_failed(call: WhetCall, seconds: float) -> None:
    """Raise what a call printed as its error, if it did not do what it was asked."""
    if call.timed_out:
        raise UsageError(
            f"it did not end within {duration(seconds)}",
            hint="a Python suite is code, and importing this one may wait for something",
        )
    if call.code:
        raise UsageError(
            in_arguments("\n".join(call.err.lines[:50])) or f"whet ended with exit code {call.code} and no message"
        )
