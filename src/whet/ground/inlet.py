"""A door into a network that has no other: a port on the loopback of a sandbox, at which a process outside listens.

A small launcher inside binds the port, passes the listening socket out over a socket that only it can see, and becomes
the command. So there is no forwarder, no port on the host, and nothing that another process could reach.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
from collections.abc import Mapping
from typing import Self

from whet.errors import AgentNotFound, SandboxError
from whet.ground.sandbox import Inlet
from whet.ground.warden import receive

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


class Doorway:
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
