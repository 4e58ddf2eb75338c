"""Which addresses are public: a table of networks with a special use, because no two versions of Python agree on them.

The networks are those of IANA's special-purpose registries for IPv4 and IPv6, those for multicast, and the addresses
at which clouds answer the machines that they host.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_SPECIAL_4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # shared by customers of a provider; 100.100.100.200 answers machines of a cloud
            "127.0.0.0/8",  # loopback
            "168.63.129.16/32",  # answers machines of a cloud
            "169.254.0.0/16",  # link-local; 169.254.169.254 answers machines of most clouds
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocols; 192.0.0.192 answers machines of a cloud
            "192.0.2.0/24",  # documentation
            "192.31.196.0/24",  # name servers of private addresses
            "192.52.193.0/24",  # multicast relays
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",  # private
            "192.175.48.0/24",  # name servers of private addresses
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
        ),
    )
)
# All others are loopback, private, link-local, multicast, or reserved.
_UNICAST_6 = IPv6Network("2000::/3")
_SPECIAL_6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocols: Teredo, benchmarks, ORCHID, and more
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4: leads to an IPv4 address
            "2620:4f:8000::/48",  # name servers of private addresses
            "3fff::/20",  # documentation
        ),
    )
)
# The last four bytes are an IPv4 address: as such, and translated on the way.
_OF_IPV4 = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))


def is_public(text: str) -> bool:
    """Return whether the address *text*, or the IPv4 address that it contains, is one of the public internet."""
    address = _of_ipv4(ip_address(text.partition("%")[0]))
    if isinstance(address, IPv4Address):
        return not _is_in(address, _SPECIAL_4)
    return address in _UNICAST_6 and not _is_in(address, _SPECIAL_6)


def _of_ipv4(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    if isinstance(address, IPv6Address) and _is_in(address, _OF_IPV4):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _is_in(address: IPv4Address | IPv6Address, networks: Iterable[IPv4Network | IPv6Network]) -> bool:
    return any(address in network for network in networks)
