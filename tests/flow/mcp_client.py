"""A client of `whet mcp`, by the official SDK over its standard streams."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import anyio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from project import PATIENCE_S, Project

from whet_call import ADDRESS
from whet_process import make_program, server_address

T = TypeVar("T")
COMMAND = [sys.executable, "-m", "whet", "mcp"]


class Answers:
    """An open connection: what a tool answers, as JSON or as the text of its error."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The structured answer of a tool that does what it was asked."""
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        assert isinstance(result.structured_content, dict)
        return result.structured_content

    async def refused(self, tool: str, **arguments: Any) -> str:
        """The error of a tool that does not."""
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error, result.structured_content
        return "\n".join(part.text for part in result.content if part.type == "text")


def connected(
    project: Project, talk: Callable[[Answers], Awaitable[T]], *options: str, env: Mapping[str, str] | None = None
) -> T:
    """What *talk* returns with a server for the project."""

    # Forked: the official SDK takes longer to import than most conversations here.
    programs = project.root.parent / "programs"
    programs.mkdir(exist_ok=True)
    environ = {**project.environment(env), ADDRESS: server_address("whet.mcp_server.server")}
    parameters = StdioServerParameters(
        command=str(make_program(programs)), args=["mcp", *options], env=environ, cwd=project.root
    )

    async def open_and_talk() -> T:
        with anyio.fail_after(PATIENCE_S):
            async with Client(stdio_client(parameters), mode="legacy") as client:
                return await talk(Answers(client))

    return anyio.run(open_and_talk)


class RawClient:
    """A client that writes messages itself, so that it can leave as it likes."""

    def __init__(self, project: Project) -> None:
        self.process = subprocess.Popen(
            COMMAND,
            cwd=project.root,
            env=project.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        handshake = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        self.send("initialize", handshake, id=1)
        assert self.answer(1)
        self.send("notifications/initialized", {})

    def send(self, method: str, params: dict[str, Any], **fields: Any) -> None:
        """Write one message."""
        message = {"jsonrpc": "2.0", "method": method, "params": params, **fields}
        self.write(json.dumps(message).encode() + b"\n")

    def write(self, content: bytes) -> None:
        """Write what may be no message."""
        assert self.process.stdin is not None
        self.process.stdin.write(content)
        self.process.stdin.flush()

    def answer(self, number: int) -> dict[str, Any]:
        """Read until the answer to the request with this id."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message: dict[str, Any] = json.loads(line)
            if message.get("id") == number:
                return message
        raise AssertionError("the server is gone")

    def start_run(self, **arguments: Any) -> None:
        """Ask for a run, and do not wait."""
        self.send("tools/call", {"name": "run", "arguments": arguments}, id=2)
