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
from pathlib import Path
from typing import IO, TYPE_CHECKING

import anyio
import anyio.to_thread
import msgspec
import ray
from msgspec.structs import asdict, replace

from whet.cluster._archive import unpack
from whet.cluster._fleet import Fleet
from whet.cluster._fleet_run import FleetRun, WaitingResult
from whet.cluster._node_run import spool_name
from whet.cluster._nodes import connect, describe_cluster, resource_problems, resources_of, slots
from whet.cluster.node_actor import DONE, UNKNOWN, run_trial_task_here
from whet.errors import NodeLost, UsageError
from whet.model import codec
from whet.model.grade import Failure, FailureClass
from whet.model.run import AttemptResult, Trial, TrialResult
from whet.plan.load import PlannedRun
from whet.run.context import RunContext
from whet.run.state import RunState, now
from whet.sandbox.contract import Sandbox
from whet.secrets import Masker
from whet.workspace.copy import remove_tree

if TYPE_CHECKING:
    from whet.run.flow import RunKind

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


def refuse_unfit(runs: Sequence[PlannedRun]) -> None:
    """Raise if the runs of a command cannot be on one cluster."""
    (on, *other_clusters) = ons = dict.fromkeys(planned_run.settings.on for planned_run in runs)
    if other_clusters:
        cluster_names = " and ".join(cluster_name or "this machine" for cluster_name in ons)
        raise UsageError(
            f"the settings of these suites name {cluster_names}", hint="say with --on where all of them run"
        )
    if problems := dict.fromkeys(problem for planned_run in runs for problem in _not_on_clusters(planned_run)):
        raise UsageError("\n".join(f"--on {on}: {problem}" for problem in problems))


def on_cluster(runs: Sequence[tuple[PlannedRun, RunKind]]) -> list[tuple[PlannedRun, RunKind]]:
    """Return the runs of a command, each with as many trials at a time as there is room for, and how nodes run them."""
    on = runs[0][0].settings.on
    assert on is not None
    connect(on)
    if lacking := [line for run, _ in runs for line in resource_problems(run.plan.executions, run.settings)]:
        raise UsageError("\n".join(lacking), hint="add a node that has it, or ask for less in [resources]")
    gateways = [planned_run.settings.gateway for planned_run, _ in runs]
    most = [
        min((gateway[name] for gateway in gateways if gateway.get(name)), default=None)
        for name in ("max_requests", "max_tokens_per_minute")
    ]
    cluster = Cluster(fleet=Fleet(environ=dict(os.environ), expected=len(runs), most=(most[0], most[1])))
    return [_place_run(planned_run, kind, cluster) for planned_run, kind in runs]


def _place_run(planned_run: PlannedRun, kind: RunKind, cluster: Cluster) -> tuple[PlannedRun, RunKind]:
    settings, plan = planned_run.settings, planned_run.plan
    if settings.is_default("run.max_parallel"):
        plan = replace(plan, max_parallel=slots(plan.executions, settings))
    planned_run = replace(planned_run, plan=plan, cluster=describe_cluster())

    def ready(sandbox: Sandbox, masker: Masker) -> tuple[str, ...]:
        notes = kind.ready(sandbox, masker)
        cluster.fleet.assemble(planned_run, sandbox.name)
        return notes

    return planned_run, replace(kind, run_trial=cluster.run_trial, ready=ready, around=cluster.around)


def _not_on_clusters(planned_run: PlannedRun) -> Iterator[str]:
    """Yield what of a run needs this machine."""
    settings = planned_run.settings
    if any(execution.workspace.mode == "shared" for execution in planned_run.plan.executions):
        yield 'a shared workspace is on this machine: use workspace mode "isolated"'
    if settings.record_to is not None or (settings.cassette is not None and settings.cassette_mode == "new"):
        yield "cassettes are recorded on this machine: record without --on, and play with it"
    if "cache_dir" in settings.gateway:
        yield "gateway.cache_dir is a folder of this machine: leave it out"


