"""Read task.toml of a Harbor task, versions 1.0 to 1.4, and note what a case cannot say."""

from __future__ import annotations

import os
import posixpath
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whet.ground.packages import path_problem
from whet.model.eval_cases import EvalSuite


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Something of a task that the suite cannot say; *task* is empty if it concerns all of them."""

    task: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The suite, what it lacks, and the tasks that could not become cases at all, by name with the reason."""

    suite: EvalSuite
    lost: tuple[Lost, ...] = ()
    left_out: tuple[Lost, ...] = ()


@dataclass(slots=True)
class Losses:
    """Collects what is lost of one task."""

    task: str
    found: list[Lost] = field(default_factory=list)

    def add(self, what: str) -> None:
        """Note something that is not carried over."""
        self.found.append(Lost(task=self.task, what=what))


def seen_from(path: Path, folder: Path) -> str:
    """*path* as a suite in *folder* refers to it."""
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


_FROM_HOST = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\}", re.DOTALL)
# Keys that a case has no word for, with what it means that they are left out.
_LOST: dict[tuple[str, ...], str] = {
    ("artifacts",): "artifacts: only what the verifier writes into its logs is kept",
    ("agent", "user"): "agent.user: the agent runs as you",
    ("agent", "network_mode"): "agent.network_mode: the runner says whether its agent has a network",
    ("verifier", "network_mode"): "verifier.network_mode: the verifier has the network of the environment",
    ("verifier", "user"): "verifier.user: the verifier runs as you",
    ("verifier", "collect"): "verifier.collect: its commands are not run",
    ("environment", "docker_image"): "environment.docker_image: programs are those of this machine",
    ("environment", "gpus"): "environment.gpus: no GPU is set aside",
    ("environment", "gpu_types"): "environment.gpu_types: no GPU is set aside",
    ("environment", "tpu"): "environment.tpu: no TPU is set aside",
    ("environment", "cpus"): "environment.cpus: set defaults.max_cpus",
    ("environment", "memory_mb"): "environment.memory_mb: set defaults.max_memory_mb",
    ("environment", "memory"): "environment.memory: set defaults.max_memory_mb",
    ("environment", "storage_mb"): "environment.storage_mb: the disk is not limited",
    ("environment", "storage"): "environment.storage: the disk is not limited",
    ("environment", "healthcheck"): "environment.healthcheck: it is not asked",
    ("environment", "mcp_servers"): "environment.mcp_servers: they are not started",
    ("environment", "skills_dir"): "environment.skills_dir: name the skill under test with --skill",
    ("solution", "env"): "solution.env: the solution gets the variables of the verifier",
}
_VERSIONS = ("1.0", "1.1", "1.2", "1.3", "1.4")
_NETWORKS = {"public": True, "no-network": False}


class BadTask(ValueError):
    """A task that cannot become a case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFile:
    """The part of task.toml that a case can say."""

    name: str | None
    tags: tuple[str, ...]
    source: str | None
    verifier_timeout_s: float | None
    agent_timeout_s: float | None
    workdir: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    network: bool = False


def read_task_file(path: Path, losses: Losses) -> TaskFile:
    """Read *path*; what a case cannot say is added to *losses*."""
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadTask(f"{path.name} cannot be read: {error}") from error
    _refuse(data)
    version = str(data.get("schema_version", data.get("version", _VERSIONS[-1])))
    if version not in _VERSIONS:
        losses.add(f"schema_version {version}: it is read as {_VERSIONS[-1]}, and what is new in it is not known")
    for keys, meaning in _LOST.items():
        if _at(data, *keys):
            losses.add(meaning)
    task, metadata = _table(data, "task"), _table(data, "metadata")
    return TaskFile(
        name=_text(task.get("name")),
        tags=_tags(task, metadata),
        source=_text(data.get("source")) or _text(task.get("name")),
        verifier_timeout_s=_seconds(_at(data, "verifier", "timeout_sec")),
        agent_timeout_s=_seconds(_at(data, "agent", "timeout_sec")),
        workdir=_workdir(_table(data, "environment"), losses),
        env=_env(_table(data, "environment"), losses) | _env(_table(data, "verifier"), losses),
        network=_network(_table(data, "environment"), losses),
    )


def _refuse(data: dict[str, Any]) -> None:
    if data.get("steps"):
        raise BadTask("it has several steps, and a case has one")
    if str(_at(data, "environment", "os") or "linux").lower() != "linux":
        raise BadTask("it is made for Windows")
    verifier = _table(data, "verifier")
    if verifier.get("environment_mode") == "separate" or "environment" in verifier:
        raise BadTask("its verifier wants a container of its own (environment_mode separate)")


def _network(environment: dict[str, Any], losses: Losses) -> bool:
    mode = environment.get("network_mode")
    if mode is None and isinstance(environment.get("allow_internet"), bool):
        return bool(environment["allow_internet"])
    if mode is None:
        losses.add("the network: the task does not say, so its verifier has none; resource_hints.network gives it")
        return False
    if mode not in _NETWORKS:
        losses.add(f"environment.network_mode {mode}: hosts are not allowed one by one, its verifier has no network")
        return False
    return _NETWORKS[mode]


def _workdir(environment: dict[str, Any], losses: Losses) -> str | None:
    given = _text(environment.get("workdir"))
    if given is not None and (problem := path_problem(given)):
        losses.add(f"environment.workdir {given}: {problem}")
        return None
    return given and posixpath.normpath(given)


def _env(table: dict[str, Any], losses: Losses) -> dict[str, str]:
    """Variables with a value; one that is to come from the machine of the user is not written into a suite."""
    found: dict[str, str] = {}
    for name, value in _table(table, "env").items():
        match = _FROM_HOST.fullmatch(str(value))
        if match is None:
            found[name] = str(value)
        elif match[2] is not None:
            found[name] = match[2]
        else:
            losses.add(f"variable {name}: it is to come from your environment ({match[1]}), which scripts do not see")
    return found


def _tags(task: dict[str, Any], metadata: dict[str, Any]) -> tuple[str, ...]:
    listed = [*_list(metadata.get("tags")), *_list(task.get("keywords"))]
    words = [*listed, metadata.get("category"), metadata.get("difficulty")]
    return tuple(dict.fromkeys(word for word in words if isinstance(word, str) and word.strip()))


def _at(data: dict[str, Any], *keys: str) -> Any:
    found: Any = data
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _table(data: dict[str, Any], name: str) -> dict[str, Any]:
    found = data.get(name)
    return found if isinstance(found, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _seconds(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None
