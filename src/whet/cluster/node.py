"""`python -m whet.cluster.node FOLDER ACTOR`: the process that runs the trials of a command on one node of a cluster.

First it says what this machine is, takes the folders that it lacks, and opens its orders; then it runs trials as
`whet run` does, in its own folder. What a trial leaves waits there until the driver has it, also after the driver died.
It ends when its node actor does, and the supervisors below it end everything that it started.
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

from whet.cluster._archive import KEPT_S, Unpackable, clear_archives, keep_archive, lock_archive
from whet.cluster._node_run import NodeRun
from whet.cluster._order import missing_here, new_key, read_order, shared_key, unseal
from whet.cluster.node_actor import actor_socket_of, base_folder, encode, receive, receive_from, socket_of
from whet.errors import WhetError
from whet.run.scratch import clear_scratch
from whet.sandbox.container.leftovers import remove_abandoned
from whet.sandbox.contract import choose_sandbox
from whet.sandbox.process.pool import supervisors
from whet.sandbox.process.procfs import become_subreaper
from whet.version import __version__
from whet.workspace.copy import remove_tree
from whet.workspace.mounts import private_mounts

_ENDING_S = 10.0


class NodeRuns:
    """The runs of one command on this node, from their orders to their end."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._store = folder, base_folder() / "archives"
        self._store.mkdir(mode=0o700, exist_ok=True)
        self._private, self._public = new_key()
        self._key = b""
        self._coming: IO[bytes] | None = None
        self._runs: dict[str, NodeRun] = {}
        self._trial_socket: socket.socket | None = None
        self._actor: asyncio.StreamWriter | None = None
        self._limits: dict[int, asyncio.Future[Any]] = {}
        self._number = 0

    def prepare(self, sock: socket.socket, actor_pidfd: int) -> bool:
        """Answer the driver until everything is there; return whether trials may run."""
        while self._trial_socket is None:
            readable, _, _ = select.select([sock.fileno(), actor_pidfd], [], [])
            message = receive_from(sock) if actor_pidfd not in readable else None
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
        supervisors.start()
        sandbox, _ = choose_sandbox(message["sandbox"])
        lacking = missing_here(message["programs"], os.environ.get("PATH"))
        mounts = [path for path in message["mounts"] if not Path(path).exists()]
        node_facts = {"sandbox": sandbox.name, "lacking": [*lacking, *mounts], "public": self._public}
        return {**facts(), **node_facts, "pid": os.getpid()}

    def on_key(self, message: dict[str, Any]) -> None:
        """Take the key of the run, which is sealed for this process."""
        self._key = unseal(message["key"], shared_key(self._private, message["public"]))

    def on_archives(self, message: dict[str, Any]) -> dict[str, Any]:
        """Say which folder archives are not here."""
        return {"lacking": [digest for digest in message["digests"] if not lock_archive(digest, self._store)]}

    def on_piece(self, message: dict[str, Any]) -> None:
        """Take a piece of a folder archive; unpack it after the last one."""
        if self._coming is None:
            self._coming = (self._folder / "coming").open("w+b")
        self._coming.write(unseal(message["piece"], self._key))
        if message["last"]:
            with self._coming as file:
                self._coming = None
                keep_archive(file, message["digest"], self._store)
            (self._folder / "coming").unlink()
            if not lock_archive(message["digest"], self._store):
                raise Unpackable("a folder archive was removed as soon as it was here")

    def on_order(self, message: dict[str, Any]) -> dict[str, Any]:
        """Open an order; say which trials of it ended here before, and the driver has not fetched."""
        order, origins = read_order(unseal(message["order"], self._key), self._store)
        os.environ.update(order.environ)
        name = message["run"]
        # By run, not by node: a node that was started again finds what it had.
        places = (self._folder, base_folder() / "spool" / name)
        sandbox, _ = choose_sandbox(message["sandbox"])
        run = self._runs[name] = NodeRun(order, origins, sandbox, places, partial(self._tell_of, name))
        return {"finished": run.finished, "spool": str(run.spool)}

    def on_begin(self, _: dict[str, Any]) -> None:
        """Let trial tasks come: they wait until trials can run."""
        # Runs that go on hold their own archives by now.
        clear_archives(self._store)
        self._trial_socket = _listening(socket_of(self._folder))

    def _tell_of(self, run: str, message: dict[str, Any]) -> None:
        self.tell({"run": run, **message})

    def tell(self, message: dict[str, Any]) -> None:
        """Tell the driver something, as soon as it asks."""
        if self._actor is not None:
            self._actor.write(encode(message))

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

    async def work(self, actor: socket.socket, actor_pidfd: int) -> None:
        """Run the trials that trial tasks bring, until the node actor or the driver says that it is over."""
        loop = asyncio.get_running_loop()
        reader, self._actor = await asyncio.open_unix_connection(sock=actor)
        async with anyio.create_task_group() as tasks:
            loop.add_reader(actor_pidfd, tasks.cancel_scope.cancel)
            server = await asyncio.start_unix_server(
                lambda reader, writer: tasks.start_soon(self._trial_task, reader, writer), sock=self._trial_socket
            )
            await self._obey(reader)
            Path(socket_of(self._folder)).unlink(missing_ok=True)  # noqa: ASYNC240 - no trial task may come any more
            server.close()
            tasks.cancel_scope.cancel()
        loop.remove_reader(actor_pidfd)
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

    def serve(self, actor: socket.socket, actor_pidfd: int) -> None:
        """Run trials until it is over."""
        become_subreaper()
        with ExitStack() as stack:
            for run in self._runs.values():
                run.begin(self, stack)
            actor.setblocking(False)
            try:
                anyio.run(self.work, actor, actor_pidfd)
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
        if self._actor is not None:
            self._actor.close()

    async def _trial_task(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Run the trial that a trial task asks for; if the trial task ends, so does the trial."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            async with _while_open(reader) as request:
                try:
                    answer = await self._runs[request["run"]].answer(request)
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
    request = await receive(reader)

    async def watch(scope: anyio.CancelScope) -> None:
        # A worker that was killed may leave a connection that is reset.
        with contextlib.suppress(OSError):
            await reader.read(1)
        scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(watch, group.cancel_scope)
        yield request
        group.cancel_scope.cancel()


def facts() -> dict[str, Any]:
    """Return what must be the same on every node."""
    return {"whet": __version__, "python": ".".join(platform.python_version_tuple()[:2]), "host": socket.gethostname()}


def _clear_old(base: Path, node_folder: Path) -> None:
    """Remove what killed processes left, also those before this one, and results that were not fetched for a week."""
    remove_abandoned()
    for run_dir in node_folder.iterdir():
        clear_scratch(run_dir)
    for folder in base.glob("spool/*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_mtime < time.time() - KEPT_S:
                remove_tree(folder)
    for folder in node_folder.parent.iterdir():
        if folder == node_folder:
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
    """Wait for the process of an earlier node actor: it may be cleaning up, and removes the folder in the end."""
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
    folder, actor = Path(sys.argv[1]), int(sys.argv[2])
    # Before we leave it: if it is gone by then, its id may belong to another.
    actor_pidfd = os.pidfd_open(actor)
    if os.fork():
        os._exit(0)
    os.setsid()
    _alone_in(folder)
    _clear_old(base_folder(), folder)
    node = NodeRuns(folder)
    with _listening(actor_socket_of(folder)) as listener:
        if actor_pidfd not in select.select([listener.fileno(), actor_pidfd], [], [])[0]:
            sock, _ = listener.accept()
            sock.setblocking(True)
            if node.prepare(sock, actor_pidfd):
                node.serve(sock, actor_pidfd)
    node.remove()


if __name__ == "__main__":
    main()
