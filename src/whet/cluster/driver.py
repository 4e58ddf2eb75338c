"""Run the trials of a run on the nodes of a Ray cluster: the driver's side.

A trial is a task of Ray with its resources, and holds them while the node's process runs it. What it leaves comes back
in pieces and is written here, so that everything after that is as if it had run here.
Import it only for a run with `--on`: Ray takes long to import.
"""

from __future__ import annotations

import asyncio
import io
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

import anyio
import anyio.to_thread
import msgspec
import ray

from whet.dataclass import dataclass
from whet.errors import NodeLost, UsageError
from whet.ground.copying import remove_tree
from whet.ground.parcels import unpack
from whet.ground.sandbox import Sandbox
from whet.ground.secrets import Masker
from whet.model import wire
from whet.model.grade import Failure, FailureClass
from whet.model.run import Attempt, Trial, TrialResult
from whet.plan.settle import Planned
from whet.run.cluster_nodes import connect, described, resource_problems, resources_of, slots
from whet.run.fleet import Fleet
from whet.run.fleet_run import FleetRun, Left
from whet.run.homes import trial_folder
from whet.run.keeper import DONE, UNKNOWN, hold_here
from whet.run.node_run import spool_name
from whet.run.parts import RunParts
from whet.run.run_state import RunState, now

if TYPE_CHECKING:
    from whet.run.flow import Approach

_PIECE = 512 * 1024
# No more than this many pieces of what trials left are on their way at a time.
_PIECES_UNDER_WAY = 16
# A trial is given up if it loses this many nodes: it may be what brings them down.
_MOST_LOST = 5
_MOST_TRIES = 50
_PAUSE_S = 0.25
_PARTS = ("trials", "workspaces")
# A label that Ray itself gives each node.
_NODE_LABEL = "ray.io/node-id"


def refuse_unfit(runs: Sequence[Planned]) -> None:
    """Raise if the runs of a command cannot be on one cluster."""
    (on, *others) = ons = dict.fromkeys(planned.settings.on for planned in runs)
    if others:
        listed = " and ".join(each or "this machine" for each in ons)
        raise UsageError(f"the settings of these suites name {listed}", hint="say with --on where all of them run")
    if problems := dict.fromkeys(problem for planned in runs for problem in _not_on_clusters(planned)):
        raise UsageError("\n".join(f"--on {on}: {problem}" for problem in problems))


def on_cluster(runs: Sequence[tuple[Planned, Approach]]) -> list[tuple[Planned, Approach]]:
    """Return the runs of a command, each with as many trials at a time as there is room for, and how nodes run them."""
    on = runs[0][0].settings.on
    assert on is not None
    connect(on)
    if lacking := [line for each, _ in runs for line in resource_problems(each.plan.executions, each.settings)]:
        raise UsageError("\n".join(lacking), hint="add a node that has it, or ask for less in [resources]")
    gateways = [planned.settings.gateway for planned, _ in runs]
    most = [
        min((given[name] for given in gateways if given.get(name)), default=None)
        for name in ("max_requests", "max_tokens_per_minute")
    ]
    cluster = Cluster(fleet=Fleet(environ=dict(os.environ), expected=len(runs), most=(most[0], most[1])))
    return [_placed(planned, approach, cluster) for planned, approach in runs]


def _placed(planned: Planned, approach: Approach, cluster: Cluster) -> tuple[Planned, Approach]:
    settings, plan = planned.settings, planned.plan
    if settings.is_default("run.max_parallel"):
        plan = replace(plan, max_parallel=slots(plan.executions, settings))
    planned = replace(planned, plan=plan, cluster=described())

    def ready(sandbox: Sandbox, masker: Masker) -> tuple[str, ...]:
        notes = approach.ready(sandbox, masker)
        cluster.fleet.assemble(planned, sandbox.name)
        return notes

    return planned, replace(approach, run_trial=cluster.run_trial, ready=ready, around=cluster.around)


def _not_on_clusters(planned: Planned) -> Iterator[str]:
    """Yield what of a run needs this machine."""
    settings = planned.settings
    if any(each.workspace.mode == "shared" for each in planned.plan.executions):
        yield 'a shared workspace is on this machine: use workspace mode "isolated"'
    if settings.record_to is not None or (settings.cassette is not None and settings.cassette_mode == "new"):
        yield "cassettes are recorded on this machine: record without --on, and play with it"
    if "cache_dir" in settings.gateway:
        yield "gateway.cache_dir is a folder of this machine: leave it out"


