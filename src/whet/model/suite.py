"""Suites, cases, checks, limits and workspaces; the reader of a suite format settles all defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from whet.dataclass import dataclass
from whet.errors import Problem
from whet.model.grade import Location
from whet.model.task import ImageSpec, TaskSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of an attempt; `None` leaves the decision to the settings."""

    timeout_s: float | None = None
    budget_usd: float | None = None
    max_steps: int | None = None
    # These two hold for agents that go through the gateway.
    budget_tokens: int | None = None
    budget_requests: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapSpec:
    """A command that prepares a fresh workspace."""

    command: str
    args: tuple[str, ...] = ()
    timeout_s: float | None = None
    env: Mapping[str, str] = field(default_factory=dict)


WorkspaceMode = Literal["shared", "isolated"]
# The arms of suites for a skill: with it, and without.
SKILL, NO_SKILL = "skill", "no_skill"
# The label of checks of whether the skill was triggered.
TRIGGERED = "skill_triggered"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillUnderTest:
    """The skill that a run is about: its folder, what it calls itself, and a digest of all that is in it.

    `source` is where it was found, which is another folder if a part of that is not of the skill; `copies` are other
    places of it, perhaps in other versions.
    """

    path: Path
    source: Path
    name: str
    digest: str
    description: str = ""
    copies: tuple[Path, ...] = ()
    # What it is called in other arms.
    other_names: tuple[str, ...] = ()
    # What of its source no agent is given, as paths from there.
    left_out: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[Path, ...]:
        """All places of it."""
        return tuple(dict.fromkeys((self.path, self.source, *self.copies)))

    @property
    def names(self) -> frozenset[str]:
        """What agents may call it: some go by its folder, others by what it calls itself."""
        return frozenset((self.name, self.path.name, self.source.name, *self.other_names))


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeSkill:
    """A skill that is only described, to compete with the one under test."""

    name: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A folder or file that is put at a path of every fresh workspace.

    Without a source its text is written; without a text too, whatever is there is taken away. `wanted` is a fixture as
    its author wrote it, if it was not found: it is looked for in the skill under test, and without it nothing runs.
    """

    path: str
    source: Path | None = None
    text: str | None = None
    wanted: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSpec:
    """An archive or folder that workspaces begin as, without what is `held_out` until the agent is done.

    Paths are relative to its root. `required` must be there; `shown_at` says at which absolute paths a process sees
    folders of it besides, where the sandbox can do that. `env` is for its scripts. `skill` is the place of the skill,
    and the package may bring one. A local `ref` is seen from `base_dir`.
    """

    ref: str
    base_dir: Path
    sha256: str | None = None
    required: tuple[str, ...] = ()
    held_out: tuple[str, ...] = ()
    working_dir: str = "."
    shown_at: tuple[tuple[str, str], ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    skill: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceSpec:
    """Where attempts work: one folder for all, or a fresh one each; all paths absolute."""

    mode: WorkspaceMode = "isolated"
    cwd: Path | None = None
    template_dir: Path | None = None
    bootstrap: BootstrapSpec | None = None
    placed: tuple[Placed, ...] = ()
    # Skills that a fresh workspace must not hold anywhere, by the names of their folders.
    without_skills: tuple[str, ...] = ()
    # Instead of a template: it is fetched and unpacked when the first attempt needs it.
    package: PackageSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One condition that a case places on the evidence, decided by the grader of that name.

    One that is not `compared` asks about the skill itself: it cannot hold without the skill, so no lift counts it.
    """

    grader: str
    params: Mapping[str, Any] = field(default_factory=dict)
    label: str = "check"
    weight: float = 1.0
    compared: bool = True
    # The turn of the conversation after which it is decided; None: after the last one. If it fails, no further turn
    # is taken, unless it is `soft`.
    turn: int | None = None
    soft: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A person that a model plays: it answers the agent until it has what it wants, gives up, or takes no more turns.

    `model` outranks that of the settings.
    """

    goal: str
    facts: tuple[str, ...] = ()
    max_turns: int = 8
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """What passes a case: an answer, or a line of shell that runs in the place of the agent and prints its answer.

    With `folder` it is the folder `solution` of a task, or of each of its steps.
    """

    answer: str | None = None
    run: str | None = None
    folder: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One task and the checks that decide how it went.

    `model` outranks the runner's; `env` is for the agent and for commands of checks; `protect` names the files that
    are restored before a check runs a command; `bootstrap` replaces that of the workspace, and `workspace` that of the
    suite. `skills` are given in addition to the one under test, which is put at `skill_place`.
    `location` is where it is written. After the answer to `prompt`, a conversation goes on with the prompts of `then`,
    or with what `user` says.
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
    workspace: WorkspaceSpec | None = None
    weight: float = 1.0
    # The number of trials, whatever the settings say, and the only arms that it is run in.
    trials: int | None = None
    arms: tuple[str, ...] = ()
    # Whether a trial counts by its score in comparisons, and not by whether all its checks held.
    scored: bool = False
    # Whether its checks need an agent that did something.
    needs_agent: bool = True
    skills: tuple[Path, ...] = ()
    made_skills: tuple[MadeSkill, ...] = ()
    skill_place: str | None = None
    # For an audit; no agent sees it.
    solution: Solution | None = None
    # What commands of its checks may read besides the workspace.
    check_files: tuple[Path, ...] = ()
    # What its workspaces have besides what the suite or the settings give them.
    placed: tuple[Placed, ...] = ()
    location: Location | None = None
    # The image for its containers, whatever the runner and the settings say.
    image: ImageSpec | None = None
    # The environment that an attempt lives in as a whole, with its own verifier.
    task: TaskSpec | None = None
    then: tuple[str, ...] = ()
    user: User | None = None

    @property
    def last_checks(self) -> tuple[Check, ...]:
        """The checks that are decided at the end: all but those of the turns before the last one."""
        return tuple(check for check in self.checks if check.turn is None or check.turn > len(self.then))

    @property
    def converses(self) -> bool:
        """Whether the agent is asked more than once."""
        return bool(self.then) or self.user is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """An ordered set of cases and what they share; `warnings` are possible mistakes of its author.

    `skill` is what the arms `skill` and `no_skill` are about; `judge` says how a model that judges is asked, and `user`
    how one that plays users is.
    `held_out` is where the answers are on the disk: no agent may see it.
    """

    name: str
    cases: tuple[Case, ...]
    source: Path
    digest: str
    workspace: WorkspaceSpec | None = None
    arms: tuple[str, ...] = ("default",)
    description: str = ""
    # The time limit of cases, if neither the case nor the settings have one.
    usual_timeout_s: float | None = None
    warnings: tuple[Problem, ...] = ()
    # What the file says and no suite of ours can say.
    lost: tuple[Problem, ...] = ()
    skill: SkillUnderTest | None = None
    judge: Mapping[str, Any] = field(default_factory=dict)
    user: Mapping[str, Any] = field(default_factory=dict)
    held_out: tuple[Path, ...] = ()
    # The skill that is under test if you name none.
    usual_skill: Path | None = None

    @property
    def tags(self) -> tuple[str, ...]:
        """Every tag that a case declares, in the order first seen."""
        return tuple(dict.fromkeys(tag for case in self.cases for tag in case.tags))


# More than most projects have with all of their packages. whet lists, compares and keeps what an agent leaves, and
# that takes longer with each file.
MOST_FILES = 200_000
# Nobody needs more of them: the workspace, the home and the temporary folder of a command are on the disk.
_LARGEST_IN_MEMORY_MB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """The most that a process and its descendants may use of the machine; None: all of it."""

    memory_mb: int | None = None
    processes: int | None = None
    cpus: float | None = None
    # What a command may add to its folders; whet looks, so nothing of the system has to hold it.
    disk_mb: int | None = None
    # The files that it may add to them.
    files: int = MOST_FILES

    @property
    def in_memory_mb(self) -> int:
        """The size of a file system in memory, such as `/tmp` of a sandbox."""
        return min(each for each in (self.memory_mb, self.disk_mb, _LARGEST_IN_MEMORY_MB) if each is not None)

    def __bool__(self) -> bool:
        return any(value is not None for value in (self.memory_mb, self.processes, self.cpus))

    def words(self) -> tuple[str, ...]:
        """Return each that is set, such as "2,048 MB of memory"."""
        return (
            *([] if self.memory_mb is None else [f"{self.memory_mb:,} MB of memory"]),
            *([] if self.processes is None else [f"{self.processes:,} processes"]),
            *([] if self.cpus is None else [f"{self.cpus:g} CPU{'' if self.cpus == 1 else 's'}"]),
            *([] if self.disk_mb is None else [f"{self.disk_mb:,} MB of disk"]),
            *([] if self.files == MOST_FILES else [f"{self.files:,} new files"]),
        )
