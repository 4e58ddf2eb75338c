"""`python -m whet.run.node FOLDER KEEPER`: the process that runs the trials of a command on one node of a cluster.

First it says what this machine is, takes the folders that it lacks, and opens its orders; then it runs trials as
`whet run` does, in its own folder. What a trial leaves waits there until the driver has it, also after the driver died.
It ends when its keeper does, and the wardens below it end everything that it started.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import platform
import select
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO, Any

import anyio

from whet.errors import WhetError
from whet.ground.copying import remove_tree
from whet.ground.descent import become_subreaper
from whet.ground.marks import remove_abandoned
from whet.ground.mounts import private_mounts
from whet.ground.parcels import KEPT_S, Unpackable, clear_parcels, hold_parcel, keep_parcel
from whet.ground.sandbox import choose_sandbox
from whet.ground.wardens import wardens
from whet.run.keeper import base_folder, encode, keeper_socket_of, receive, receive_from, socket_of
from whet.run.node_run import NodeRun
from whet.run.order import missing_here, new_key, opened, read_order, shared_key
from whet.run.scratch import clear_scratch
from whet.version import __version__

_ENDING_S = 10.0


class Node:
    """The runs of one command on this node, from their orders to their end."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._store = folder, base_folder() / "parcels"
        self._store.mkdir(mode=0o700, exist_ok=True)
        self._private, self._public = new_key()
        self._key = b""
        self._coming: IO[bytes] | None = None
        self._runs: dict[str, NodeRun] = {}
        self._leases: socket.socket | None = None
        self._keeper: asyncio.StreamWriter | None = None
        self._limits: dict[int, asyncio.Future[Any]] = {}
        self._number = 0

    def prepare(self, sock: socket.socket, gone: int) -> bool:
        """Answer the driver until everything is there; return whether trials may run."""
        while self._leases is None:
            readable, _, _ = select.select([sock.fileno(), gone], [], [])
            message = receive_from(sock) if gone not in readable else None
            if message is None:
                return False
            try:
                answer = getattr(self, f"on_{message['do']}")(message)
            except WhetError as error:
                answer = {"problem": error.message if error.hint is None else f"{error.message} ({error.hint})"}
            except Exception as error:  # noqa: BLE001 - the driver says it
                answer = {"problem": f"{type(error).__name__}: {error}"}
            sock.sendall(encode({"id": message["id"], **(answer or {})}))
        return True

    def on_hello(self, message: dict[str, Any]) -> dict[str, Any]:
        """Say what this machine is and lacks, and take the key of the driver."""
        private_mounts()
        wardens.start()
        sandbox, _ = choose_sandbox(message["sandbox"])
        lacking = missing_here(message["programs"], os.environ.get("PATH"))
        mounts = [path for path in message["mounts"] if not Path(path).exists()]
        own = {"sandbox": sandbox.name, "lacking": [*lacking, *mounts], "public": self._public}
        return {**facts(), **own, "pid": os.getpid()}

    def on_key(self, message: dict[str, Any]) -> None:
        """Take the key of the run, which is sealed for this process."""
        self._key = opened(message["key"], shared_key(self._private, message["public"]))

    def on_parcels(self, message: dict[str, Any]) -> dict[str, Any]:
        """Say which parcels are not here."""
        return {"lacking": [digest for digest in message["digests"] if not hold_parcel(digest, self._store)]}

    def on_piece(self, message: dict[str, Any]) -> None:
        """Take a piece of a parcel; unpack it after the last one."""
        if self._coming is None:
            self._coming = (self._folder / "coming").open("w+b")
        self._coming.write(opened(message["piece"], self._key))
        if message["last"]:
            with self._coming as file:
                self._coming = None
                keep_parcel(file, message["digest"], self._store)
            (self._folder / "coming").unlink()
            if not hold_parcel(message["digest"], self._store):
                raise Unpackable("a parcel was removed as soon as it was here")

    def on_order(self, message: dict[str, Any]) -> dict[str, Any]:
        """Open an order; say which trials of it ended here before, and the driver has not fetched."""
        order, origins = read_order(opened(message["order"], self._key), self._store)
        os.environ.update(order.environ)
        name = message["run"]
        # By run, not by node: a node that was started again finds what it had.
        places = (self._folder, base_folder() / "spool" / name)
        sandbox, _ = choose_sandbox(message["sandbox"])
        run = self._runs[name] = NodeRun(order, origins, sandbox, places, partial(self._tell_of, name))
        return {"finished": run.finished, "spool": str(run.spool)}

    def on_begin(self, _: dict[str, Any]) -> None:
        """Let leases come: they wait until trials can run."""
        # These runs hold their own by now.
        clear_parcels(self._store)
        self._leases = _listening(socket_of(self._folder))

    def _tell_of(self, run: str, message: dict[str, Any]) -> None:
        self.tell({"run": run, **message})

    def tell(self, message: dict[str, Any]) -> None:
        """Tell the driver something, as soon as it asks."""
        if self._keeper is not None:
            self._keeper.write(encode(message))

    def pass_on(self, want: str, *of: Any) -> None:
        """Tell the limits that all nodes share."""
        self.tell({"want": want, "of": of})

    async def ask(self, want: str, *of: Any) -> Any:
        """Ask the limits that all nodes share."""
        self._number += 1
        number = self._number
        answer = self._limits[number] = asyncio.get_running_loop().create_future()
        self.tell({"want": want, "of": of, "number": number})
        try:
            return await answer
        finally:
            self._limits.pop(number, None)

    async def work(self, keeper: socket.socket, gone: int) -> None:
        """Run the trials that leases bring, until the keeper or the driver says that it is over."""
        loop = asyncio.get_running_loop()
        reader, self._keeper = await asyncio.open_unix_connection(sock=keeper)
        async with anyio.create_task_group() as leases:
            loop.add_reader(gone, leases.cancel_scope.cancel)
            server = await asyncio.start_unix_server(
                lambda reader, writer: leases.start_soon(self._lease, reader, writer), sock=self._leases
            )
            await self._obey(reader)
            Path(socket_of(self._folder)).unlink(missing_ok=True)  # noqa: ASYNC240 - no lease may come any more
            server.close()
            leases.cancel_scope.cancel()
        loop.remove_reader(gone)
        await self._close()

    async def _obey(self, reader: asyncio.StreamReader) -> None:
        while True:
            try:
                message = await receive(reader)
            except (asyncio.IncompleteReadError, OSError):
                return
            if "limit" in message:
                if (answer := self._limits.get(message["limit"])) and not answer.done():
                    answer.set_result(message["answer"])
                continue
            under_way: dict[str, float] = {}
            match message["do"]:
                case "forget":
                    for run, name in message["names"]:
                        self._runs[run].forget(name)
                case "state":
                    under_way = {name: run.hear(message["refused"].get(name)) for name, run in self._runs.items()}
                case "end":
                    return
            self.tell({"id": message["id"], "under_way": under_way})

    def serve(self, keeper: socket.socket, gone: int) -> None:
        """Run trials until it is over."""
        become_subreaper()
        with ExitStack() as stack:
            for run in self._runs.values():
                run.begin(self, stack)
            keeper.setblocking(False)
            try:
                anyio.run(self.work, keeper, gone)
            finally:
                _end_anyway()

    def remove(self) -> None:
        """Remove what is of no use without this process: what the driver has not fetched stays."""
        remove_tree(self._folder)
        for run in self._runs.values():
            run.remove()

    async def _close(self) -> None:
        """Release what `execute` releases at the end of a run."""
        with anyio.CancelScope(shield=True):
            for run in self._runs.values():
                await run.close()
        if self._keeper is not None:
            self._keeper.close()

    async def _lease(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Run the trial that a lease asks for; if the lease ends, so does the trial."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            async with _while_open(reader) as asked:
                try:
                    answer = await self._runs[asked["run"]].answer(asked)
                except Exception as error:  # noqa: BLE001 - the other trials of this node go on
                    answer = {"problem": f"{type(error).__name__}: {error}"}
                # Inside, because a task group would wrap what is raised.
                with contextlib.suppress(OSError):
                    writer.write(encode(answer))
                    await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def _while_open(reader: asyncio.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """Give the first message, and cancel what is done with it if its sender goes away."""
    asked = await receive(reader)

    async def watch(scope: anyio.CancelScope) -> None:
        # A worker that was killed may leave a connection that is reset.
        with contextlib.suppress(OSError):
            await reader.read(1)
        scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(watch, group.cancel_scope)
        yield asked
        group.cancel_scope.cancel()


def facts() -> dict[str, Any]:
    """Return what must be the same on every node."""
    return {"whet": __version__, "python": ".".join(platform.python_version_tuple()[:2]), "host": socket.gethostname()}


def _clear_old(base: Path, own: Path) -> None:
    """Remove what killed processes could not, also that before this one, and what nobody has come for for a week."""
    remove_abandoned()
    for run_dir in own.iterdir():
        clear_scratch(run_dir)
    for folder in base.glob("spool/*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_mtime < time.time() - KEPT_S:
                remove_tree(folder)
    for folder in own.parent.iterdir():
        if folder == own:
            continue
        with contextlib.suppress(OSError):
            lock = os.open(folder / "lock", os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for run_dir in folder.iterdir():
                    clear_scratch(run_dir)
                remove_tree(folder)
            finally:
                os.close(lock)


def _listening(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(1024)
    listener.setblocking(False)
    return listener


def _alone_in(folder: Path) -> None:
    """Wait for the process of a keeper before this one, which may be cleaning up; it removes the folder in the end."""
    while True:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), (folder / "lock").stat()):
                # Until this process ends.
                return
        os.close(lock)


def _end_anyway() -> None:
    """End this process in a while, even if something keeps it from cleaning up."""
    signal.signal(signal.SIGALRM, lambda *_: os._exit(1))
    signal.setitimer(signal.ITIMER_REAL, _ENDING_S)


def main() -> None:
    """Leave the worker of Ray that started us, and serve its run."""
    folder, keeper = Path(sys.argv[1]), int(sys.argv[2])
    # Before we leave it: if it is gone by then, its id may belong to another.
    gone = os.pidfd_open(keeper)
    if os.fork():
        os._exit(0)
    os.setsid()
    _alone_in(folder)
    _clear_old(base_folder(), folder)
    node = Node(folder)
    with _listening(keeper_socket_of(folder)) as listener:
        if gone not in select.select([listener.fileno(), gone], [], [])[0]:
            sock, _ = listener.accept()
            sock.setblocking(True)
            if node.prepare(sock, gone):
                node.serve(sock, gone)
    node.remove()


if __name__ == "__main__":
    main()
