"""The guard of addresses: what a name leads to is looked up once, checked, and connected to as it was checked."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

import anyio
import httpcore2

from whet.errors import PackageError

# All that is given out to anybody; the rest is for special uses, some of which lead to IPv4 addresses.
_UNICAST = IPv6Network("2000::/3")
# Translated to IPv4 on the way; the last four bytes are the address that is reached.
_NAT64 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))
_HINT = "packages.allow_private_addresses allows it"


class AddressRefused(PackageError):
    """The address is one that only insiders can reach."""


def is_public(text: str) -> bool:
    """Whether anybody on the internet could reach the address *text*, also by what is wrapped into it."""
    address = ip_address(text.partition("%")[0])
    wrapped = tuple(_wrapped(address))
    if isinstance(address, IPv6Address) and address not in _UNICAST and not wrapped:
        return False
    return all(each.is_global and not each.is_multicast for each in (address, *wrapped))


def _wrapped(address: IPv4Address | IPv6Address) -> Iterable[IPv4Address]:
    if isinstance(address, IPv4Address):
        return ()
    found = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if any(address in network for network in _NAT64) or int(address) >> 32 == 0:
        found.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return [each for each in found if each is not None]


class GuardedBackend(httpcore2.AnyIOBackend):
    """Connects to public addresses only; every redirect comes through here too."""

    async def connect_tcp(self, host: str, port: int, *rest: Any, **more: Any) -> httpcore2.AsyncNetworkStream:
        """Look *host* up, refuse it if any of its addresses is not public, and connect to the first that answers."""
        trouble: Exception | None = None
        for address in await _looked_up(host, port):
            try:
                return await super().connect_tcp(address, port, *rest, **more)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                trouble = error
        raise trouble or httpcore2.ConnectError(f"{host} has no address")

    async def connect_unix_socket(self, path: str, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        """Never."""
        raise AddressRefused(f"{path} is no address")


async def _looked_up(host: str, port: int) -> list[str]:
    try:
        found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore2.ConnectError(f"{host} cannot be looked up: {error}") from error
    addresses = list(dict.fromkeys(str(where[0]) for *_, where in found))
    # One that is not public spoils the name: whoever gives both kinds of answers is up to something.
    for address in addresses:
        if not is_public(address):
            raise AddressRefused(f"{host} leads to {address}, which is not a public address", hint=_HINT)
    return addresses
