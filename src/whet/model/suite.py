"""Suites, cases, checks, limits and workspaces; the reader of a suite format fills in all defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from msgspec import Struct, field

from whet.errors import Problem
from whet.model.grade import Location
from whet.model.task import ImageSpec, TaskSpec


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of an attempt; `None` leaves the decision to the settings."""

    timeout_s: float | None = None
    budget_usd: float | None = None
    max_steps: int | None = None
    # The next two hold for agents that go through the gateway.
    budget_tokens: int | None = None
    budget_requests: int | None = None


class BootstrapSpec(Struct, frozen=True, kw_only=True):
    """A command that prepares a fresh workspace."""

    command: str
    args: tuple[str, ...] = ()
    timeout_s: float | None = None
    env: Mapping[str, str] = field(default_factory=dict)


# What a case is for: changes are made by what practice shows, decided on what is held out, and told once at the end
# on what is sealed.
Part = Literal["practice", "held-out", "sealed"]
PARTS: tuple[Part, ...] = get_args(Part)
# Where a case comes from.
CaseSource = Literal["bug", "production", "written", "drafted"]
CASE_SOURCES: tuple[CaseSource, ...] = get_args(CaseSource)
WorkspaceMode = Literal["shared", "isolated"]
# The arms of suites for a skill: with it, and without.
SKILL, NO_SKILL = "skill", "no_skill"
# The label of checks of whether the skill was triggered.
TRIGGERED = "skill_triggered"


class SkillUnderTest(Struct, frozen=True, kw_only=True):
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
        """All places of the skill."""
        return tuple(dict.fromkeys((self.path, self.source, *self.copies)))

    @property
    def names(self) -> frozenset[str]:
        """The names that agents may use for the skill: some take its folder's name, others its own."""
        return frozenset((self.name, self.path.name, self.source.name, *self.other_names))


class MadeSkill(Struct, frozen=True, kw_only=True):
    """A skill that is only described, to compete with the one under test."""

    name: str
    description: str


class PlacedItem(Struct, frozen=True, kw_only=True):
    """A folder or file that is put at a path of every fresh workspace.

    Without a source its text is written; without a text too, whatever is there is taken away. `wanted` is a fixture as
    its author wrote it, if it was not found: it is looked for in the skill under test, and without it nothing runs.
    """

    path: str
    source: Path | None = None
    text: str | None = None
    wanted: str | None = None


class PackageSpec(Struct, frozen=True, kw_only=True):
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


class WorkspaceSpec(Struct, frozen=True, kw_only=True):
    """Where attempts work: one folder for all, or a fresh one each; all paths absolute."""

    mode: WorkspaceMode = "isolated"
    cwd: Path | None = None
    template_dir: Path | None = None
    bootstrap: BootstrapSpec | None = None
    placed: tuple[PlacedItem, ...] = ()
    # Skills that a fresh workspace must not hold anywhere, by the names of their folders.
    without_skills: tuple[str, ...] = ()
    # Instead of a template: it is fetched and unpacked when the first attempt needs it.
    package: PackageSpec | None = None


class CheckSet(Struct, frozen=True, kw_only=True):
    """Checks that decide together: their score has to reach the threshold, whatever the single ones say.

    `place` tells sets of one case apart.
    """

    place: str
    threshold: float


class Check(Struct, frozen=True, kw_only=True):
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
    part_of: CheckSet | None = None


class User(Struct, frozen=True, kw_only=True):
    """A person that a model plays: it answers the agent until it has what it wants, gives up, or takes no more turns.

    `model` outranks that of the settings.
    """

    goal: str
    facts: tuple[str, ...] = ()
    max_turns: int = 8
    model: str | None = None


class Pairwise(Struct, frozen=True, kw_only=True):
    """That a judge is to be asked which of two answers to a case is better: by which question, if not the usual one.

    The two are those of an arm and the baseline; with a `reference`, those of each arm and that stored answer.
    """

    question: str | None = None
    reference: str | None = None
    # Where it is stored, if it is not in the suite.
    reference_file: Path | None = None


class Solution(Struct, frozen=True, kw_only=True):
    """What passes a case: an answer, or a line of shell that runs in the place of the agent and prints its answer.

    With `folder` it is the folder `solution` of a task, or of each of its steps.
    """

    answer: str | None = None
    run: str | None = None
    folder: bool = False


