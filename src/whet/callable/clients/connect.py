"""Connect to callable skills: choose a client for each, and keep the process of one alive from call to call."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import anyio

from whet.callable.clients import contract as rpc
from whet.callable.clients._program import TOO_MUCH, OneShot, Program, ProgramSkill
from whet.callable.clients.contract import MOST_BYTES, CallAnswer, SkillClient
from whet.errors import AgentCrashed, AgentTimedOut, AttemptError, OutputTooLarge, UsageError
from whet.model.callable import CallableSkill
from whet.model.suite import Ceilings
from whet.sandbox.contract import Sandbox, Talk
from whet.sandbox.process.output import OutputTail
from whet.version import install_command


class PersistentProgram(ProgramSkill):
    """Asks an idle process, or a new one, whose start does not count towards the latency.

    A process that died or did not answer in time is not asked again.
    """

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._idle: list[_LiveProgram] = []
        self._all: set[_LiveProgram] = set()

    async def close(self) -> None:
        """End all processes."""
        for alive in list(self._all):
            await self._end(alive, kindly=True)

    async def _ask(self, method: str, params: Any, timeout_s: float) -> CallAnswer:
        alive = await self._take()
        began = time.monotonic()
        well = False
        try:
            with anyio.fail_after(timeout_s):
                answer = await alive.ask(method, params)
            well = True
        except TimeoutError:
            instead = f"; it answered the id {alive.other_id} instead" if alive.other_id else ""
            raise AgentTimedOut(f"it did not answer within {timeout_s:g} s{instead}") from None
        finally:
            if well:
                self._idle.append(alive)
            else:
                with anyio.CancelScope(shield=True):
                    await self._end(alive, kindly=False)
        return CallAnswer(output=rpc.result_of(answer), latency_ms=(time.monotonic() - began) * 1000)

    async def _take(self) -> _LiveProgram:
        """Return an idle process, or a new one."""
        while self._idle:
            alive = self._idle.pop()
            if not alive.dead:
                return alive
            await self._end(alive, kindly=True)
        alive = _LiveProgram(self._program)
        await alive.start()
        self._all.add(alive)
        return alive

    async def _end(self, alive: _LiveProgram, *, kindly: bool) -> None:
        self._all.discard(alive)
        await alive.end(kindly=kindly)


class _Abandonment(Exception):
    """Ends a process without waiting for it to end by itself."""


class _LiveProgram:
    """One process: what it printed since the last question, and the number of that question."""

    def __init__(self, program: Program) -> None:
        self._err = OutputTail()
        self._context = program.open(self._hear, self._err)
        self._buffer = bytearray()
        self._size = 0
        self._heard = asyncio.Event()
        self._number = 0
        self._talk: Talk | None = None
        self._watch: asyncio.Task[None] | None = None
        self._trouble: AttemptError | None = None
        self.dead = False
        # The id of another request that it answered instead of the last one.
        self.other_id: str | None = None

    async def start(self) -> None:
        """Start it; the first question finds what is wrong with it."""
        self._talk = await self._context.__aenter__()
        self._watch = asyncio.create_task(self._until_over(self._talk))

    async def ask(self, method: str, params: Any) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        assert self._talk is not None
        self._number += 1
        self._buffer.clear()
        self._size = 0
        self.other_id = None
        with contextlib.suppress(BrokenPipeError):
            await self._talk.send(rpc.request(method, params, self._number))
        while (answer := self._answer()) is None:
            if self.dead:
                return await self._last_answer()
            self._heard.clear()
            await self._heard.wait()
        return answer

    def _answer(self) -> dict[str, Any] | None:
        """Return the answer if it is among the whole lines so far; looks at each line once."""
        *lines, incomplete_line = bytes(self._buffer).split(b"\n")
        self._buffer[:] = incomplete_line
        for line in lines:
            answer = rpc.read_line(line, self._number)
            if answer is not None:
                return answer
            self.other_id = rpc.other_id(line, self._number) or self.other_id
        return None

    async def _last_answer(self) -> dict[str, Any]:
        """Return an answer that was still on its way when the process ended."""
        # A process whose output we no longer read goes on until we end it.
        await self.end(kindly=self._trouble is None)
        self._buffer += b"\n"
        answer = None if self._trouble else self._answer()
        if answer is None:
            raise self._trouble or AgentCrashed(
                f"its program ended without an answer: {self._err.text or '(nothing on standard error)'}",
                hint="a skill with keepAlive must read requests until its input ends",
            )
        return answer

    async def _until_over(self, talk: Talk) -> None:
        try:
            await talk.over()
        except AttemptError as error:
            self._trouble = error
        finally:
            self.dead = True
            self._heard.set()

    def _hear(self, chunk: bytes) -> None:
        self._buffer += chunk
        self._size += len(chunk)
        if self._size > MOST_BYTES:
            raise OutputTooLarge(TOO_MUCH)
        # Look only at whole lines: looking at a long line again with each piece of it takes too long.
        if b"\n" in chunk:
            self._heard.set()

    async def end(self, *, kindly: bool) -> None:
        """End the program and all that it started; *kindly* closes its input first and lets it end by itself."""
        if self._talk is None:
            return
        self._talk = None
        reason = None if kindly else _Abandonment()
        with contextlib.suppress(_Abandonment):
            await self._context.__aexit__(type(reason) if reason else None, reason, None)
        assert self._watch is not None
        await self._watch


_NO_CEILINGS = Ceilings()


@asynccontextmanager
async def connect(
    skill: CallableSkill,
    sandbox: Sandbox,
    environ: Mapping[str, str],
    ceilings: Ceilings = _NO_CEILINGS,
    scratch: Path | None = None,
) -> AsyncIterator[SkillClient]:
    """Yield a client for *skill*; ends everything that it started.

    The home of a client is in *scratch*: if whet is killed, the next run finds and removes it there.
    """
    with TemporaryDirectory(prefix="whet-skill-", dir=scratch) as home:
        program = Program(skill, sandbox, environ, Path(home), ceilings)
        match skill.adapter:
            case "subprocess" if skill.keep_alive:
                live_client = PersistentProgram(program)
                try:
                    yield live_client
                finally:
                    with anyio.CancelScope(shield=True):
                        await live_client.close()
            case "subprocess":
                yield OneShot(program)
            case "http":
                # Only here and below: the HTTP library takes long to import.
                from whet.callable.clients.http import HttpSkill, http_client

                async with http_client(skill, environ) as client:
                    yield HttpSkill(skill, client)
            case "mcp":
                async with mcp_clients().mcp_skill(skill, program, environ) as mcp_client:
                    yield mcp_client


def mcp_clients() -> ModuleType:
    """Import the client for skills of MCP servers; raises if its library is not installed."""
    try:
        from whet.callable.clients import mcp
    except ImportError as error:
        raise UsageError("skills of adapterType mcp need the mcp library", hint=install_command("mcp")) from error
    return mcp
