"""What Ray runs on a node: an actor, which starts the node's process and speaks with it, and a task for each trial.

Both are thin, because Ray starts a Python for each trial at a time. The node's process (`cluster/node.py`) runs all
trials of a run on its node in one event loop. It is no child of a worker of Ray, which would kill it without giving it
the time to clean up: it watches its node actor instead, and ends when that does.

Imports little: every process of Ray that holds a trial imports it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from whet.gateway.rate_limit import LocalRateLimiter

_LENGTH = struct.Struct("!I")
_LONGEST = 512 * 1024 * 1024
_STARTING_S = 120.0
_LOOK_S = 0.02
# Answers of a trial task.
DONE, LOST, UNKNOWN = "done", "lost", "unknown"


def base_folder() -> Path:
    """Return the folder of this machine in which nodes keep what they were sent and what they have not sent yet."""
    base = Path(tempfile.gettempdir()) / f"whet-node-{os.geteuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    status = base.lstat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o077 or base.is_symlink():
        raise PermissionError(f"{base} does not belong to this user alone: remove it")
    return base


def node_folder(token: str, node_id: str) -> Path:
    """Return the folder of a run on a node; several nodes may be on one machine."""
    return base_folder() / "runs" / f"{token}-{node_id[:12]}"


def socket_of(folder: Path) -> str:
    """Return where the process of a node listens to trial tasks, as soon as it knows what to do."""
    return str(folder / "s")


def actor_socket_of(folder: Path) -> str:
    """Return where the process of a node listens to its node actor: a trial task must not come first."""
    return str(folder / "k")


def encode(message: Any) -> bytes:
    """Return *message* with its length in front."""
    data = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(data)) + data


async def receive(reader: asyncio.StreamReader) -> Any:
    """Return the next message; raises `IncompleteReadError` at the end."""
    size = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))[0]
    return msgspec.msgpack.decode(await reader.readexactly(size))


def receive_from(sock: socket.socket) -> Any:
    """Return the next message of a blocking socket; None at the end."""
    length = _read(sock, _LENGTH.size)
    data = _read(sock, min(_LONGEST, _LENGTH.unpack(length)[0])) if length else None
    return None if data is None else msgspec.msgpack.decode(data)


def _read(sock: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        piece = sock.recv(min(1 << 20, size - len(data)))
        if not piece:
            return None
        data += piece
    return bytes(data)


def run_trial_task(token: str, node_id: str, request: dict[str, Any]) -> bytes:
    """Have a trial run by the process of this node, and hold the resources of its task until it has ended."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        try:
            sock.connect(socket_of(node_folder(token, node_id)))
            sock.sendall(encode(request))
            answer = receive_from(sock)
        except (FileNotFoundError, ConnectionRefusedError):
            return msgspec.msgpack.encode({"state": UNKNOWN, "node": node_id})
        except OSError:
            answer = None
    return msgspec.msgpack.encode({"state": LOST, **(answer or {}), "node": node_id})


