"""Settings as the rest of whet sees them: complete, checked, every path absolute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from whet.model.ceilings import Ceilings
from whet.model.run import Runner, ScheduleName
from whet.model.suite import WorkspaceSpec

SandboxName = Literal["auto", "bubblewrap", "local"]
SANDBOXES: tuple[SandboxName, ...] = ("auto", "bubblewrap", "local")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every effective setting; `origins` tells by dotted key where each came from."""

    file: Path | None
    cwd: Path | None
    output_dir: Path
    # None: the plan decides, because only it knows whether a workspace is shared.
    schedule: ScheduleName | None
    max_parallel: int
    trials: int
    retries: int
    max_steps: int | None
    max_cost_usd: float | None
    tags: tuple[str, ...]
    workspace: WorkspaceSpec | None
    reporters: tuple[str, ...]
    sandbox: SandboxName
    mounts: tuple[Path, ...]
    timeout_s: float
    check_timeout_s: float
    command_timeout_s: float
    max_output_bytes: int
    model_silence_s: float
    budget_usd: float | None
    ceilings: Ceilings
    runners: tuple[Runner, ...]
    snapshots: Mapping[str, Any] | None
    # What was said of the language model that judges; the judge has the defaults.
    judge: Mapping[str, Any] = field(default_factory=dict)
    # What was said of packages that are fetched; whoever fetches them has the defaults.
    packages: Mapping[str, Any] = field(default_factory=dict)
    # How much each part of the composite counts, as far as it was said.
    composite: Mapping[str, float] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    # The user's own file, where there is one; the folder in which the search for the project's ended, where it ended
    # before the top; and what a person should know about that search.
    user_file: Path | None = None
    searched_to: Path | None = None
    notices: tuple[str, ...] = ()