@dataclass(slots=True, kw_only=True)
class Cluster:
    """Brings trials to their results on the nodes of a fleet."""

    fleet: Fleet
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_PIECES_UNDER_WAY))

    def around(self, state: RunState, parts: RunParts) -> AbstractAsyncContextManager[None]:
        """Keep the fleet at work during the run."""
        return self.fleet.at_work(state, parts)

    async def run_trial(self, parts: RunParts, trial: Trial) -> TrialResult:
        """Have a node run the trial; one that loses its node is attempted on another."""
        run = self.fleet.runs[parts.run_dir]
        lost: list[Attempt] = []
        started_at = now()
        while True:
            began = time.monotonic()
            left = run.finished.pop(spool_name(trial.key), None)
            try:
                if left is None:
                    left = await self._have_run(run, trial, len(lost) + 1)
                with anyio.CancelScope(shield=True):
                    result = await self._bring(run, trial, left)
            except NodeLost as error:
                lost.append(_lost(trial, len(lost) + 1, time.monotonic() - began, error))
                if len(lost) >= _MOST_LOST:
                    return _given_up(trial, lost, started_at, error)
                parts.gateways.notice(f"{trial.key}: {error.message}; attempt {len(lost) + 1} begins")
                # What dies takes a while to be gone: the next attempt should not meet it again.
                await anyio.sleep(_PAUSE_S * 2 ** len(lost))
                continue
            return _with(lost, result)

    async def _have_run(self, run: FleetRun, trial: Trial, first: int) -> Left:
        """Submit the trial as a task, and wait for it; raises `NodeLost`."""
        fleet, asked = self.fleet, {"run": run.token, "key": asdict(trial.key), "first": first}
        for _ in range(_MOST_TRIES):
            options = resources_of(trial.execution, run.settings)
            if fleet.unfit:
                options["label_selector"] = {_NODE_LABEL: f"!in({','.join(sorted(fleet.unfit))})"}
            task = ray.remote(hold_here).options(max_retries=0, **options).remote(fleet.token, asked)
            try:
                answer = msgspec.msgpack.decode(await task)
            except asyncio.CancelledError:
                # Its worker is killed, and the node's process ends the trial as soon as it sees that.
                with suppress(ray.exceptions.RayError, ValueError):
                    ray.cancel(task, force=True)
                raise
            except ray.exceptions.RayError as error:
                raise NodeLost(f"its node was lost ({type(error).__name__})") from error
            if answer["state"] == UNKNOWN:
                await fleet.open(answer["node"])
                continue
            node = fleet.nodes.get(answer["node"])
            if answer["state"] != DONE or node is None:
                where = node.address if node else answer["node"]
                why = f": {answer['problem']}" if "problem" in answer else ""
                raise NodeLost(f"the process of whet on node {where} was lost{why}")
            return Left(node, answer["name"], answer["size"], answer["data"])
        raise NodeLost("no node of the cluster could take it")

    async def _bring(self, run: FleetRun, trial: Trial, left: Left) -> TrialResult:
        """Write what a trial left into the record, as if it had run here; raises `NodeLost`."""
        parts = run.parts
        if left.data is not None:
            result = _write(io.BytesIO(left.data), parts.run_dir, trial)
        else:
            with tempfile.TemporaryFile(dir=parts.scratch) as file:
                await self._fetch(run, left, file)
                result = await anyio.to_thread.run_sync(_write, file, parts.run_dir, trial)
        self.fleet.fetched.setdefault(left.node.id, []).append((run.token, left.name))
        return result

    async def _fetch(self, run: FleetRun, left: Left, file: IO[bytes]) -> None:
        """Fetch the file of a trial piece by piece."""
        path = f"{run.spools[left.node.id]}/{left.name}"
        for start in range(0, left.size, _PIECE):
            async with self._room:
                try:
                    piece = await left.node.keeper.read.remote(path, start, _PIECE)
                except ray.exceptions.RayError as error:
                    where = left.node.address
                    raise NodeLost(f"node {where} was lost before all that it left was here") from error
            file.write(piece)
        file.seek(0)


def _write(file: IO[bytes], run_dir: Path, trial: Trial) -> TrialResult:
    """Write the folders of a trial, and return its result."""
    folder = trial_folder(trial.key)
    result = wire.decode(file.read(int.from_bytes(file.read(4))), TrialResult)
    with tempfile.TemporaryDirectory(dir=run_dir, prefix=".coming-") as coming:
        unpack(file, Path(coming))
        for part in _PARTS:
            if (came := Path(coming) / part).is_dir():
                place = run_dir / part / folder
                remove_tree(place)
                place.parent.mkdir(parents=True, exist_ok=True)
                came.rename(place)
    return result


def _lost(trial: Trial, number: int, duration_s: float, error: NodeLost) -> Attempt:
    return Attempt(
        number=number,
        status="errored",
        duration_s=duration_s,
        artifact_dir=f"trials/{trial_folder(trial.key)}/{number}",
        failure=Failure(phase=error.phase, code=error.code, cause=error.cause, message=error.message),
        value=None,
    )


def _with(lost: list[Attempt], result: TrialResult) -> TrialResult:
    """Return *result* with the attempts before it that lost their nodes."""
    if not lost:
        return result
    duration_s = result.duration_s + sum(attempt.duration_s for attempt in lost)
    return replace(result, attempts=(*lost, *result.attempts), duration_s=duration_s)


def _given_up(trial: Trial, lost: list[Attempt], started_at: str, error: NodeLost) -> TrialResult:
    last = lost[-1]
    return TrialResult(
        key=trial.key,
        status="errored",
        score=None,
        duration_s=sum(attempt.duration_s for attempt in lost),
        started_at=started_at,
        artifact_dir=last.artifact_dir,
        failure=last.failure,
        failure_class=FailureClass(id=error.class_id, label=error.class_label),
        attempts=tuple(lost),
    )
