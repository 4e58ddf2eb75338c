"""What is asked: suites, cases, checks, limits and workspaces, all defaults settled by whoever lowers into them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from whet.errors import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Ceilings of an attempt; `None` leaves the decision to whoever comes next."""

    timeout_s: float | None = None
    budget_usd: float | None = None
    max_steps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapSpec:
    """A command that readies a fresh workspace."""

    command: str
    args: tuple[str, ...] = ()
    timeout_s: float | None = None
    env: Mapping[str, str] = field(default_factory=dict)


WorkspaceMode = Literal["shared", "isolated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSpec:
    """An archive or folder that workspaces begin as, without what is `held_out` until the agent is done.

    Paths are relative to its root. `required` must be there; `shown_at` says at which absolute paths a process sees
    folders of it besides, where the sandbox can do that. A local `ref` is seen from `base_dir`.
    """

    ref: str
    base_dir: Path
    sha256: str | None = None
    required: tuple[str, ...] = ()
    held_out: tuple[str, ...] = ()
    working_dir: str = "."
    shown_at: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceSpec:
    """Where attempts work: one folder for all, or a fresh one each; all paths absolute."""

    mode: WorkspaceMode = "isolated"
    cwd: Path | None = None
    template_dir: Path | None = None
    bootstrap: BootstrapSpec | None = None
    # In the place of a template: it is fetched and unpacked when the first attempt needs it.
    package: PackageSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One condition that a case places on the evidence, decided by the grader of that name."""

    grader: str
    params: Mapping[str, Any] = field(default_factory=dict)
    label: str = "check"
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One task and the checks that decide how it went.

    `model` stands above the runner's; `env` is for the agent and for commands of checks; `protect` names the files that
    are put back before a check runs a command; `bootstrap` stands in the place of the workspace's.
    """

    id: str
    prompt: str
    checks: tuple[Check, ...]
    tags: tuple[str, ...] = ()
    limits: Limits = Limits()
    expected_fail: bool = False
    classify: Callable[[Any], Any] | None = None
    model: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    protect: tuple[str, ...] = ()
    bootstrap: BootstrapSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """An ordered set of cases and what they share; `warnings` is what looks unlike what its author meant."""

    name: str
    cases: tuple[Case, ...]
    source: Path
    digest: str
    workspace: WorkspaceSpec | None = None
    variants: tuple[str, ...] = ("default",)
    description: str = ""
    # The time limit of cases where nobody says any.
    usual_timeout_s: float | None = None
    warnings: tuple[Problem, ...] = ()

    @property
    def tags(self) -> tuple[str, ...]:
        """Every tag that a case declares, in the order first seen."""
        return tuple(dict.fromkeys(tag for case in self.cases for tag in case.tags))
