"""The nodes of a cluster during a run: give them their orders, listen to them, replace what is lost, and end them."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from whet.dataclass import dataclass
from whet.errors import UsageError
from whet.ground.parcels import write_parcel
from whet.model import wire
from whet.model.run import Trial, TrialKey
from whet.model.session import Usage
from whet.plan.settle import Planned
from whet.run.cluster_nodes import ClusterNode, hello, introduce, living, open_nodes
from whet.run.keeper import Limits
from whet.run.order import Order, packed, roots_of, sealed, travelling, write_order
from whet.run.parts import RunParts

_PARCEL_PIECE = 4 * 1024 * 1024
_MOST_CARRIED = 2 * 1024**3
_POLL_S = 1.0
_PAUSE_S = 0.5
_GONE = (ray.exceptions.RayError, RuntimeError)


class _Spent(msgspec.Struct):
    key: TrialKey
    usage: Usage


@dataclass(slots=True)
class Left:
    """What a trial left on a node: the name of its file there, and the content if that is small."""

    node: ClusterNode
    name: str
    size: int
    data: bytes | None = None


@dataclass(slots=True, kw_only=True)
class Fleet:
    """The nodes that take part in one run."""

    planned: Planned
    environ: Mapping[str, str]
    token: str = field(default_factory=lambda: os.urandom(8).hex())
    nodes: dict[str, ClusterNode] = field(default_factory=dict)
    # Trials that ended before an interrupted run goes on, by the names of their files.
    finished: dict[str, Left] = field(default_factory=dict)
    # Files of which the content is here by now, by node.
    fetched: dict[str, list[str]] = field(default_factory=dict)
    _key: bytes = field(default_factory=lambda: os.urandom(32))
    _sandbox: str = ""
    _limits: Any = None
    _parts: RunParts | None = None
    _parcels: dict[str, tuple[Path, Path]] = field(default_factory=dict)
    _order: bytes = b""
    _under_way: dict[str, float] = field(default_factory=dict)
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    _listening: list[asyncio.Task[None]] = field(default_factory=list)

    def assemble(self, sandbox: str) -> None:
        """Look at every node before anything starts; raises if one cannot run these trials."""
        given = self.planned.settings.gateway
        most = (given.get("max_requests"), given.get("max_tokens_per_minute"))
        # With the driver: on a node that dies, all requests would wait for ever.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        limits = ray.remote(Limits).options(num_cpus=0, max_concurrency=10_000, scheduling_strategy=here)
        self._limits = limits.remote(*most)
        self._sandbox = sandbox
        found = open_nodes(living().values(), self.token, self._limits, self._hello())
        self.nodes = {node.id: node for node in found}

    def _hello(self) -> dict[str, Any]:
        return hello(self._sandbox, self.planned.settings, self.planned.plan)

    @asynccontextmanager
    async def at_work(self, parts: RunParts) -> AsyncIterator[None]:
        """Give every node its order, listen to all of them during the run, and end them after it."""
        self._parts = parts
        parts.gateways.elsewhere_usd = lambda: sum(self._under_way.values())
        await anyio.to_thread.run_sync(self._pack)
        await self._give(list(self.nodes.values()))
        for node in self.nodes.values():
            self._do(self._listen(node))
        self._do(self._hear_limits())
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await self._end()
                for task in self._listening:
                    task.cancel()
                await asyncio.gather(*self._listening, return_exceptions=True)
            ray.shutdown()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        # No task group: this context is entered inside of another one and left after it.
        self._listening.append(asyncio.ensure_future(work))

    def _pack(self) -> None:
        """Pack what travels into files, by content."""
        parts, plan, settings = self._parts, self.planned.plan, self.planned.settings
        assert parts is not None
        total = 0
        for number, root in enumerate(roots_of(plan, settings)):
            place = parts.scratch / f"p{number}"
            with place.open("wb") as file:
                digest, size = write_parcel(packed(root, plan, settings), file)
            total += size
            if total > _MOST_CARRIED:
                raise UsageError(
                    f"{root} and what else has to travel to the nodes is larger than {_MOST_CARRIED // 1024**2:,} MB",
                    hint="put the suite into a folder of its own",
                )
            self._parcels[digest] = (root, place)
        order = Order(
            run_id=parts.run_id,
            plan=parts.plan,
            settings=settings,
            environ=travelling(self.environ),
            places={digest: root for digest, (root, _) in self._parcels.items()},
            verbose=parts.listen is not None,
        )
        self._order = write_order(order)

    async def _give(self, nodes: list[ClusterNode]) -> None:
        """Send *nodes* the parcels that they lack, each piece once, and the order."""
        await asyncio.gather(*introduce(nodes, self._key))
        answers = await _asked(nodes, {"do": "parcels", "digests": list(self._parcels)})
        for digest, (_, place) in self._parcels.items():
            wanting = [node for node, answer in zip(nodes, answers, strict=True) if digest in answer["lacking"]]
            if wanting:
                await self._send(digest, place, wanting)
        order = {"do": "order", "order": sealed(self._order, self._key), "run": self._run_token()}
        for node, answer in zip(nodes, await _asked(nodes, order), strict=True):
            node.spool = answer["spool"]
            self.finished |= {name: Left(node, name, size) for name, size in answer["finished"].items()}

    async def _send(self, digest: str, place: Path, nodes: list[ClusterNode]) -> None:
        with place.open("rb") as file:
            piece = file.read(_PARCEL_PIECE)
            while True:
                following = file.read(_PARCEL_PIECE)
                message = {"do": "piece", "digest": digest, "piece": sealed(piece, self._key), "last": not following}
                # One copy in the object store, which each node fetches from there.
                await _asked(nodes, ray.put(message))
                if not following:
                    return
                piece = following

    def _run_token(self) -> str:
        """Return the name of this run on every node, also after it is resumed."""
        assert self._parts is not None
        return hashlib.sha256(f"{socket.gethostname()}:{self._parts.run_dir}".encode()).hexdigest()[:24]

    async def open(self, node_id: str) -> None:
        """Make a node ready that has no process of ours: it is new, or its process has ended."""
        async with self._opening:
            known = self.nodes.get(node_id)
            if known is not None and await _answers(known):
                return
            node = living().get(node_id)
            if node is None:
                await anyio.sleep(_PAUSE_S)
                return
            try:
                found = await anyio.to_thread.run_sync(open_nodes, [node], self.token, self._limits, self._hello())
                await self._give(found)
            except (UsageError, *_GONE) as error:
                self._notice(f"node {node['NodeManagerAddress']} cannot take part: {error}")
                await anyio.sleep(_PAUSE_S)
                return
            self.nodes[node_id] = found[0]
            self._do(self._listen(found[0]))

    def _notice(self, message: str) -> None:
        assert self._parts is not None
        self._parts.gateways.notice(message)

    async def _listen(self, node: ClusterNode) -> None:
        """Take what a node tells, and tell it what it should know, until it is gone."""
        assert self._parts is not None
        with suppress(*_GONE):
            while True:
                told = await node.keeper.told.remote(_POLL_S)
                if not self._take(told):
                    break
                names, self.fetched[node.id] = self.fetched.get(node.id, []), []
                if names:
                    await node.keeper.ask.remote({"do": "forget", "names": names})
                refused = self._parts.gateways.allowance()
                answer = await node.keeper.ask.remote({"do": "state", "refused": refused})
                self._under_way[node.id] = answer["under_way"]
        self._under_way.pop(node.id, None)
        with suppress(*_GONE):
            await self._limits.release.remote(node.id)

    def _take(self, told: list[dict[str, Any]]) -> bool:
        """Take what a node told; return whether it goes on."""
        parts = self._parts
        assert parts is not None
        goes_on = True
        for message in told:
            if "notice" in message:
                self._notice(message["notice"])
            elif "spent" in message:
                spent = wire.decode(message["spent"], _Spent)
                parts.cut_short(spent.key, spent.usage)
            elif "built" in message and parts.housing is not None:
                parts.housing.images.keep(message["built"], message["log"])
            elif "seen" in message and parts.listen is not None:
                key = wire.decode(message["seen"], TrialKey)
                execution = next(each for each in parts.plan.executions if each.key == (key.case, key.runner, key.arm))
                parts.listen(Trial(key=key, execution=execution), wire.decode_event(message["event"]))
            goes_on &= "ended" not in message
        return goes_on

    async def _hear_limits(self) -> None:
        """Show when a provider makes all nodes wait."""
        with suppress(*_GONE):
            while True:
                for message in await self._limits.told.remote():
                    self._notice(message)
                await anyio.sleep(_POLL_S)

    async def _end(self) -> None:
        """End the process of each node, and take what it still has to tell."""

        async def end(node: ClusterNode) -> None:
            with suppress(*_GONE):
                names = self.fetched.pop(node.id, [])
                try:
                    await node.keeper.ask.remote({"do": "forget", "names": names})
                except RuntimeError:
                    # It was killed. The next one removes what it left, and ends with its keeper.
                    await node.keeper.start.remote()
                    return
                with suppress(*_GONE):
                    # Its answer is that it has ended.
                    await node.keeper.ask.remote({"do": "end"})
                self._take(await node.keeper.told.remote(0.0))

        await asyncio.gather(*(end(node) for node in self.nodes.values()))


async def _asked(nodes: list[ClusterNode], message: Any) -> list[dict[str, Any]]:
    """Ask all *nodes*; raises for the first that has a problem."""
    answers: list[dict[str, Any]] = await asyncio.gather(*(node.keeper.ask.remote(message) for node in nodes))
    for node, answer in zip(nodes, answers, strict=True):
        if "problem" in answer:
            raise UsageError(f"node {node.address} cannot run these trials: {answer['problem']}")
    return answers


async def _answers(node: ClusterNode) -> bool:
    try:
        await node.keeper.ask.remote({"do": "state", "refused": None})
    except _GONE:
        return False
    return True
