"""What a run is asked to do: its settings, its selection and the request as it was typed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal, get_args

from whet.dataclass import dataclass
from whet.errors import UsageError
from whet.model.run import Runner, ScheduleName
from whet.model.suite import Ceilings, WorkspaceSpec

SandboxName = Literal["auto", "bubblewrap", "local"]
SANDBOXES: tuple[SandboxName, ...] = get_args(SandboxName)
# The origin of a setting that has its default.
BUILT_IN = "built-in"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every effective setting; `origins` says by dotted key where each came from."""

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
    # Only what was given: the judge has the defaults.
    judge: Mapping[str, Any] = field(default_factory=dict)
    # Only what was given: the code that fetches packages has the defaults.
    packages: Mapping[str, Any] = field(default_factory=dict)
    # The weight of each part of the composite; only what was given.
    composite: Mapping[str, float] = field(default_factory=dict)
    # The arms that a run may be asked for, as they are written.
    arms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    # By dotted key, in the unit of the key. What looks secret is hidden.
    values: Mapping[str, Any] = field(default_factory=dict)
    user_file: Path | None = None
    # The folder in which the search for the project's file ended, if that is not the top of the file system.
    searched_to: Path | None = None
    # What a person should know about that search.
    notices: tuple[str, ...] = ()

    @property
    def judging(self) -> dict[str, Any]:
        """How the judge is asked: the table `[judge]`, with a cache next to the records unless it names one."""
        return {"cache_dir": self.output_dir.parent / "judge", **self.judge}

    def is_default(self, key: str) -> bool:
        """Return whether the setting at the dotted *key* has its default."""
        return self.origins.get(key) == BUILT_IN

    def is_for_this_run(self, key: str) -> bool:
        """Return whether a flag or a variable gave the setting at the dotted *key*: it then outranks the suite."""
        return self.origins.get(key, "").startswith(("flag ", "WHET_"))


_SHARD = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which executions of a suite are wanted; an empty part asks for all.

    `only` holds the (case, runner, arm) that failed last time.
    """

    cases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    runners: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()
    shard: tuple[int, int] | None = None
    only: frozenset[tuple[str, str, str]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What `whet run` was asked to do; `flags` holds setting overrides, only those that were given."""

    suite: Path | None
    flags: Mapping[str, Any]
    config_file: Path | None
    selection: Selection
    last_failed: bool
    dry_run: bool
    resume: str | None
    update_snapshots: bool = False
    # The model of every case, whatever the suite and the settings say.
    model: str | None = None
    # Work in the real folder instead of in copies.
    in_place: bool = False
    # Stop checking a trial at the first check that does not hold.
    fail_fast: bool = False
    # Treat warnings about the suite as errors.
    strict: bool = False
    verbose: bool = False
    # What was typed after `whet`.
    command: str = "run"
    # The words after it that ask for the same again, without those that select, and those that a resume must repeat.
    again: tuple[str, ...] = ()
    going_on: tuple[str, ...] = ()
    # Besides those of the settings.
    more_reporters: tuple[str, ...] = ()
    # The skill under test, of a suite for one.
    skill: Path | None = None
    # The arms as they were typed, the baseline first; a plain name selects one that is defined elsewhere.
    arms: tuple[str, ...] = ()
    # How many more trials per case and arm a resumed run gets.
    add_trials: int | None = None


def split_list(values: Iterable[str]) -> tuple[str, ...]:
    """Return the names in *values*, each of which may be a comma list; keeps the order, drops duplicates."""
    names: dict[str, None] = {}
    for value in values:
        for piece in value.split(","):
            if not piece.strip():
                raise UsageError(f'"{value}" has an empty name in it', hint='write names like "a,b"')
            names[piece.strip()] = None
    return tuple(names)


def parse_shard(text: str) -> tuple[int, int]:
    """Parse `2/5` as (2, 5)."""
    found = _SHARD.fullmatch(text.strip())
    number, count = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= count:
        raise UsageError(f'a shard reads like 2/5, the second of five, not "{text}"')
    return number, count