class Cluster(msgspec.Struct, kw_only=True):
    """Brings trials to their results on the nodes of a fleet."""

    fleet: Fleet
    _room: asyncio.Semaphore = msgspec.field(default_factory=lambda: asyncio.Semaphore(_PIECES_UNDER_WAY))

    def around(self, state: RunState, context: RunContext) -> AbstractAsyncContextManager[None]:
        """Keep the fleet at work during the run."""
        return self.fleet.at_work(state, context)

    async def run_trial(self, context: RunContext, trial: Trial) -> TrialResult:
        """Have a node run the trial; one that loses its node is attempted on another."""
        run = self.fleet.runs[context.run_dir]
        lost_attempts: list[AttemptResult] = []
        started_at = now()
        while True:
            began = time.monotonic()
            waiting_result = run.finished.pop(spool_name(trial.key), None)
            try:
                if waiting_result is None:
                    waiting_result = await self._have_run(run, trial, len(lost_attempts) + 1)
                with anyio.CancelScope(shield=True):
                    result = await self._bring(run, trial, waiting_result)
            except NodeLost as error:
                lost_attempts.append(_lost_attempt(trial, len(lost_attempts) + 1, time.monotonic() - began, error))
                if len(lost_attempts) >= _MOST_LOST:
                    return _give_up(trial, lost_attempts, started_at, error)
                context.link.notice(f"{trial.key}: {error.message}; attempt {len(lost_attempts) + 1} begins")
                # What dies takes a while to be gone: the next attempt should not meet it again.
                await anyio.sleep(_PAUSE_S * 2 ** len(lost_attempts))
                continue
            return _with(lost_attempts, result)

    async def _have_run(self, run: FleetRun, trial: Trial, first: int) -> WaitingResult:
        """Submit the trial as a task, and wait for it; raises `NodeLost`."""
        fleet, request = self.fleet, {"run": run.token, "key": asdict(trial.key), "first": first}
        for _ in range(_MOST_TRIES):
            options = resources_of(trial.execution, run.settings)
            if fleet.unfit:
                options["label_selector"] = {_NODE_LABEL: f"!in({','.join(sorted(fleet.unfit))})"}
            task = ray.remote(run_trial_task_here).options(max_retries=0, **options).remote(fleet.token, request)
            try:
                answer = msgspec.msgpack.decode(await task)
            except asyncio.CancelledError:
                # The worker of the task is killed, and the node's process ends the trial as soon as it sees that.
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
            return WaitingResult(node, answer["name"], answer["size"], answer["data"])
        raise NodeLost("no node of the cluster could take it")

    async def _bring(self, run: FleetRun, trial: Trial, waiting_result: WaitingResult) -> TrialResult:
        """Write what a trial left into the record, as if it had run here; raises `NodeLost`."""
        context = run.context
        if waiting_result.data is not None:
            result = _write(io.BytesIO(waiting_result.data), context.run_dir, trial)
        else:
            with tempfile.TemporaryFile(dir=context.scratch) as file:
                await self._fetch(run, waiting_result, file)
                result = await anyio.to_thread.run_sync(_write, file, context.run_dir, trial)
        self.fleet.fetched.setdefault(waiting_result.node.id, []).append((run.token, waiting_result.name))
        return result

    async def _fetch(self, run: FleetRun, waiting_result: WaitingResult, file: IO[bytes]) -> None:
        """Fetch the file of a trial piece by piece."""
        path = f"{run.spools[waiting_result.node.id]}/{waiting_result.name}"
        for start in range(0, waiting_result.size, _PIECE):
            async with self._room:
                try:
                    piece = await waiting_result.node.actor.read.remote(path, start, _PIECE)
                except ray.exceptions.RayError as error:
                    where = waiting_result.node.address
                    raise NodeLost(f"node {where} was lost before all that it left was here") from error
            file.write(piece)
        file.seek(0)


def _write(file: IO[bytes], run_dir: Path, trial: Trial) -> TrialResult:
    """Write the folders of a trial, and return its result."""
    folder = trial.key.folder
    result = codec.decode(file.read(int.from_bytes(file.read(4))), TrialResult)
    with tempfile.TemporaryDirectory(dir=run_dir, prefix=".coming-") as coming:
        unpack(file, Path(coming))
        for part in _PARTS:
            if (came := Path(coming) / part).is_dir():
                place = run_dir / part / folder
                remove_tree(place)
                place.parent.mkdir(parents=True, exist_ok=True)
                came.rename(place)
    return result


def _lost_attempt(trial: Trial, number: int, duration_s: float, error: NodeLost) -> AttemptResult:
    return AttemptResult(
        number=number,
        status="errored",
        duration_s=duration_s,
        artifact_dir=f"trials/{trial.key.folder}/{number}",
        failure=Failure(phase=error.phase, code=error.code, cause=error.cause, message=error.message),
        value=None,
    )


def _with(lost_attempts: list[AttemptResult], result: TrialResult) -> TrialResult:
    """Return *result* with the attempts before it that lost their nodes."""
    if not lost_attempts:
        return result
    duration_s = result.duration_s + sum(attempt.duration_s for attempt in lost_attempts)
    return replace(result, attempts=(*lost_attempts, *result.attempts), duration_s=duration_s)


def _give_up(trial: Trial, lost_attempts: list[AttemptResult], started_at: str, error: NodeLost) -> TrialResult:
    last = lost_attempts[-1]
    return TrialResult(
        key=trial.key,
        status="errored",
        score=None,
        duration_s=sum(attempt.duration_s for attempt in lost_attempts),
        started_at=started_at,
        artifact_dir=last.artifact_dir,
        failure=last.failure,
        failure_class=FailureClass(id=error.class_id, label=error.class_label),
        attempts=tuple(lost_attempts),
    )
