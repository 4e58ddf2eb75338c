"""What a run is asked to do: its settings, its selection and the request as it was typed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field

from whet.errors import UsageError
from whet.model.comparison import Until
from whet.model.run import Plan, Runner, ScheduleName
from whet.model.suite import AS_WRITTEN, Ceilings, Part, SuiteReading, WorkspaceSpec

# The sandboxes of whet; extensions add others.
SANDBOXES = ("auto", "bubblewrap", "container", "local")
# The origin of a setting that has its default.
BUILT_IN = "built-in"


# What the tables of the judge and of the user share.
_OF_MODELS = ("provider", "url", "model", "key_variable", "temperature", "timeout_ms", "retries")


class Settings(Struct, frozen=True, kw_only=True):
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
    sandbox: str
    # The program that makes containers, what they start from, and what is installed into that once.
    container: str | None
    image: str | None
    install: str | None
    # Whether the container of the next trial starts while the last one is graded.
    keep_warm: bool
    # Whether what an agent starts goes on while its work is graded, as tasks about services need it.
    keep_services: bool
    mounts: tuple[Path, ...]
    # Variables of this machine that fetched tasks may take.
    allow_env: tuple[str, ...]
    # The network of what grades: that of the runner, or that of the machine.
    check_network: Literal["runner", "full"]
    # Where exchanges with models are kept, and where they are played from.
    record_to: Path | None
    cassette: Path | None
    cassette_mode: Literal["strict", "new"]
    cassette_speed: Literal["instant", "real"]
    # The cluster that trials run on: "ray", or "ray://HEAD:PORT"; None: this machine.
    on: str | None
    # Whether controls go through the cases of a run, and void those that they pass.
    controls: bool
    # Whether trials that only ask which skills load go on after that is known.
    run_to_end: bool
    # All that arms may differ in; nothing: anything.
    vary: tuple[str, ...]
    timeout_s: float
    check_timeout_s: float
    command_timeout_s: float
    max_output_bytes: int
    model_silence_s: float
    budget_usd: float | None
    budget_tokens: int | None
    budget_requests: int | None
    ceilings: Ceilings
    runners: tuple[Runner, ...]
    snapshots: Mapping[str, Any] | None
    # Only what was given: the judge has the defaults.
    judge: Mapping[str, Any] = field(default_factory=dict)
    # The same for the model that plays users.
    user: Mapping[str, Any] = field(default_factory=dict)
    # Only what was given: the code that fetches packages has the defaults.
    packages: Mapping[str, Any] = field(default_factory=dict)
    # The same for the gateway.
    gateway: Mapping[str, Any] = field(default_factory=dict)
    # What trials take of a node of a cluster, by case or pattern of cases.
    resources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
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
    def store(self) -> Path:
        """The folder for what is kept besides the records, never one that may be the project's own."""
        return self.output_dir.parent if self.output_dir.parent.name == ".whet" else self.output_dir / ".whet"

    @property
    def judge_runner(self) -> Runner | None:
        """The runner whose agent judges, if the table `[judge]` names one that there is."""
        return next((runner for runner in self.runners if runner.id == self.judge.get("runner")), None)

    @property
    def judging(self) -> dict[str, Any]:
        """How the judge is asked: the table `[judge]`, with a cache next to the records unless it names one."""
        runner = self.judge_runner
        agent = {"runner_model": runner.model} if runner is not None and runner.model else {}
        return {"cache_dir": self.store / "judge", **agent, **self.judge}

    @property
    def playing(self) -> dict[str, Any]:
        """How the model that plays users is asked: the table `[user]`, or else that of the judge."""
        return dict(self.user) or {name: value for name, value in self.judge.items() if name in _OF_MODELS}

    @property
    def recording_folder(self) -> Path | None:
        """The folder that the run records cassettes into, if it does."""
        return self.record_to or (self.cassette if self.cassette_mode == "new" else None)

    @property
    def plays_all(self) -> bool:
        """Whether cassettes answer everything, so that no provider is asked and no key is needed."""
        return self.cassette is not None and self.cassette_mode != "new"

    def is_default(self, key: str) -> bool:
        """Return whether the setting at the dotted *key* has its default."""
        return self.origins.get(key) == BUILT_IN

    def is_for_this_run(self, key: str) -> bool:
        """Return whether a flag or a variable gave the setting at the dotted *key*: it then outranks the suite."""
        return self.origins.get(key, "").startswith(("flag ", "WHET_"))


_SHARD = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")


class Selection(Struct, frozen=True, kw_only=True):
    """Which executions of a suite are wanted; an empty part asks for all.

    `only` holds the (case, runner, arm) that failed last time.
    """

    cases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    splits: tuple[Part, ...] = ()
    runners: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()
    shard: tuple[int, int] | None = None
    only: frozenset[tuple[str, str, str]] | None = None


class RunRequest(Struct, frozen=True, kw_only=True):
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
    # Refuse a judge that is the agent under test, or of its family.
    strict_judge: bool = False
    # Start nothing more after the first failure.
    stop_early: bool = False
    verbose: bool = False
    # What was typed after `whet`.
    command: str = "run"
    # The words after it that ask for the same again, without those that select, and those that a resume must repeat.
    again: tuple[str, ...] = ()
    resume_options: tuple[str, ...] = ()
    # Besides those of the settings.
    more_reporters: tuple[str, ...] = ()
    # The skill under test, of a suite for one.
    skill: Path | None = None
    # What the suite is read with.
    reading: SuiteReading = AS_WRITTEN
    # The arms as they were typed, the baseline first; a plain name selects one that is defined elsewhere.
    arms: tuple[str, ...] = ()
    # How many more trials per case and arm a resumed run gets.
    add_trials: int | None = None
    # When to stop, instead of after a fixed number of trials.
    until: Until | None = None
    # Whether a gate gives the exit code.
    gate: bool = False
    # Run only what has changed since its last finished run.
    changed: bool = False
    # The runs whose failures selected what is run; `last_failed` finds them.
    selected_from: tuple[str, ...] = ()


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
    match = _SHARD.fullmatch(text.strip())
    number, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= number <= count:
        raise UsageError(f'a shard is written as 2/5, the second of five, not "{text}"')
    return number, count


def split_arms(options: Iterable[str]) -> tuple[str, ...]:
    """Return each arm that was typed; names without a definition may be a comma list."""
    return tuple(arm for text in options for arm in ((_place_arm(text),) if "=" in text else split_list((text,))))


def _place_arm(arm: str) -> str:
    """Return an arm with absolute paths: the run may be resumed in another folder."""
    name, _, spec = arm.partition("=")
    return f"{name}={','.join(map(_absolute, spec.split(',')))}"


def _absolute(piece: str) -> str:
    key, _, value = (part.strip() for part in piece.partition(":"))
    is_path = key == "prompt" or (key == "skill" and value != "none" and not value.startswith("git:"))
    path = str(Path(value).expanduser().absolute())
    # A comma would end the path.
    return f"{key}:{path}" if is_path and value and "," not in path else piece


def compares_answers(plan: Plan) -> bool:
    """Return whether a judge is asked to compare answers once all trials have ended: of two arms, or stored ones."""
    questions = (execution.case.pairwise for execution in plan.executions)
    return any(
        pairwise is not None and (len(plan.arms) > 1 or pairwise.reference is not None) for pairwise in questions
    )
