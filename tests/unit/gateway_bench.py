"""A gateway on a bench: an agent on one side, a provider on the other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2

from whet.agents.gateway import Passage
from whet.agents.gateway_ledger import Ledger
from whet.agents.gateway_routes import PROVIDERS, Pass, Route
from whet.agents.gateway_rules import Rules
from whet.agents.gateway_tunnel import Tunnels
from whet.agents.gateway_upstream import Upstream
from whet.agents.turnstile import Turnstile
from whet.ground.secrets import Masker
from whet.model.suite import Limits

KEY = "sk-real-0123456789abcdef"
ASK = {"model": "claude-sonnet-4-5", "stream": True, "tools": [{"name": "Bash"}], "messages": []}


class Bench:
    """A passage, its accounts, and a client that is the agent."""

    def __init__(self, passage: Passage, given: Pass, ledger: Ledger, client: httpx2.AsyncClient, folder: Path) -> None:
        self.passage, self.given, self.ledger, self.client, self.folder = passage, given, ledger, client, folder
        self.stops = 0

    def count_stop(self) -> None:
        """Count that the agent would be ended."""
        self.stops += 1

    @property
    def key(self) -> str:
        """The made-up key."""
        return self.given.variables[self.given.route.provider.keys[0]]

    async def ask(self, body: dict[str, Any] | None = None, path: str = "/v1/messages") -> httpx2.Response:
        """Ask the model as an agent of Anthropic does."""
        return await self.client.post(self.given.address + path, json=body or ASK, headers={"x-api-key": self.key})

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What the gateway noted."""
        path = self.folder / "requests.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.given.address.split(":")[2].split("/")[0])

    async def raw(self, data: bytes, *, until: int = 1 << 20) -> bytes:
        """Send bytes, and return what comes back until the connection ends or falls silent."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        found = b""
        # Long for the first word, on a busy machine; a connection may stay open after the last.
        with suppress(TimeoutError, ConnectionError):
            while len(found) < until:
                async with asyncio.timeout(1.0 if found else 20.0):
                    piece = await reader.read(65536)
                if not piece:
                    break
                found += piece
        writer.close()
        return found

    def path(self, rest: str = "/v1/messages") -> bytes:
        """The path of a request."""
        return ("/" + self.given.address.split("/", 3)[3] + rest).encode()


@asynccontextmanager
async def bench(
    folder: Path,
    url: str,
    *,
    provider: str = "anthropic",
    limits: Limits | None = None,
    allow: tuple[str, ...] = (),
    key: str = KEY,
    most_requests: int | None = None,
    allow_requests: tuple[str, ...] = (),
    hosted_tools: tuple[str, ...] | None = None,
    trusted: bool = True,
) -> AsyncIterator[Bench]:
    """Stand between an agent and the provider at *url*."""
    upstream = Upstream(lambda _: Turnstile(most_requests))
    known = PROVIDERS[provider]
    route = Route(provider=known, url=url, keys={known.keys[0]: key})
    rules = Rules(provider=provider, requests=allow_requests, hosted_tools=hosted_tools)
    takes_turns = most_requests is not None
    passage = Passage(route, upstream, rules=rules, tunnels=Tunnels(allow), takes_turns=takes_turns)
    given = passage.given(passage.listen())
    ledger = Ledger(folder / "requests.jsonl", masker=Masker([KEY]), limits=limits, trusted=trusted)
    async with httpx2.AsyncClient(trust_env=False, timeout=20) as client:
        found = Bench(passage, given, ledger, client, folder)
        passage.begin(ledger, found.count_stop)
        try:
            yield found
        finally:
            await passage.close()
            ledger.close()
            await upstream.close()


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run one test."""
    asyncio.run(work())


@asynccontextmanager
async def server(answer: Callable[[bytes], bytes]) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A provider that says what *answer* returns for the bytes of each request, and hangs up."""
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The gateway may hang up before the end of a request, because the agent did.
        with suppress(asyncio.IncompleteReadError):
            await _serve(reader, writer)
        writer.close()

    async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.readuntil(b"\r\n\r\n")
        head = data.lower()
        if b"content-length: " in head:
            data += await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
        elif b"transfer-encoding: chunked" in head:
            data += await reader.readuntil(b"0\r\n\r\n")
        seen.append(data)
        writer.write(answer(data))
        await writer.drain()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 26)
    async with listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", seen


def whole(body: bytes, *headers: str, status: str = "200 OK", kind: str = "application/json") -> bytes:
    """An answer of a server that then hangs up."""
    head = [
        f"HTTP/1.1 {status}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *headers,
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body
