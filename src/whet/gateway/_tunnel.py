"""Ways out of a network that has only the gateway: hosts that a runner names, by CONNECT, and nothing else.

Where whet itself goes through a proxy, so do they.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from base64 import b64encode
from collections.abc import Iterable
from ipaddress import ip_address
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from whet.reading.addresses import is_public
from whet.reading.hosts import fits, is_number, read_host

if TYPE_CHECKING:
    from whet.gateway.connection import Client

_CHUNK = 65536
_CONNECT_S = 30.0
_FORBIDDEN, _UNREACHABLE = 403, 502
_LONGEST_STATUS = 200
# The names of this machine.
_LOCALHOST = "localhost"
_PORTS = {"http": 80, "https": 443}
_Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Tunnels:
    """The hosts that may be reached."""

    def __init__(self, allowed: Iterable[str]) -> None:
        self._allowed = [host_and_port for host in allowed if (host_and_port := read_host(host))]

    def __bool__(self) -> bool:
        return bool(self._allowed)

    def admits(self, target: str) -> tuple[str, int] | None:
        """Return host and port of *target* if it may be reached."""
        host_and_port = read_host(target)
        if host_and_port is None:
            return None
        return (
            host_and_port
            if any(fits(host_and_port[0], name) and host_and_port[1] == port for name, port in self._allowed)
            else None
        )

    async def open(self, client: Client, target: str) -> str | None:
        """Join *client* with *target* until either hangs up; return why not, after saying so."""
        address = self.admits(target)
        if address is None:
            why = f"{target[:200]} is not among the hosts that this agent may reach"
            await client.refuse(_FORBIDDEN, why)
            return why
        try:
            async with asyncio.timeout(_CONNECT_S):
                reader, writer = await _connect_host(*address)
        except (OSError, TimeoutError) as error:
            why = f"{target} cannot be reached: {str(error) or 'it does not answer'}"
            await client.refuse(_UNREACHABLE, why)
            return why
        try:
            await client.accept_tunnel()
            theirs, ours = client.streams
            writer.write(client.leftover)
            await _join_streams((theirs, writer), (reader, ours))
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        return None


async def _connect_host(host: str, port: int) -> _Streams:
    """Return a connection to a host, through the proxy of our own environment if there is one for it."""
    proxy = _find_proxy(host, port)
    if proxy is None:
        return await asyncio.open_connection(*await _resolve_host(host, port))
    try:
        default_port = _PORTS[proxy.scheme]
        proxy_address = proxy.hostname or "", proxy.port or default_port
    except (KeyError, ValueError) as error:
        raise OSError("what HTTPS_PROXY names is no HTTP proxy") from error
    streams = await asyncio.open_connection(
        *proxy_address, ssl=ssl.create_default_context() if proxy.scheme == "https" else None
    )
    try:
        await _ask_proxy(*streams, f"{host}:{port}", proxy)
    except BaseException:
        streams[1].close()
        raise
    return streams


async def _ask_proxy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: str, proxy: SplitResult
) -> None:
    """Have *proxy* connect us with *target*."""
    writer.write(_connect_request(target, proxy))
    try:
        answer = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise OSError("the proxy gives no answer of HTTP") from error
    status = answer.split(b"\r\n")[0].decode("latin-1")
    if status.split()[1:2] != ["200"]:
        raise OSError(f"the proxy says {status[:_LONGEST_STATUS]!r}")


def _find_proxy(host: str, port: int) -> SplitResult | None:
    """Return the proxy for a host; this machine itself is reached without."""
    proxies = getproxies()
    url = proxies.get("https") or proxies.get("all")
    with contextlib.suppress(ValueError):
        if ip_address(host.strip("[]")).is_loopback:
            return None
    if not url or host == _LOCALHOST or proxy_bypass(f"{host}:{port}"):
        return None
    return urlsplit(url if "://" in url else f"http://{url}")


def _connect_request(target: str, proxy: SplitResult) -> bytes:
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if proxy.username is not None:
        login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        lines.append(f"Proxy-Authorization: Basic {b64encode(login.encode()).decode()}")
    return "\r\n".join((*lines, "", "")).encode()


async def _resolve_host(host: str, port: int) -> tuple[str, int]:
    """Look a name up once; one that leads into a private network is refused, unless it was allowed as a number."""
    plain = host.strip("[]")
    with contextlib.suppress(ValueError):
        return str(ip_address(plain)), port
    if is_number(host):
        raise OSError("this is no name")
    loop = asyncio.get_running_loop()
    records = await loop.getaddrinfo(plain, port, type=socket.SOCK_STREAM)
    addresses = [str(record[4][0]) for record in records]
    if host != _LOCALHOST and not all(map(is_public, addresses)):
        raise OSError("its name leads to a private address")
    return addresses[0], port


async def _join_streams(*ways: _Streams) -> None:
    """Pass on what comes, both ways, until one side ends."""
    tasks = [asyncio.ensure_future(_copy_stream(*way)) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _copy_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
