"""What the environment of a task says: its variables, some of which it takes from this machine, and its limits."""

from __future__ import annotations

import re
from collections.abc import Mapping

from whet.errors import EnvironmentFailed
from whet.model.suite import Ceilings
from whet.model.task import TaskEnvironment

_FROM_HOST = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\}", re.DOTALL)


def from_host(env: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables with those of this machine filled in; raises `EnvironmentFailed` for one that is not set."""
    variables = {}
    for name, value in env.items():
        match = _FROM_HOST.fullmatch(value)
        if match is not None and match[1] not in environ and match[2] is None:
            raise EnvironmentFailed(f"variable {name} of the task is {value}, and {match[1]} is not set here")
        variables[name] = value if match is None else environ.get(match[1], match[2] or "")
    return variables


def wanted_from_host(env: Mapping[str, str], environ: Mapping[str, str]) -> set[str]:
    """Return which variables of this machine *env* takes: those without a default, and others that are set."""
    matches = (_FROM_HOST.fullmatch(value) for value in env.values())
    return {match[1] for match in matches if match is not None and (match[2] is None or match[1] in environ)}


def ceilings_of(environment: TaskEnvironment, usual: Ceilings) -> Ceilings:
    """Return what a container may use: what its task says, or else the settings."""
    return Ceilings(
        memory_mb=environment.memory_mb or usual.memory_mb,
        processes=usual.processes,
        cpus=environment.cpus or usual.cpus,
        disk_mb=environment.storage_mb or usual.disk_mb,
        files=usual.files,
    )
