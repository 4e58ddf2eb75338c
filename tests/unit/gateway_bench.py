"""A gateway on a bench: an agent on one side, a provider on the other."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2

from whet.gateway._rules import Rules
from whet.gateway._server import AgentProxy
from whet.gateway._tunnel import Tunnels
from whet.gateway._upstream import Upstream
from whet.gateway.rate_limit import LocalRateLimiter
from whet.gateway.request_log import RequestLog
from whet.gateway.routes import PROVIDERS, ProxyCredentials, Route
from whet.model.suite import Limits
from whet.secrets import Masker

KEY = "sk-real-0123456789abcdef"
ASK = {"model": "claude-sonnet-4-5", "stream": True, "tools": [{"name": "Bash"}], "messages": []}


class Bench:
    """A proxy, its accounts, and a client that is the agent."""

    def __init__(
        self,
        proxy: AgentProxy,
        given: ProxyCredentials,
        request_log: RequestLog,
        client: httpx2.AsyncClient,
        folder: Path,
    ) -> None:
        self.proxy, self.given, self.request_log, self.client, self.folder = (
            proxy,
            given,
            request_log,
            client,
            folder,
        )
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

    async def raw(self, data: bytes) -> bytes:
        """Send bytes, and return all that comes back.

        After the first answer a last request makes the gateway hang up; what hid in *data* is answered before it.
        """
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        found, last_sent = b"", False
        # Long for the first word, on a busy machine; some connections stay open without an answer that has an end.
        with suppress(TimeoutError, ConnectionError):
            while True:
                async with asyncio.timeout(1.0 if found and not last_sent else 20.0):
                    piece = await reader.read(65536)
                if not piece:
                    break
                found += piece
                if not last_sent and is_whole(found):
                    writer.write(b"GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                    last_sent = True
        writer.close()
        return found

    def path(self, rest: str = "/v1/messages") -> bytes:
        """The path of a request."""
        return ("/" + self.given.address.split("/", 3)[3] + rest).encode()


def is_whole(data: bytes) -> bool:
    """Whether *data* begins with an answer that says its length and is all there."""
    head, blank, body = data.partition(b"\r\n\r\n")
    if head.startswith(b"HTTP/1.1 100"):
        return is_whole(body)
    if length := re.search(rb"(?i)\ncontent-length: (\d+)", head):
        return bool(blank) and len(body) >= int(length[1])
    return b"chunked" in head.lower() and body.endswith(b"0\r\n\r\n")


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
    upstream = Upstream(lambda _: LocalRateLimiter(most_requests))
    known = PROVIDERS[provider]
    route = Route(provider=known, url=url, keys={known.keys[0]: key})
    rules = Rules(provider=provider, requests=allow_requests, hosted_tools=hosted_tools)
    takes_turns = most_requests is not None
    proxy = AgentProxy(route, upstream, rules=rules, tunnels=Tunnels(allow), takes_turns=takes_turns)
    given = proxy.given(proxy.listen())
    request_log = RequestLog(folder / "requests.jsonl", masker=Masker([KEY]), limits=limits, trusted=trusted)
    async with httpx2.AsyncClient(trust_env=False, timeout=20) as client:
        found = Bench(proxy, given, request_log, client, folder)
        proxy.begin(request_log, found.count_stop)
        try:
            yield found
        finally:
            await proxy.close()
            request_log.close()
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
