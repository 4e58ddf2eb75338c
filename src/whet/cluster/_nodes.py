"""The nodes of a Ray cluster: find them, look at each before anything starts, and say what trials take of them."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Container, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import ray
from msgspec import Struct
from ray._private import worker as ray_worker
from ray._private.services import find_bootstrap_address
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from whet.cluster._order import new_key, roots_of, seal, shared_key
from whet.cluster.node import facts
from whet.cluster.node_actor import NodeActor
from whet.errors import UsageError
from whet.model.request import Settings
from whet.model.run import Execution, Plan
from whet.reading.hosts import LOCAL_CLUSTER, read_host
from whet.reading.text import count
from whet.sandbox.process.pool import reaper
from whet.sandbox.process.procfs import children

_CONNECT_S = 10.0
_ANSWER_S = 15.0
# In a process of its own: Ray waits for most of a minute, and lets no signal through while it does.
_ASK = """
import sys
from ray._private import services
from ray._raylet import GcsClient

head = GcsClient(address=sys.argv[1])
find = getattr(services, "get_node_to_connect_for_driver", None)
try:
    print(find(head, timeout_seconds=3).node_manager_address if find else "")
except RuntimeError:
    sys.exit(3)
"""
_NO_NODE_HERE = 3
_STARTING_S = 180.0
_MB = 1024 * 1024
# Ray listens on another address of the machine if it is given 127.0.0.1.
_LOOPBACK = "127.0.0.2"
_DRIVER_HINT = "start whet on a machine of the cluster, after `ray start --address=HEAD:PORT` on it"


class ClusterNode(Struct, kw_only=True):
    """A node that is ready for an order: its node actor, and where what trials left waits."""

    id: str
    address: str
    actor: Any
    public: bytes


class UnfitNodes(UsageError):
    """Nodes that are not what a run needs, and will not be if they are asked again."""


def connect(on: str) -> None:
    """Connect to the cluster that `--on` names, or find or start one on this machine; raises `UsageError`."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray's own words would come between those of reporters.
    common: dict[str, Any] = {"log_to_driver": False, "configure_logging": False, "logging_level": logging.ERROR}
    logging.getLogger("ray").setLevel(logging.ERROR)
    ray_worker._worker_logs_enabled = False  # noqa: SLF001 - no option keeps its errors off stdout
    if on != LOCAL_CLUSTER:
        _join(on, on.removeprefix("ray://"), common)
    elif (address := _cluster_here()) is not None:
        _join(on, address, common)
    else:
        _begin(address="local", include_dashboard=False, _node_ip_address=_LOOPBACK, **common)
        for pid in children(os.getpid()):
            reaper.adopt(pid)


def _cluster_here() -> str | None:
    """Return where the cluster listens that `RAY_ADDRESS` names, or that was last started here, if it still does.

    Ray's own search takes any cluster that has a process here, also one of another user.
    """
    address: str | None = os.environ.get("RAY_ADDRESS") or find_bootstrap_address(None)
    place = read_host(address) if address else None
    if place is None:
        return None
    try:
        with socket.create_connection(place, _CONNECT_S):
            return address
    except OSError:
        return None


def _join(on: str, address: str, common: dict[str, Any]) -> None:
    """Connect to the cluster whose head listens at *address*; raises `UsageError`."""
    host, port = read_host(address) or ("", 0)
    try:
        # Ray itself would wait for minutes.
        with socket.create_connection((host, port), _CONNECT_S):
            pass
        node_address = _ask_head(on, address)
        if host.startswith("127."):
            common["_node_ip_address"] = node_address or host
        _begin(address=address, **common)
    except OSError as error:
        # `ConnectionError` of Ray is one, too.
        raise UsageError(f"--on {on}: {_first_line(error)}", hint=_DRIVER_HINT) from error
    except (RuntimeError, ValueError, AssertionError, ray.exceptions.RayError) as error:
        raise UsageError(f"--on {on}: {_in_a_line(error)}", hint=_DRIVER_HINT) from error


