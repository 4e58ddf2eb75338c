"""Ways out of a network that has only the gateway: hosts that a runner names, by CONNECT, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterable
from ipaddress import ip_address
from typing import TYPE_CHECKING

from whet.ground.fetching import is_public
from whet.reading.hosts import fits, is_number, read_host

if TYPE_CHECKING:
    from whet.agents.gateway_http import Client

_CHUNK = 65536
_CONNECT_S = 30.0
_FORBIDDEN, _UNREACHABLE = 403, 502
# What stands for this machine by name.
_OWN = "localhost"


class Tunnels:
    """The hosts that may be reached."""

    def __init__(self, allowed: Iterable[str]) -> None:
        self._allowed = [found for each in allowed if (found := read_host(each))]

    def __bool__(self) -> bool:
        return bool(self._allowed)

    def admits(self, target: str) -> tuple[str, int] | None:
        """Return host and port of *target* if it may be reached."""
        found = read_host(target)
        if found is None:
            return None
        return found if any(fits(found[0], name) and found[1] == port for name, port in self._allowed) else None

    async def open(self, client: Client, target: str) -> str | None:
        """Join *client* with *target* until either hangs up; return why not, after saying so."""
        where = self.admits(target)
        if where is None:
            why = f"{target[:200]} is not among the hosts that this agent may reach"
            await client.refuse(_FORBIDDEN, why)
            return why
        try:
            async with asyncio.timeout(_CONNECT_S):
                address = await _address(*where)
                reader, writer = await asyncio.open_connection(*address)
        except (OSError, TimeoutError) as error:
            why = f"{target} cannot be reached: {str(error) or 'it does not answer'}"
            await client.refuse(_UNREACHABLE, why)
            return why
        try:
            await client.accept_tunnel()
            theirs, ours = client.streams
            writer.write(client.leftover)
            await _joined((theirs, writer), (reader, ours))
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        return None


async def _address(host: str, port: int) -> tuple[str, int]:
    """Look a name up once; one that leads into a private network is refused, unless it was allowed as a number."""
    plain = host.strip("[]")
    with contextlib.suppress(ValueError):
        return str(ip_address(plain)), port
    if is_number(host):
        raise OSError("this is no name")
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(plain, port, type=socket.SOCK_STREAM)
    addresses = [str(each[4][0]) for each in found]
    if host != _OWN and not all(map(is_public, addresses)):
        raise OSError("its name leads to a private address")
    return addresses[0], port


async def _joined(*ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    """Pass on what comes, both ways, until one side ends."""
    tasks = [asyncio.ensure_future(_poured(*way)) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _poured(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
