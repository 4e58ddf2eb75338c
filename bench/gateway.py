"""What the gateway costs: its own time to the first byte, a stream as a ratio to a direct one, and many at a time.

The provider is a process of its own that answers at once, so what is left of the difference to a direct request is the
gateway's. Client and gateway share one event loop, as an agent and whet share a machine.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Self

from whet.gateway._server import AgentProxy
from whet.gateway._upstream import Upstream
from whet.gateway.request_log import RequestLog
from whet.gateway.routes import PROVIDERS, Route
from whet.secrets import Masker

REQUESTS, STREAMS, AT_ONCE = 300, 5, 1000
# A stream as a model speaks, and one as fast as it goes.
WORDS, WORD_S, EVENTS = 200, 0.01, 20_000
PAUSE_S = 1.0
_EVENT = b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"word after word"}}\n\n'
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


async def _provide(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer as the path says: at once, with a long stream, or after a pause."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
            writer.write(_HEAD)
            if b"?slow" in head:
                await asyncio.sleep(PAUSE_S)
            for _ in range(EVENTS if b"?long" in head else WORDS if b"?words" in head else 1):
                writer.write(b"%x\r\n%s\r\n" % (len(_EVENT), _EVENT))
                await writer.drain()
                if b"?words" in head:
                    await asyncio.sleep(WORD_S)
            writer.write(b"0\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def provide(port: multiprocessing.Queue[int]) -> None:
    """Be the provider."""

    async def serve() -> None:
        server = await asyncio.start_server(_provide, "127.0.0.1", 0, backlog=4096)
        port.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    _allow_files()
    asyncio.run(serve())


def _allow_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Connection:
    """A client that does no more than it must."""

    def __init__(self, port: int, path: str) -> None:
        self._port, self._path = port, path

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def ask(self, what: str) -> tuple[float, float]:
        """Return the time to the first byte of the answer, and to its end."""
        began = time.perf_counter()
        body = b'{"model":"m","stream":true}'
        self._writer.write(
            f"POST {self._path}/v1/messages?{what} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        await self._reader.readuntil(b"data: ")
        first, tail = time.perf_counter() - began, b""
        while not tail.endswith(b"0\r\n\r\n"):
            tail = (tail + await self._reader.read(1 << 20))[-5:]
        return first, time.perf_counter() - began


@asynccontextmanager
async def gateway(port: int, folder: Path) -> AsyncIterator[tuple[int, str]]:
    """Stand in front of the provider; the port of the gateway, and the path of the proxy."""
    upstream = Upstream()
    route = Route(provider=PROVIDERS["anthropic"], url=f"http://127.0.0.1:{port}", keys={"ANTHROPIC_API_KEY": "k" * 40})
    proxy = AgentProxy(route, upstream, most_connections=2 * AT_ONCE)
    given = proxy.given(proxy.listen())
    request_log = RequestLog(folder / "requests.jsonl", masker=Masker(()))
    proxy.begin(request_log, lambda: None)
    try:
        _, _, place = given.address.partition("//")
        host, _, path = place.partition("/")
        yield int(host.split(":")[1]), f"/{path}"
    finally:
        await proxy.close()
        request_log.close()
        await upstream.close()


async def _measure(port: int, folder: Path) -> dict[str, float]:
    async with gateway(port, folder) as (own_port, path):
        async with Connection(port, "") as direct, Connection(own_port, path) as through:
            for _ in range(30):
                await direct.ask("quick")
                await through.ask("quick")
            pairs = [(await direct.ask("quick"), await through.ask("quick")) for _ in range(REQUESTS)]
            own_ms = [1000 * (ours[0] - theirs[0]) for theirs, ours in pairs]
            words = [(await direct.ask("words"), await through.ask("words")) for _ in range(STREAMS)]
            used = time.process_time()
            await through.ask("long")
            event_us = 1e6 * (time.process_time() - used) / EVENTS
        before_mb, used = _memory_mb(), time.process_time()
        firsts = await asyncio.gather(*(_one(own_port, path) for _ in range(AT_ONCE)))
        cpu_s = time.process_time() - used
    return {
        "own ms to the first byte, median": median(own_ms),
        "own ms to the first byte, 90th": quantiles(own_ms, n=10)[-1],
        "a stream, times a direct one": median(ours[1] / theirs[1] for theirs, ours in words),
        "CPU us for an event, with the client": event_us,
        "CPU ms for each of 1,000 at once": 1000 * cpu_s / AT_ONCE,
        "s until the last of 1,000 began": max(firsts) - PAUSE_S,
        "MB for 1,000 at once": _memory_mb() - before_mb,
    }


async def _one(port: int, path: str) -> float:
    async with Connection(port, path) as connection:
        first, _ = await connection.ask("slow")
        return first


def _memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure() -> dict[str, float]:
    """The figures by their names."""
    _allow_files()
    queue: multiprocessing.Queue[int] = multiprocessing.Queue()
    provider = multiprocessing.Process(target=provide, args=(queue,), daemon=True)
    provider.start()
    try:
        with tempfile.TemporaryDirectory(prefix="whet-bench-") as folder:
            return asyncio.run(_measure(queue.get(timeout=30), Path(folder)))
    finally:
        provider.terminate()
        provider.join()


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"  {name:40} {value:10.2f}")
