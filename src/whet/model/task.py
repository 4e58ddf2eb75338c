"""Tasks in containers: the image, the environment that a whole attempt lives in, its verifier and its steps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

RewardStrategy = Literal["mean", "final"]
# As registries know it, so neither an option nor a path: an engine would take `-v/:/x` and `dir:/x` for these.
_IMAGE_NAME = (
    r"(?:(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?/)?"
    r"[a-z0-9]+(?:(?:\.|_{1,2}|-+|/)[a-z0-9]+)*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)


def is_image_name(text: str) -> bool:
    """Return whether *text* can be the name of an image."""
    return re.fullmatch(_IMAGE_NAME, text) is not None


class ImageSpec(Struct, frozen=True, kw_only=True):
    """What a container starts from: an image by its name, or a folder with a Dockerfile that it is built from.

    `install` is a line of shell that adds something to it, once.
    """

    name: str | None = None
    folder: Path | None = None
    install: str | None = None
    build_timeout_s: float = 1800.0

    @classmethod
    def of(cls, text: str, install: str | None = None) -> ImageSpec:
        """Return the image that settings or a suite name: an absolute path is a folder, anything else a name."""
        return cls(folder=Path(text), install=install) if text.startswith("/") else cls(name=text, install=install)


class Healthcheck(Struct, frozen=True, kw_only=True):
    """A line of shell that ends with 0 once an environment is ready."""

    command: str
    interval_s: float = 5.0
    timeout_s: float = 30.0
    start_period_s: float = 0.0
    start_interval_s: float = 5.0
    retries: int = 3


class TaskEnvironment(Struct, frozen=True, kw_only=True):
    """A container as a task names it; a variable may be `${NAME}` or `${NAME:-default}` of this machine."""

    image: ImageSpec
    workdir: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    network: bool = True
    cpus: float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    healthcheck: Healthcheck | None = None


class Collect(Struct, frozen=True, kw_only=True):
    """A line of shell that runs after the agent and before anything is taken out of its container."""

    command: str
    timeout_s: float = 60.0
    user: str | None = None


class TaskVerifier(Struct, frozen=True, kw_only=True):
    """What decides: the scripts of `tests`, later folders over earlier ones, or an environment that has its own."""

    tests: tuple[Path, ...] = ()
    timeout_s: float = 600.0
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    network: bool | None = None
    environment: TaskEnvironment | None = None
    artifacts: tuple[str, ...] = ()
    collect: tuple[Collect, ...] = ()


class TaskStep(Struct, frozen=True, kw_only=True):
    """One of several prompts in one environment: what is put there before it, and what decides afterwards.

    `least` is what its rewards must reach for the next step to begin.
    """

    name: str
    verifier: TaskVerifier
    workdir: Path | None = None
    healthcheck: Healthcheck | None = None
    solution: Path | None = None
    least: Mapping[str, float] = field(default_factory=dict)


class TaskSpec(Struct, frozen=True, kw_only=True):
    """A task of Harbor's layout, where it lies; without steps of its own it has one, without a name."""

    folder: Path
    environment: TaskEnvironment
    steps: tuple[TaskStep, ...]
    user: str | None = None
    network: bool | None = None
    strategy: RewardStrategy = "mean"
    solution_env: Mapping[str, str] = field(default_factory=dict)

    @property
    def agent_network(self) -> bool:
        """Whether the agent has the network."""
        return self.environment.network if self.network is None else self.network