class Case(Struct, frozen=True, kw_only=True):
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
    # From which score on a trial passes, whatever its single checks say, if those of weight 0 hold.
    pass_threshold: float | None = None
    # Whether its checks need an agent that did something.
    needs_agent: bool = True
    skills: tuple[Path, ...] = ()
    made_skills: tuple[MadeSkill, ...] = ()
    skill_place: str | None = None
    # For an audit; no agent sees it.
    solution: Solution | None = None
    # What a judge is asked of pairs of its answers; no agent sees it.
    pairwise: Pairwise | None = None
    # What commands of its checks may read besides the workspace.
    check_files: tuple[Path, ...] = ()
    # What its workspaces have besides what the suite or the settings give them.
    placed: tuple[PlacedItem, ...] = ()
    location: Location | None = None
    # The image for its containers, whatever the runner and the settings say.
    image: ImageSpec | None = None
    # The environment that an attempt lives in as a whole, with its own verifier.
    task: TaskSpec | None = None
    then: tuple[str, ...] = ()
    user: User | None = None
    # The checks of its author that no check here stands for, each with its place and the reason: it passes with less.
    lost_checks: tuple[str, ...] = ()
    # The part of the suite that it is in, by its own word or by the lock of the suite.
    split: Part | None = None
    source: CaseSource | None = None
    # Whether it asks or checks something else than when it was held out.
    edited: bool = False

    @property
    def last_checks(self) -> tuple[Check, ...]:
        """The checks that are decided at the end: all but those of the turns before the last one."""
        return tuple(check for check in self.checks if check.turn is None or check.turn > len(self.then))

    @property
    def converses(self) -> bool:
        """Whether the agent is asked more than once."""
        return bool(self.then) or self.user is not None


def parts_of(cases: Iterable[Case]) -> dict[str, Part]:
    """Return the part of each of *cases* that has one."""
    return {case.id: case.split for case in cases if case.split is not None}


def edited_of(cases: Iterable[Case]) -> tuple[str, ...]:
    """Return the ids of the cases that ask something else than when they were held out."""
    return tuple(case.id for case in cases if case.edited)


class SuiteReading(Struct, frozen=True, kw_only=True):
    """What a suite is read with besides its file: values for `${NAME}` in it, and what replaces its own defaults.

    With `no_skills` its cases bring none: the arms say which skills an agent has.
    """

    params: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    no_skills: bool = False


AS_WRITTEN = SuiteReading()


class Suite(Struct, frozen=True, kw_only=True):
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
    # What of that are whole cases: their ids, or where they are written.
    lost_cases: tuple[str, ...] = ()
    skill: SkillUnderTest | None = None
    judge: Mapping[str, Any] = field(default_factory=dict)
    user: Mapping[str, Any] = field(default_factory=dict)
    held_out: tuple[Path, ...] = ()
    # A digest of the code that cases share and that lies in other files than the suite.
    helpers: str = ""
    # The skill that is under test if you name none.
    usual_skill: Path | None = None

    @property
    def tags(self) -> tuple[str, ...]:
        """Every tag that a case declares, in the order first seen."""
        return tuple(dict.fromkeys(tag for case in self.cases for tag in case.tags))


# More than most projects have with all of their packages. whet lists, compares and keeps what an agent leaves, and
# that takes longer with each file.
MOST_FILES = 200_000
# Enough for any command: the workspace, the home and the temporary folder of a command are on the disk.
_LARGEST_IN_MEMORY_MB = 1024


class Ceilings(Struct, frozen=True, kw_only=True):
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
        return min(ceiling for ceiling in (self.memory_mb, self.disk_mb, _LARGEST_IN_MEMORY_MB) if ceiling is not None)

    def __bool__(self) -> bool:
        return any(value is not None for value in (self.memory_mb, self.processes, self.cpus))

    def words(self) -> tuple[str, ...]:
        """Return the limits that are set, such as "2,048 MB of memory"."""
        words: list[str] = []
        if self.memory_mb is not None:
            words.append(f"{self.memory_mb:,} MB of memory")
        if self.processes is not None:
            words.append(f"{self.processes:,} processes")
        if self.cpus is not None:
            words.append("1 CPU" if self.cpus == 1 else f"{self.cpus:g} CPUs")
        if self.disk_mb is not None:
            words.append(f"{self.disk_mb:,} MB of disk")
        if self.files != MOST_FILES:
            words.append(f"{self.files:,} new files")
        return tuple(words)
