"""A door into a network that has no other: a port on the loopback of a sandbox, at which a process outside listens.

A small launcher inside binds the port, passes the listening socket out over a socket that only it can see, and becomes
the command. So there is no forwarder, no port on the host, and nothing that another process could reach.
For a container, a process of this machine does the same from outside: the image needs no program for it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

import anyio
from msgspec.structs import replace

from whet.errors import AgentNotFound, SandboxError
from whet.sandbox.contract import Boundary, Inlet
from whet.sandbox.process.run import open_process
from whet.sandbox.process.supervisor import receive

if TYPE_CHECKING:
    from whet.sandbox.engine import Engine

# The C modules alone: `socket` would take longer to import than all of this. Python ignores two signals, which the
# command must not inherit, and may have set a variable for itself.
_LAUNCHER = """
import _signal, _socket, os, sys
control, port, own_locale, *argv = sys.argv[1:]
talk = _socket.socket(fileno=int(control))
os.set_inheritable(int(control), False)
listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
try:
    listener.bind(("127.0.0.1", int(port)))
    listener.listen(1024)
    handle = listener.fileno().to_bytes(4, sys.byteorder)
    talk.sendmsg([b"l"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, handle)])
    listener.close()
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)
    if own_locale == "no":
        os.environ.pop("LC_CTYPE", None)
    os.execv(argv[0], argv)
except OSError as error:
    talk.send(str(error.errno).encode())
    os._exit(1)
"""
_LOCALES = ("LC_ALL", "LC_CTYPE")
# Enters the network of a process, or makes a new one with nothing but its loopback, which lives as long as this does.
# Connections of an earlier listener may still be on their way out.
_BINDER = """
import _socket, ctypes, fcntl, os, struct, sys
control, port, process = sys.argv[1:]
talk = _socket.socket(fileno=int(control))
libc = ctypes.CDLL(None, use_errno=True)
try:
    if process:
        failed = libc.setns(os.open(f"/proc/{process}/ns/net", os.O_RDONLY), 0x40000000)
    else:
        failed = libc.unshare(0x40000000)
    if failed:
        raise OSError(ctypes.get_errno(), "")
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    if not process:
        fcntl.ioctl(listener.fileno(), 0x8914, struct.pack("16sh22x", b"lo", 1))
    listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(port)))
    listener.listen(1024)
    handle = listener.fileno().to_bytes(4, sys.byteorder)
    talk.sendmsg([str(os.getpid()).encode()], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, handle)])
    listener.close()
    os.read(0, 1)
except OSError as error:
    talk.send(str(error.errno).encode())
"""
_PATIENCE_S = 60.0


class PortHandover:
    """Receives the listening socket of an inlet, if there is one; a context around the start of a command."""

    def __init__(self, inlet: Inlet | None) -> None:
        self._inlet = inlet
        self._ours: socket.socket | None = None
        self._theirs: socket.socket | None = None
        self._said = b""

    def __enter__(self) -> Self:
        if self._inlet is not None:
            self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._ours.setblocking(False)
            asyncio.get_running_loop().add_reader(self._ours.fileno(), self._hear)
        return self

    @property
    def inherited(self) -> tuple[int, ...]:
        """What the launcher inherits."""
        return (self._theirs.fileno(),) if self._theirs else ()

    def argv(self, program: str, args: tuple[str, ...], env: Mapping[str, str]) -> tuple[str, ...]:
        """Return what starts *program*: by itself, or through the launcher."""
        if self._inlet is None or self._theirs is None:
            return (program, *args)
        own_locale = "yes" if any(name in env for name in _LOCALES) else "no"
        python = (os.path.realpath(sys.executable), "-I", "-S", "-c", _LAUNCHER)
        return (*python, str(self._theirs.fileno()), str(self._inlet.port), own_locale, program, *args)

    def close_theirs(self) -> None:
        """Close our copy of what the launcher has inherited."""
        if self._theirs is not None:
            self._theirs.close()
            self._theirs = None

    def raise_for_trouble(self, program: str) -> None:
        """Raise if the launcher did not become the command; it has ended."""
        while self._ours is not None and not self._said and self._hear():
            pass
        if not self._said:
            return
        number = int(self._said) if self._said.isdigit() else errno.EIO
        why = os.strerror(number)
        if number in (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR):
            raise AgentNotFound(f'"{program}" cannot be started inside the sandbox: {why}')
        raise SandboxError(f"the port of the gateway cannot be opened inside the sandbox: {why}")

    def _hear(self) -> bool:
        """Take the socket, or why there is no command; return whether there may be more to hear."""
        assert self._ours is not None
        assert self._inlet is not None
        try:
            data, fds = receive(self._ours, 16, 1)
        except BlockingIOError:
            return False
        except OSError:
            data, fds = b"", []
        for fd in fds:
            self._inlet.take(socket.socket(fileno=fd))
        if not data:
            asyncio.get_running_loop().remove_reader(self._ours.fileno())
        elif not fds:
            self._said = data
        return bool(data)

    def __exit__(self, *_: object) -> None:
        self.close_theirs()
        if self._ours is not None:
            asyncio.get_running_loop().remove_reader(self._ours.fileno())
            self._ours.close()


@asynccontextmanager
async def network_of(boundary: Boundary, engine: Engine) -> AsyncIterator[str]:
    """Yield the network of a new container as its engine takes it; an inlet is there before the container is."""
    if boundary.inlet is None:
        yield "host" if boundary.network else "none"
        return
    async with opened(boundary.inlet, engine) as process:
        yield f"ns:/proc/{process}/ns/net"


@asynccontextmanager
async def opened(inlet: Inlet, engine: Engine, container: int | None = None) -> AsyncIterator[int]:
    """Open *inlet* in the network of a *container*, whose first process this is, or in a new one.

    Yields the process that is in this network until the end of the context.
    """
    if not engine.is_podman:
        raise SandboxError(
            "docker cannot give a container the gateway and nothing else",
            hint='use podman (run.container = "podman"), or network = "full"',
        )
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    python = (sys.executable, "-I", "-S", "-c", _BINDER)
    argv = (*engine.as_owner, *python, str(theirs.fileno()), str(inlet.port), str(container or ""))
    said = bytearray()
    with ours, theirs:
        async with open_process(
            replace(engine.command(), argv=argv),
            stdout=said.extend,
            stderr=said.extend,
            pass_fds=(theirs.fileno(),),
            started=theirs.close,
        ):
            with anyio.move_on_after(_PATIENCE_S):
                await anyio.wait_readable(ours)
            yield _taken(ours, inlet, said)


def _taken(ours: socket.socket, inlet: Inlet, said: bytearray) -> int:
    """Give *inlet* its socket, and return the process that opened it."""
    ours.setblocking(False)
    try:
        data, fds = receive(ours, 16, 1)
    except OSError:
        data, fds = b"", []
    if not fds:
        why = os.strerror(int(data)) if data.isdigit() else said.decode(errors="replace").strip()
        raise SandboxError(f"the port of the gateway cannot be opened in the container: {why or 'it says nothing'}")
    inlet.take(socket.socket(fileno=fds[0]))
    return int(data)
