"""The client for a skill that is a tool of an MCP server, over its standard streams or over streamable HTTP."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from whet.agents.observe.records import LineSplitter
from whet.callable.clients._program import TOO_MUCH, Program, health_by
from whet.callable.clients.contract import MOST_BYTES, CallAnswer, compact, read_answer
from whet.callable.clients.http import connection_error, http_client
from whet.errors import (
    AgentCrashed,
    AgentTimedOut,
    AttemptError,
    OutputTooLarge,
    SkillFailed,
    SkillUnreachable,
)
from whet.model.callable import CallableSkill
from whet.reading.documents import DocumentError
from whet.sandbox.process.output import OutputTail

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams


# A server has to be started and greeted before it can be asked anything.
_HEALTH_TIMEOUT_S = 30.0
_SHOWN = 300
# Makes the streams to a server, anew for each connection.
Connect = Callable[[], AbstractAsyncContextManager["TransportStreams"]]


class McpSkill:
    """Connects for each call, so that no call sees what another left behind."""

    def __init__(self, skill: CallableSkill, connect: Connect) -> None:
        self._tool = skill.tool or skill.id
        self._connect = connect

    async def call(self, arguments: Mapping[str, Any], *, timeout_s: float) -> CallAnswer:
        """Call the tool; text that is JSON is read as JSON, and an answer marked as an error is one."""
        began = time.monotonic()
        result = await self._with_client(lambda client: client.call_tool(self._tool, dict(arguments)), timeout_s)
        latency_ms = (time.monotonic() - began) * 1000
        if result.is_error:
            raise SkillFailed(f"the tool answered with an error: {_text(result)}")
        return CallAnswer(output=_output(result), latency_ms=latency_ms)

    async def health(self) -> str | None:
        """Check that the server offers the tool."""
        return await health_by(self._find_tool)

    async def _find_tool(self) -> None:
        listing = await self._with_client(lambda client: client.list_tools(), _HEALTH_TIMEOUT_S)
        names = [tool.name for tool in listing.tools]
        if self._tool not in names:
            raise SkillUnreachable(f"the server has no tool {self._tool}; it has {', '.join(names) or 'none'}")

    async def _with_client(self, ask: Callable[[Client], Any], timeout_s: float) -> Any:
        try:
            with anyio.fail_after(timeout_s):
                return await _ask_client(self._connect(), ask)
        except TimeoutError:
            raise AgentTimedOut(f"the server did not answer within {timeout_s:g} s") from None
        except Exception as error:
            raise _translate_error(error) from error


async def _ask_client(streams: Any, ask: Callable[[Client], Any]) -> Any:
    async with Client(streams, mode="legacy") as client:
        return await ask(client)


@asynccontextmanager
async def mcp_skill(skill: CallableSkill, program: Program, environ: Mapping[str, str]) -> AsyncIterator[McpSkill]:
    """Yield a client for the server at the address of *skill*, or for its program inside the sandbox."""
    if skill.url is None:
        yield McpSkill(skill, over_stdio(program))
        return
    async with http_client(skill, environ) as client:
        yield McpSkill(skill, over_http(skill.url, client))


def over_http(url: str, client: Any) -> Connect:
    """Return how to connect to an address; *client* has the headers."""
    return lambda: streamable_http_client(url, http_client=client)


def over_stdio(program: Program) -> Connect:
    """Return how to connect to a program inside the sandbox; the library would start it outside."""
    return lambda: _stdio(program)


@asynccontextmanager
async def _stdio(program: Program) -> AsyncIterator[TransportStreams]:
    to_us, inbox = anyio.create_memory_object_stream[SessionMessage | Exception](1000)
    from_us, to_send = anyio.create_memory_object_stream[SessionMessage](0)
    lines, err = LineSplitter(), OutputTail()

    def hear(chunk: bytes) -> None:
        if lines.held + len(chunk) > MOST_BYTES:
            raise OutputTooLarge(TOO_MUCH)
        for line in lines.take(chunk):
            if line.strip().startswith(b"{"):
                try:
                    to_us.send_nowait(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))
                except ValueError:
                    # A log line that looks like JSON is not a message.
                    continue
                except anyio.WouldBlock:
                    raise OutputTooLarge("the server sent more messages than whet can read") from None

    async with program.open(hear, err) as talk, anyio.create_task_group() as group:

        async def speak() -> None:
            async for message in to_send:
                await talk.send(compact(message.message.model_dump(by_alias=True, exclude_unset=True, mode="json")))

        async def listen() -> None:
            await talk.over()
            raise AgentCrashed(f"the server's program ended: {err.text or '(nothing on standard error)'}")

        group.start_soon(speak)
        group.start_soon(listen)
        with to_us, inbox, from_us, to_send:
            yield inbox, from_us
            group.cancel_scope.cancel()


def _text(result: Any) -> str:
    return "\n".join(part.text for part in result.content if part.type == "text")


def _output(result: Any) -> Any:
    """Return the text, as JSON if it is, or without a text the structured content."""
    text = _text(result)
    if not text and result.structured_content is not None:
        return result.structured_content
    try:
        return read_answer(text)
    except DocumentError:
        return text


def _translate_error(error: Exception) -> Exception:
    """Return the error in our words; the library uses task groups, so it may be wrapped, and several at once."""
    error_makers: Sequence[tuple[Any, Callable[[Any], Exception]]] = (
        (AttemptError, lambda leaf: leaf),
        (httpx2.TransportError | httpx2.DecodingError, lambda leaf: connection_error("the server", leaf)),
        (MCPError, lambda leaf: SkillFailed(f"MCP error: {leaf}")),
        # The library raises these for answers in another shape and for versions that it does not know.
        (ValueError | RuntimeError, _not_mcp),
    )
    leaves = list(_leaves(error))
    return next((make(leaf) for kind, make in error_makers for leaf in leaves if isinstance(leaf, kind)), error)


def _not_mcp(error: Exception) -> SkillFailed:
    return SkillFailed(f"the server does not follow the MCP protocol: {' '.join(str(error).split())[:_SHOWN]}")


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
