"""Hosts that an agent may reach, as people write them: `api.example.com:443`, `*.example.org:443`, `127.0.0.1:8080`."""

from __future__ import annotations

import re

# A name, or the same with `*.` in front, or a number; and a port.
_NAME = r"(?:\*\.)?[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\]"
_HOST = rf"(?P<host>{_NAME}):(?P<port>[0-9]{{1,5}})"
_LAST_PORT = 65_535


def read_host(text: str) -> tuple[str, int] | None:
    """Return name and port, or None if *text* is not both."""
    match = re.fullmatch(_HOST, text)
    if match is None or not 0 < int(match["port"]) <= _LAST_PORT:
        return None
    return match["host"].lower(), int(match["port"])


def host_problem(text: str) -> str | None:
    """Return what is wrong with a host that is allowed, or None."""
    if read_host(text) is None:
        return 'must be a host and a port, such as "api.example.com:443" or "*.example.org:443"'
    return None


# The port that Ray Client listens on by default.
_CLIENT_PORT = 10_001
LOCAL_CLUSTER = "ray"


def cluster_problem(text: str) -> str | None:
    """Return what is wrong with the name of a cluster, or None."""
    if text == LOCAL_CLUSTER:
        return None
    address = read_host(text.removeprefix("ray://")) if text.startswith("ray://") else None
    if address is None or address[0].startswith("*"):
        return (
            'must be "ray", or "ray://HEAD:PORT" with what `ray start --address` takes, such as "ray://10.0.0.1:6379"'
        )
    if address[0].startswith("["):
        return "must have the name or the IPv4 address of the head: whet does not reach clusters by IPv6"
    if address[1] == _CLIENT_PORT:
        return (
            f"{address[1]} is the port of Ray Client, which whet does not use: start whet on a node of the cluster, "
            "and name the port of `ray start --address`, which is 6379 unless you chose another"
        )
    return None


def is_number(host: str) -> bool:
    """Return whether *host* is a number, or may be read as one: no name ends in one."""
    last = host.rsplit(".", 1)[-1]
    return host.startswith("[") or last.isdecimal() or last.startswith("0x")


def fits(host: str, allowed: str) -> bool:
    """Return whether *host* is the one that is *allowed*, as it is written: `127.1` is not `127.0.0.1`."""
    if host.startswith("*"):
        return False
    if allowed.startswith("*."):
        return host.endswith(allowed[1:]) and not is_number(host)
    return host == allowed
