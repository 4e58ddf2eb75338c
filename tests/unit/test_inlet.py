"""The one address in a network that is off: a process outside listens on it, and the command inside is as ever."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from whet.errors import AgentNotFound
from whet.sandbox.bubblewrap.sandbox import BubblewrapSandbox
from whet.sandbox.contract import Boundary, Command, Inlet

pytestmark = pytest.mark.bubblewrap
LOOK = """
import os, signal, socket, sys
def reaches(port):
    try:
        with socket.create_connection(("127.0.0.1", port), 3) as to:
            return to.recv(10).decode()
    except OSError:
        return "refused"
print(reaches(int(sys.argv[1])), reaches(int(sys.argv[2])))
print(sorted(set(os.environ) - {"PWD", "LC_CTYPE"}), sorted(map(int, os.listdir("/proc/self/fd"))))
ignored = int(open("/proc/%d/status" % os.getppid()).read().split("SigIgn:")[1].split()[0], 16)
# Without the two that the C library keeps to itself: no program can change them, and it may inherit them ignored.
print("ignored", ignored & 0x7FFFFFFF)
"""


@asynccontextmanager
async def inside(folder: Path) -> AsyncIterator[tuple[BubblewrapSandbox, Boundary, Inlet]]:
    """A sandbox with an inlet at which somebody outside says hello."""
    tasks: list[asyncio.Task[None]] = []
    sockets: list[socket.socket] = []

    async def greet(listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(listener)
            await loop.sock_sendall(connection, b"hello")
            connection.close()

    def take(listener: socket.socket) -> None:
        listener.setblocking(False)
        sockets.append(listener)
        tasks.append(asyncio.ensure_future(greet(listener)))

    sandbox = BubblewrapSandbox()
    inlet = Inlet(take=take)
    try:
        yield sandbox, Boundary(writable=(folder,), network=False, inlet=inlet), inlet
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in sockets:
            each.close()
        await sandbox.close()


def test_a_command_reaches_the_inlet_and_not_the_host_and_inherits_nothing(tmp_path: Path) -> None:
    async def work() -> list[str]:
        said: list[bytes] = []
        with socket.create_server(("127.0.0.1", 0)) as host:
            async with inside(tmp_path) as (sandbox, boundary, inlet):
                look = (sys.executable, "-I", "-c", LOOK, str(inlet.port), str(host.getsockname()[1]))
                # A shell in front, so that the program has a parent that the launcher became.
                shell = ("sh", "-c", '"$@"; true', "sh", *look)
                command = Command(argv=shell, env={"PATH": os.environ["PATH"]}, cwd=tmp_path)
                ended = await sandbox.run(command, boundary, timeout_s=30, stdout=said.append, stderr=said.append)
        assert ended.exit_code == 0, said
        return b"".join(said).decode().splitlines()

    reached, inherited, ignored = asyncio.run(work())

    assert reached == "hello refused"
    # The last one is the folder that it looks at.
    assert inherited == "['PATH'] [0, 1, 2, 3]"
    assert ignored == "ignored 0"


def test_a_program_that_cannot_be_executed_is_named(tmp_path: Path) -> None:
    program = tmp_path / "broken"
    program.write_text("this is no program\n")
    program.chmod(0o755)

    async def work() -> None:
        async with inside(tmp_path) as (sandbox, boundary, _):
            command = Command(argv=(str(program),), env={"PATH": os.environ["PATH"]}, cwd=tmp_path)
            await sandbox.run(command, boundary, timeout_s=30, stdout=lambda _: None, stderr=lambda _: None)

    with pytest.raises(AgentNotFound, match="broken"):
        asyncio.run(work())