def _begin(**options: Any) -> None:
    """Connect this process. Ray would exit at a SIGTERM, now and later: it interrupts here, and is ours again then."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**options)
    except SystemExit as error:
        raise KeyboardInterrupt from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _ask_head(on: str, address: str) -> str:
    """Return the address of the node on this machine, if Ray says it; raises `UsageError`.

    Ray refuses if no head of a cluster answers at *address*, or if no node of it is on this machine.
    """
    command = [sys.executable, "-P", "-c", _ASK, address]
    why = ""
    try:
        process = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ANSWER_S, check=False, errors="replace"
        )
        if process.returncode == 0:
            return process.stdout.strip()
        if process.returncode == _NO_NODE_HERE:
            raise UsageError(f"--on {on}: this machine is no node of that cluster", hint=_DRIVER_HINT)
        why = f": {lines[-1]}" if (lines := process.stderr.strip().splitlines()) else ""
    except subprocess.TimeoutExpired:
        pass
    raise UsageError(
        f"--on {on}: nothing there answers as the head of a Ray cluster{why}",
        hint="name the port of `ray start --head`, which is 6379 unless you chose another",
    )


def _in_a_line(error: BaseException) -> str:
    """Return Ray's whole message in one line: of clusters with another Python, the first line says nothing."""
    return " ".join(str(error).split()) or type(error).__name__


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def living() -> dict[str, dict[str, Any]]:
    """Return the nodes that Ray believes to be alive, by id."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return {node["NodeID"]: node for node in nodes if node["Alive"]}


def describe_cluster() -> str:
    """Return the address of the cluster and the number of its nodes, for people."""
    return f"ray://{ray.get_runtime_context().gcs_address}, {count(len(living()), 'node')}"


def start_node_actor(node: Mapping[str, Any], token: str, limits: Any) -> Any:
    """Start the node actor of a run on *node*, and there only."""
    placement = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    actor = ray.remote(NodeActor).options(num_cpus=0, max_concurrency=1000, scheduling_strategy=placement)
    return actor.remote(token, node["NodeID"], limits)


def hello(sandbox: str, settings: Settings, plan: Plan) -> dict[str, Any]:
    """Return the question what a node is and lacks."""
    runners = {execution.runner.id: execution.runner for execution in plan.executions}.values()
    programs = {
        program
        for runner in runners
        if isinstance(program := runner.options.get("command"), str) and "/" not in program and sandbox != "container"
    }
    roots = roots_of(plan, settings)
    mounts = {Path(path) for runner in runners for path in runner.options.get("mounts") or ()} | set(settings.mounts)
    # What travels is on every node.
    node_mounts = sorted(str(path) for path in mounts if not any(path.is_relative_to(root) for root in roots))
    return {"do": "hello", "sandbox": sandbox, "programs": sorted(programs), "mounts": node_mounts}


def open_nodes(
    nodes: Iterable[Mapping[str, Any]], token: str, limits: Any, hellos: Sequence[dict[str, Any]]
) -> list[ClusterNode]:
    """Start the process of each node, and raise one error with everything that keeps any of them from taking part."""
    actors = [(node, start_node_actor(node, token, limits)) for node in nodes]
    problems: list[str] = []
    unfit: list[str] = []
    ready_nodes: list[ClusterNode] = []
    starts = [(node, actor, actor.start.remote()) for node, actor in actors]
    for node, actor, starting in starts:
        where = f"node {node['NodeManagerAddress']}"
        try:
            ray.get(starting, timeout=_STARTING_S)
            answers = [ray.get(actor.ask.remote(hello), timeout=_STARTING_S) for hello in hellos]
        except (ray.exceptions.RayError, RuntimeError) as error:
            # Ray takes a while to notice that a node is gone; such a node is no problem.
            if node["NodeID"] in living():
                problems.append(f"{where} cannot run whet: {_cause(error)}")
            ray.kill(actor)
            continue
        wrong = [node_problem(answer, hello["sandbox"]) for answer, hello in zip(answers, hellos, strict=True)]
        if any(wrong):
            unfit += [f"{where} {problem}" for problem in dict.fromkeys(wrong) if problem]
            # The process of the node ends with its actor.
            ray.kill(actor)
            continue
        reaper.adopt(answers[0]["pid"])
        public = answers[0]["public"]
        ready_nodes.append(
            ClusterNode(id=node["NodeID"], address=node["NodeManagerAddress"], actor=actor, public=public)
        )
    if problems or unfit:
        kind = UsageError if problems else UnfitNodes
        raise kind("\n".join((*problems, *unfit)), hint="make all nodes alike, or take such nodes out of the cluster")
    if not ready_nodes:
        raise UsageError("the cluster has no node that is alive")
    return ready_nodes


def node_problem(answer: Mapping[str, Any], sandbox: str) -> str | None:
    """Return what keeps a node from taking part in a run, if something does."""
    if "problem" in answer:
        return f"cannot run these trials: {answer['problem']}"
    local_facts = facts()
    for name, words in (("whet", "whet"), ("python", "Python")):
        if answer[name] != local_facts[name]:
            return f"has {words} {answer[name]}, and this machine has {local_facts[name]}"
    if answer["sandbox"] != sandbox:
        return f"has no {sandbox}: its agents would run in the sandbox {answer['sandbox']}"
    if answer["lacking"]:
        return f"lacks {', '.join(answer['lacking'])}"
    return None


def _cause(error: BaseException) -> str:
    """Return the last line of what a task of Ray says, which is the error itself."""
    text = str(getattr(error, "cause", None) or error).strip()
    return text.splitlines()[-1] if text else type(error).__name__


def introduce(nodes: Iterable[ClusterNode], key: bytes) -> list[Any]:
    """Give each node the key of the run, sealed for its process alone."""
    private, public = new_key()
    return [
        node.actor.ask.remote({"do": "key", "public": public, "key": seal(key, shared_key(private, node.public))})
        for node in nodes
    ]


def resources_of(execution: Execution, settings: Settings) -> dict[str, Any]:
    """Return what a trial takes of a node, as Ray takes it: the case decides, then runner, task and ceilings."""
    resources: dict[str, Any] = {"cpus": settings.ceilings.cpus or 1, "memory_mb": settings.ceilings.memory_mb}
    custom: dict[str, float] = {}
    task = execution.case.task.environment if execution.case.task else None
    task_resources: dict[str, Any] = {"cpus": task.cpus, "memory_mb": task.memory_mb} if task else {}
    by_case = [table for name, table in settings.resources.items() if fnmatchcase(execution.case.id, name)]
    for table in (task_resources, execution.runner.options.get("resources") or {}, *by_case):
        resources |= {name: value for name, value in table.items() if name != "custom" and value is not None}
        custom |= table.get("custom") or {}
    memory = {"memory": resources["memory_mb"] * _MB} if resources["memory_mb"] else {}
    return {"num_cpus": resources["cpus"], **memory, "resources": custom}


def _amounts(resources: Mapping[str, Any]) -> dict[str, float]:
    amounts = {"CPU": resources["num_cpus"], "memory": resources.get("memory", 0), **resources["resources"]}
    return {name: float(amount) for name, amount in amounts.items() if amount}


def resource_problems(executions: Iterable[Execution], settings: Settings) -> list[str]:
    """Return a sentence for everything that executions need and no node has, with the first of these executions."""
    nodes = [node["Resources"] for node in living().values()]
    lacking: dict[str, list[str]] = {}
    for execution in executions:
        amounts = _amounts(resources_of(execution, settings))
        if not any(all(node.get(name, 0) >= amount for name, amount in amounts.items()) for node in nodes):
            resource_text = ", ".join(f"{name} {amount:g}" for name, amount in amounts.items())
            lacking.setdefault(resource_text, []).append(f"{execution.case.id} on {execution.runner.id}")
    return [f"{_first_of(names)}: no node has {resource_text}" for resource_text, names in lacking.items()]


def _first_of(names: list[str]) -> str:
    other_count = len(set(names)) - 1
    return f"{names[0]} and {other_count:,} more" if other_count else names[0]


def slots(executions: Iterable[Execution], settings: Settings, among: Container[str] | None = None) -> int:
    """Return how many trials the cluster runs at a time, by the CPUs that the largest of them takes."""
    most = max(resources_of(execution, settings)["num_cpus"] for execution in executions)
    nodes = [node for node_id, node in living().items() if among is None or node_id in among]
    return max(1, sum(int(node["Resources"].get("CPU", 0) / (most or 0.1)) for node in nodes))
