"""The client for a skill that is a tool of an MCP server, over its standard streams or over streamable HTTP."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio

from whet.agents.callable import MOST_BYTES, Reply, compact, read_answer
from whet.agents.callable_http import broken
from whet.agents.callable_program import TOO_MUCH, Program, health_by
from whet.agents.records import Lines
from whet.errors import (
    AgentCrashed,
    AgentTimedOut,
    AttemptError,
    OutputTooLarge,
    SkillFailed,
    SkillUnreachable,
    UsageError,
)
from whet.ground.program_output import OutputTail
from whet.model.benchmark import CallableSkill
from whet.reading.documents import DocumentError

if TYPE_CHECKING:
    from mcp.client import Client
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

    async def call(self, given: Mapping[str, Any], *, timeout_s: float) -> Reply:
        """Call the tool; text that is JSON is read as JSON, and an answer marked as an error is one."""
        began = time.monotonic()
        result = await self._with_client(lambda client: client.call_tool(self._tool, dict(given)), timeout_s)
        latency_ms = (time.monotonic() - began) * 1000
        if result.is_error:
            raise SkillFailed(f"the tool answered with an error: {_text(result)}")
        return Reply(output=_output(result), latency_ms=latency_ms)

    async def health(self) -> str | None:
        """Check that the server offers the tool."""
        return await health_by(self._find_tool)

    async def _find_tool(self) -> None:
        listed = await self._with_client(lambda client: client.list_tools(), _HEALTH_TIMEOUT_S)
        names = [tool.name for tool in listed.tools]
        if self._tool not in names:
            raise SkillUnreachable(f"the server has no tool {self._tool}; it has {', '.join(names) or 'none'}")

    async def _with_client(self, ask: Callable[[Client], Any], timeout_s: float) -> Any:
        try:
            with anyio.fail_after(timeout_s):
                return await _connected(self._connect(), ask)
        except TimeoutError:
            raise AgentTimedOut(f"the server did not answer within {timeout_s:g} s") from None
        except Exception as error:
            raise _foreseen(error) from error


async def _connected(streams: Any, ask: Callable[[Client], Any]) -> Any:
    from mcp.client import Client  # noqa: PLC0415

    async with Client(streams, mode="legacy") as client:
        return await ask(client)


def require_mcp() -> None:
    """Raise if the library is missing; call it before anything runs."""
    try:
        import mcp.client  # noqa: F401, PLC0415
    except ImportError as error:
        raise UsageError("skills of adapterType mcp need the mcp library", hint="pip install 'whet[mcp]'") from error


def over_http(url: str, client: Any) -> Connect:
    """Return how to connect to an address; *client* has the headers."""
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415

    return lambda: streamable_http_client(url, http_client=client)


def over_stdio(program: Program) -> Connect:
    """Return how to connect to a program inside the sandbox; the library would start it outside."""
    return lambda: _stdio(program)


@asynccontextmanager
async def _stdio(program: Program) -> AsyncIterator[TransportStreams]:
    from mcp.shared.message import SessionMessage  # noqa: PLC0415
    from mcp_types import jsonrpc_message_adapter  # noqa: PLC0415

    to_us, heard = anyio.create_memory_object_stream[SessionMessage | Exception](1000)
    from_us, to_send = anyio.create_memory_object_stream[SessionMessage](0)
    lines, err = Lines(), OutputTail()

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
        with to_us, heard, from_us, to_send:
            yield heard, from_us
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


def _foreseen(error: Exception) -> Exception:
    """Return the error in our words; the library uses task groups, so it may be wrapped, and several at once."""
    import httpx2  # noqa: PLC0415 - the library that MCP uses
    from mcp.shared.exceptions import MCPError  # noqa: PLC0415

    known: Sequence[tuple[Any, Callable[[Any], Exception]]] = (
        (AttemptError, lambda leaf: leaf),
        (httpx2.TransportError | httpx2.DecodingError, lambda leaf: broken("the server", leaf)),
        (MCPError, lambda leaf: SkillFailed(f"MCP error: {leaf}")),
        # The library raises these for answers in another shape and for versions that it does not know.
        (ValueError | RuntimeError, _not_mcp),
    )
    leaves = list(_leaves(error))
    return next((make(leaf) for kind, make in known for leaf in leaves if isinstance(leaf, kind)), error)


def _not_mcp(error: Exception) -> SkillFailed:
    return SkillFailed(f"the server does not follow the MCP protocol: {' '.join(str(error).split())[:_SHOWN]}")


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
