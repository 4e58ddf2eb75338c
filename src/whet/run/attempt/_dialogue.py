"""A dialogue with an agent: whet asks, hears and answers on its standard streams, prompt after prompt."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Self, TypeAlias

import anyio
from msgspec import Struct
from msgspec.structs import replace

from whet.agents.contract import Agent, AgentCommand, Dialogue
from whet.agents.observe.model_activity import ModelActivity
from whet.agents.observe.records import LineSplitter
from whet.errors import OutputTooLarge
from whet.model.events import SessionStarted
from whet.sandbox.contract import Ended, Sink, Talk

if TYPE_CHECKING:
    from whet.gateway.sessions import ProxySession

# Starts the program, with a sink for what it prints and one for what it logs.
Start: TypeAlias = Callable[[Sink, Sink], AbstractAsyncContextManager[Talk]]
# How long an agent may take to end its turn after whet asks it to stop at its time limit.
_FAREWELL_S = 2.0
# What it may print after an answer, while there is no next turn that it could belong to.
_MOST_BETWEEN = 1_000_000


class Streams(Struct, frozen=True, kw_only=True):
    """Where everything that is said goes: what the agent prints, what it logs, and what whet sends."""

    stdout: Sink
    stderr: Sink
    sent: Sink


class LiveAgent:
    """An agent that is spoken with: it starts with its first prompt, and waits after each answer but the last.

    *prompts* is how many it will get, if that is known. What it prints between two turns belongs to the second one.
    """

    def __init__(self, *, prompts: int | None, proxy_session: ProxySession | None = None) -> None:
        self._prompts = prompts
        self._asked = 0
        # The object that follows the session, how it was started, and what is known of the session so far.
        self.agent: Agent | None = None
        self.agent_command: AgentCommand | None = None
        self.started: SessionStarted | None = None
        # The agent's way through the gateway, which the one that began the conversation closes.
        self.proxy_session = proxy_session
        self._program = AsyncExitStack()
        self._talk: Talk | None = None
        self._over: asyncio.Future[None] | None = None
        self._dialogue: Dialogue | None = None
        self._streams: Streams | None = None
        self._model_came = False
        self._lines = LineSplitter()
        self._late_output, self._late_log = bytearray(), bytearray()
        self._to_send: deque[bytes] = deque()
        self._moved = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception_info: object) -> None:
        """End the program, if it is still there."""
        try:
            await self._program.__aexit__(*exception_info)  # type: ignore[arg-type]
        finally:
            # What a sink raised is raised in its turn, or nothing waits for it any more.
            if self._over is not None and not self._over.cancel() and not self._over.cancelled():
                self._over.exception()

    def remember(self, agent: Agent, agent_command: AgentCommand, session_start: SessionStarted) -> None:
        """Note the session that the next turn continues."""
        self.agent, self.agent_command, self.started = agent, agent_command, session_start

    def paused(self) -> AbstractAsyncContextManager[None]:
        """Stop it with everything that it started, during the context: nothing of it runs while it is graded."""
        if self._talk is None or self._talk.ended is not None:
            return contextlib.nullcontext()
        return self._talk.paused()

    async def ask(
        self, start: Start, dialogue: Dialogue, prompt: str, *, timeout_s: float, turn: ModelActivity, streams: Streams
    ) -> Ended:
        """Bring *prompt* to its answer within *timeout_s*; return how the turn ended, or the program with it.

        Raises what a sink raised.
        """
        began = time.monotonic()
        self._asked += 1
        self._dialogue, self._streams = dialogue, streams
        # A program whose model has answered once cannot say later that it never began.
        turn.came = self._model_came
        try:
            async with AsyncExitStack() as end:
                end.push_async_exit(self.__aexit__)
                talk, over = await self._running(start)
                turn.sign("asked")
                self._say(dialogue.ask(prompt))
                self._hear_what_came_between()
                timed_out = await self._through(talk, over, timeout_s)
                if not (self._asked == self._prompts or timed_out or over.done() or dialogue.failed):
                    end.pop_all()
        finally:
            self._model_came = turn.came
            self._streams = None
            # Half a line: the next turn gets all of it.
            self._late_output += self._lines.take(b"\n")[0]
        took_s = time.monotonic() - began
        if talk.ended is None:
            return Ended(exit_code=None, signal=None, timed_out=False, duration_s=took_s, dismissed=True)
        was_dismissed = dialogue.answered and not timed_out
        return replace(talk.ended, timed_out=timed_out, dismissed=was_dismissed, duration_s=took_s)

    async def _running(self, start: Start) -> tuple[Talk, asyncio.Future[None]]:
        """Return the program, and when it is over; start it if there is none."""
        if self._talk is None or self._over is None:
            self._talk = await self._program.enter_async_context(start(self._hear, self._log))
            self._over = asyncio.ensure_future(self._talk.over())
            self._over.add_done_callback(lambda _: self._moved.set())
        return self._talk, self._over

    async def _through(self, talk: Talk, over: asyncio.Future[None], timeout_s: float) -> bool:
        """Wait for the answer; return whether the time limit came first. Raises what a sink raised."""
        assert self._dialogue is not None
        with anyio.move_on_after(timeout_s) as limit:
            await self._until_answered(talk, over)
        timed_out = limit.cancelled_caught and not over.done()
        if timed_out:
            self._say(self._dialogue.cancel())
            with anyio.move_on_after(_FAREWELL_S):
                await self._until_answered(talk, over)
        if over.done():
            over.result()
        return timed_out

    def _hear(self, chunk: bytes) -> None:
        """Take the next piece of output; it is in the record before anybody reacts to it."""
        if self._streams is None or self._dialogue is None:
            _keep(self._late_output, chunk)
            return
        self._streams.stdout(chunk)
        for line in self._lines.take(chunk):
            # Also after the answer: what it asks for then is answered with the next prompt.
            self._say(self._dialogue.hear(line))

    def _log(self, chunk: bytes) -> None:
        if self._streams is None:
            _keep(self._late_log, chunk)
        else:
            self._streams.stderr(chunk)

    def _hear_what_came_between(self) -> None:
        output, log = bytes(self._late_output), bytes(self._late_log)
        self._late_output.clear()
        self._late_log.clear()
        if log:
            self._log(log)
        if output:
            self._hear(output)

    def _say(self, lines: Iterable[bytes]) -> None:
        self._to_send.extend(lines)
        self._moved.set()

    async def _until_answered(self, talk: Talk, over: asyncio.Future[None]) -> None:
        """Send what there is to send, until the prompt is answered or the program is over."""
        assert self._dialogue is not None
        while True:
            self._moved.clear()
            while self._to_send and not over.done():
                await self._send(talk, self._to_send.popleft(), over)
            if over.done() or self._dialogue.answered:
                return
            await self._moved.wait()

    async def _send(self, talk: Talk, line: bytes, over: asyncio.Future[None]) -> None:
        """Send one line; a program that no longer reads will say no more that we could answer."""
        assert self._streams is not None
        self._streams.sent(line)
        sending = asyncio.ensure_future(talk.send(line))
        try:
            await asyncio.wait({sending, over}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                with contextlib.suppress(BrokenPipeError):
                    sending.result()
        finally:
            sending.cancel()


def _keep(late: bytearray, chunk: bytes) -> None:
    late += chunk
    if len(late) > _MOST_BETWEEN:
        raise OutputTooLarge(f"printed more than {_MOST_BETWEEN} bytes between two prompts and was stopped")