class NodeActor:
    """The actor of a run on one node."""

    def __init__(self, token: str, node_id: str, limits: Any) -> None:
        self._folder = node_folder(token, node_id)
        self._node, self._limits = node_id, limits
        self._writer: asyncio.StreamWriter | None = None
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._said: list[Any] = []
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Start the process of this node, and connect to it."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = actor_socket_of(self._folder)
        for old in (path, socket_of(self._folder)):
            Path(old).unlink(missing_ok=True)  # noqa: ASYNC240 - nothing else happens here yet
        log = self._folder / "log"
        command = [sys.executable, "-P", "-m", "whet.cluster.node", str(self._folder), str(os.getpid())]
        with log.open("wb") as file:
            # The program forks and ends at once.
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)  # noqa: ASYNC220
            deadline = time.monotonic() + (_STARTING_S if process.wait(_STARTING_S) == 0 else 0)
        while True:
            try:
                reader, self._writer = await asyncio.open_unix_connection(path)
                break
            except (FileNotFoundError, ConnectionRefusedError):
                if time.monotonic() > deadline:
                    # A process before this one may have removed the folder.
                    why = log.read_text()[-2000:] if log.exists() else ""
                    raise RuntimeError(f"its process did not start: {why}") from None
                await asyncio.sleep(_LOOK_S)
        self._do(self._listen(reader))

    async def ask(self, message: dict[str, Any]) -> Any:
        """Pass *message* on to the process of this node, and return its answer."""
        if self._writer is None:
            raise RuntimeError("the process of this node has ended")
        self._number += 1
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        self._writer.write(encode({"id": self._number, **message}))
        await self._writer.drain()
        return await answer

    async def read(self, path: str, start: int, size: int) -> bytes:
        """Return a piece of what a trial left."""

        def piece() -> bytes:
            with Path(path).open("rb") as file:
                file.seek(start)
                return file.read(size)

        return await asyncio.to_thread(piece)

    async def said(self, patience_s: float) -> list[Any]:
        """Return what the process has said since the last call; waits a while if that is nothing."""
        if not self._said:
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), patience_s)
        messages, self._said = self._said, []
        return messages

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                message = await receive(reader)
                if "want" in message:
                    self._do(self._limit(message))
                elif "id" in message:
                    if (answer := self._answers.pop(message["id"], None)) and not answer.done():
                        answer.set_result(message)
                else:
                    self._said.append(message)
                    self._news.set()
        except (asyncio.IncompleteReadError, OSError):
            self._writer = None
            self._said.append({"ended": self._node})
            self._news.set()
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(RuntimeError("the process of this node has ended"))
            self._answers.clear()

    async def _limit(self, message: dict[str, Any]) -> None:
        """Ask the limits that all nodes share, and pass on the answer, if one is waited for."""
        answer = await getattr(self._limits, message["want"]).remote(self._node, *message["of"])
        if "number" in message and self._writer is not None:
            self._writer.write(encode({"limit": message["number"], "answer": answer}))

    def _do(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class ProviderLimiter:
    """The actor that limits what all nodes of a run ask of each provider."""

    def __init__(self, most: int | None, most_tokens: int | None) -> None:
        self._most = (most, most_tokens)
        self._rate_limiters: dict[str, LocalRateLimiter] = {}
        # What is under way, by node: a node that is gone makes room.
        self._held: dict[tuple[str, str], int] = {}
        self._said: list[str] = []

    def _of(self, host: str) -> LocalRateLimiter:
        if host not in self._rate_limiters:
            self._rate_limiters[host] = LocalRateLimiter(*self._most, lambda what: self._said.append(f"{host} {what}"))
        return self._rate_limiters[host]

    async def enter(self, node: str, host: str) -> None:
        """Wait until there is room."""
        await self._of(host).enter()
        self._held[node, host] = self._held.get((node, host), 0) + 1

    async def leave(self, node: str, host: str) -> None:
        """Make room for the next one."""
        if self._held.get((node, host), 0) > 0:
            self._held[node, host] -= 1
            self._of(host).leave()

    async def heard(self, _: str, host: str, status: int, retry_after: str | None) -> None:
        """Take note of how a provider answered."""
        self._of(host).heard(status, retry_after)

    async def spend(self, _: str, host: str, tokens: int) -> None:
        """Count what an answer took."""
        self._of(host).spend(tokens)

    async def release(self, node: str) -> None:
        """Make room for all that was under way on a node that is gone."""
        for holder, host in [entry for entry in self._held if entry[0] == node]:
            while self._held[holder, host]:
                await self.leave(node, host)

    async def said(self) -> list[str]:
        """Return what people should know since the last call."""
        messages, self._said = self._said, []
        return messages


def run_trial_task_here(token: str, request: dict[str, Any]) -> bytes:
    """Hold a trial on the node that Ray chose for this task."""
    import ray  # the driver and the node's process need only the rest

    return run_trial_task(token, ray.get_runtime_context().get_node_id(), request)
