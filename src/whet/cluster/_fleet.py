"""The nodes of a cluster during a command: give them orders, listen to them, replace what is lost, and end them."""

from __future__ import annotations

import asyncio
import os
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.to_thread
import ray
from msgspec import Struct, field
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from whet.cluster._fleet_run import FleetRun, WaitingResult
from whet.cluster._nodes import ClusterNode, UnfitNodes, hello, introduce, living, open_nodes, slots
from whet.cluster._order import seal
from whet.cluster.node_actor import ProviderLimiter
from whet.errors import UsageError
from whet.plan.load import PlannedRun
from whet.run.context import RunContext
from whet.run.state import RunState

_ARCHIVE_PIECE = 4 * 1024 * 1024
_POLL_S = 1.0
_LOOK_S = 2.0
_MOST_FAILED = 3
_PAUSE_S = 0.5
_GONE = (ray.exceptions.RayError, RuntimeError)


class Fleet(Struct, kw_only=True):
    """The nodes that take part in the runs of one command."""

    environ: Mapping[str, str]
    # How many runs the command has.
    expected: int
    # The most requests and tokens in a minute of one provider, for all nodes together.
    most: tuple[int | None, int | None] = (None, None)
    token: str = field(default_factory=lambda: os.urandom(8).hex())
    nodes: dict[str, ClusterNode] = field(default_factory=dict)
    # Nodes that cannot take part: they joined later, or are not any more what they were.
    unfit: set[str] = field(default_factory=set)
    # By the folder of each run.
    runs: dict[Path, FleetRun] = field(default_factory=dict)
    # Files of which the content is here by now, by node: the run, and the name.
    fetched: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    _key: bytes = field(default_factory=lambda: os.urandom(32))
    _hellos: list[dict[str, Any]] = field(default_factory=list)
    _limits: Any = None
    # How often in a row a node could not be made ready.
    _failed: Counter[str] = field(default_factory=Counter)
    _opening: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    _listening: list[asyncio.Task[None]] = field(default_factory=list)

    def assemble(self, planned_run: PlannedRun, sandbox: str) -> None:
        """Look at every node as soon as all runs are known; raises if one cannot run their trials."""
        if self._limits is None:
            # With the driver: on a node that dies, all requests would wait for ever.
            this_node = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
            limits = ray.remote(ProviderLimiter).options(
                num_cpus=0, max_concurrency=10_000, scheduling_strategy=this_node
            )
            self._limits = limits.remote(*self.most)
        self._hellos.append(hello(sandbox, planned_run.settings, planned_run.plan))
        if len(self._hellos) == self.expected:
            nodes = open_nodes(living().values(), self.token, self._limits, self._hellos)
            self.nodes = {node.id: node for node in nodes}

    @asynccontextmanager
    async def at_work(self, state: RunState, context: RunContext) -> AsyncIterator[None]:
        """Give every node the order of a run, and listen to all of them until the first of the runs is over."""
        run = self.runs[context.run_dir] = FleetRun(state, context)
        first = len(self.runs) == 1
        await anyio.to_thread.run_sync(run.pack, self.environ)
        nodes = list(self.nodes.values())
        if first:
            await asyncio.gather(*introduce(nodes, self._key))
        await self._give(nodes, run)
        if len(self.runs) == self.expected:
            await self._begin(nodes)
        try:
            yield
        finally:
            # The first to begin is the last to end.
            if first:
                with anyio.CancelScope(shield=True):
                    await self._end()
                    for task in self._listening:
                        task.cancel()
                    await asyncio.gather(*self._listening, return_exceptions=True)
                ray.shutdown()

    async def _begin(self, nodes: list[ClusterNode]) -> None:
        """Let trials come to *nodes*, which have all orders by now."""
        await _ask_nodes(nodes, {"do": "begin"})
        for node in nodes:
            self._do(self._listen(node))
        if nodes and len(self._listening) == len(nodes):
            self._do(self._hear_limits())
            self._do(self._look_for_others())

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        # No task group: this context is entered inside of another one and left after it.
        self._listening.append(asyncio.ensure_future(work))

    async def _give(self, nodes: list[ClusterNode], run: FleetRun) -> None:
        """Send *nodes* the folder archives that they lack, each piece once, and the order."""
        answers = await _ask_nodes(nodes, {"do": "archives", "digests": list(run.archives)})
        for digest, (_, place) in run.archives.items():
            wanting = [node for node, answer in zip(nodes, answers, strict=True) if digest in answer["lacking"]]
            if wanting:
                await self._send(digest, place, wanting)
        order = {"do": "order", "order": seal(run.order, self._key), "run": run.token, "sandbox": run.sandbox}
        for node, answer in zip(nodes, await _ask_nodes(nodes, order), strict=True):
            run.spools[node.id] = answer["spool"]
            results_by_name = {name: WaitingResult(node, name, size) for name, size in answer["finished"].items()}
            # A driver that was killed had these, and could not say so any more.
            recorded_names = run.recorded() & results_by_name.keys() if results_by_name else set()
            self.fetched.setdefault(node.id, []).extend((run.token, name) for name in recorded_names)
            run.finished |= {
                name: waiting_result for name, waiting_result in results_by_name.items() if name not in recorded_names
            }

    async def _send(self, digest: str, place: Path, nodes: list[ClusterNode]) -> None:
        with place.open("rb") as file:
            piece = file.read(_ARCHIVE_PIECE)
            while True:
                following = file.read(_ARCHIVE_PIECE)
                message = {"do": "piece", "digest": digest, "piece": seal(piece, self._key), "last": not following}
                # One copy in the object store, which each node fetches from there.
                await _ask_nodes(nodes, ray.put(message))
                if not following:
                    return
                piece = following

    async def open(self, node_id: str) -> None:
        """Make a node ready that has no process of ours: it is new, or its process has ended."""
        async with self._opening[node_id]:
            open_node, node = self.nodes.get(node_id), living().get(node_id)
            if node_id in self.unfit or (open_node is not None and await _answers(open_node)):
                return
            try:
                if node is not None:
                    await self._open(node)
                    self._failed.pop(node_id, None)
                    if open_node is None:
                        self._notice(f"node {self.nodes[node_id].address} has joined, and takes part", "info")
                    return
            except (UsageError, *_GONE) as error:
                # Something may have been killed while it was opened.
                self._failed[node_id] += 1
                if isinstance(error, UnfitNodes) or self._failed[node_id] >= _MOST_FAILED:
                    self.unfit.add(node_id)
                    self._notice(f"{error}: no trial runs there")
                    return
            await anyio.sleep(_PAUSE_S)

    async def _open(self, node: Mapping[str, Any]) -> None:
        opening = partial(open_nodes, [node], self.token, self._limits, self._hellos)
        # A node that hangs must not keep a run from its end.
        nodes = await anyio.to_thread.run_sync(opening, abandon_on_cancel=True)
        await asyncio.gather(*introduce(nodes, self._key))
        for run in self.runs.values():
            await self._give(nodes, run)
        await self._begin(nodes)
        self.nodes[nodes[0].id] = nodes[0]

    async def _look_for_others(self) -> None:
        """Take nodes into the fleet that join during the run, and let as many trials run as there is room for then."""
        while True:
            await anyio.sleep(_LOOK_S)
            with suppress(*_GONE):
                nodes_by_id = await anyio.to_thread.run_sync(living)
                for node_id in nodes_by_id.keys() - self.nodes.keys() - self.unfit:
                    await self.open(node_id)
                for run in self.runs.values():
                    if run.settings.is_default("run.max_parallel"):
                        run.state.widen(slots(run.plan.executions, run.settings, among=self.nodes))

    def _notice(self, message: str, level: Literal["info", "warning"] = "warning") -> None:
        next(iter(self.runs.values())).state.notice(message, level)

    async def _listen(self, node: ClusterNode) -> None:
        """Take what a node tells, and tell it what it should know, until it is gone."""
        with suppress(*_GONE):
            while True:
                messages = await node.actor.said.remote(_POLL_S)
                if not self._take(messages):
                    break
                names, self.fetched[node.id] = self.fetched.get(node.id, []), []
                if names:
                    await node.actor.ask.remote({"do": "forget", "names": names})
                refusals = {run.token: run.state.refusal() for run in self.runs.values()}
                answer = await node.actor.ask.remote({"do": "state", "refused": refusals})
                for run in self.runs.values():
                    run.under_way[node.id] = answer["under_way"].get(run.token, 0.0)
        for run in self.runs.values():
            run.under_way.pop(node.id, None)
        with suppress(*_GONE):
            await self._limits.release.remote(node.id)

    def _take(self, messages: list[dict[str, Any]]) -> bool:
        """Take what a node says; return whether it goes on."""
        by_token = {run.token: run for run in self.runs.values()}
        for message in messages:
            if "run" in message:
                by_token[message["run"]].take(message)
        return not any("ended" in message for message in messages)

    async def _hear_limits(self) -> None:
        """Show when a provider makes all nodes wait."""
        with suppress(*_GONE):
            while True:
                for message in await self._limits.said.remote():
                    self._notice(message)
                await anyio.sleep(_POLL_S)

    async def _end(self) -> None:
        """End the process of each node, and take what it still has to tell."""

        async def end(node: ClusterNode) -> None:
            with suppress(*_GONE):
                names = self.fetched.pop(node.id, [])
                try:
                    await node.actor.ask.remote({"do": "forget", "names": names})
                except RuntimeError:
                    # The node process was killed. The next one removes what it left, and ends with its node actor.
                    await node.actor.start.remote()
                    return
                with suppress(*_GONE):
                    # The node process answers by ending.
                    await node.actor.ask.remote({"do": "end"})
                self._take(await node.actor.said.remote(0.0))

        await asyncio.gather(*(end(node) for node in self.nodes.values()))


async def _ask_nodes(nodes: list[ClusterNode], message: Any) -> list[dict[str, Any]]:
    """Ask all *nodes*; raises for the first that has a problem."""
    answers: list[dict[str, Any]] = await asyncio.gather(*(node.actor.ask.remote(message) for node in nodes))
    for node, answer in zip(nodes, answers, strict=True):
        if "problem" in answer:
            raise UsageError(f"node {node.address} cannot run these trials: {answer['problem']}")
    return answers


async def _answers(node: ClusterNode) -> bool:
    try:
        await node.actor.ask.remote({"do": "state", "refused": {}})
    except _GONE:
        return False
    return True
