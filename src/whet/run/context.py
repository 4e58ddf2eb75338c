"""What attempts need, made once for a run: sandbox, folders, graders, secrets to mask and paths to hide."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import anyio

from whet.agents.gateway_routes import network_of
from whet.dataclass import dataclass
from whet.errors import WorkspaceError
from whet.grade.grader import Grader, grader_class
from whet.ground.package_settings import bucket_keys, package_settings
from whet.ground.packages import Packages
from whet.ground.sandbox import Sandbox
from whet.ground.secrets import Masker, can_be_hidden, secret_values
from whet.ground.workspace import Workspace
from whet.ground.workspaces import Workspaces
from whet.model.request import Settings
from whet.model.run import Plan, RunInfo, Runner, Trial, TrialKey
from whet.model.seen import Event
from whet.model.session import Usage
from whet.model.suite import Ceilings, Suite
from whet.plan.settle import judge_key, user_keys
from whet.run.gateways import Gateways
from whet.run.scratch import SkillCopies, Unpacked

if TYPE_CHECKING:
    from whet.run.housing import Housing


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptParts:
    """What running one agent needs: the sandbox, the folders, the limits and what to hide."""

    suite: Suite
    run_dir: Path
    scratch: Path
    sandbox: Sandbox
    unpacked: Unpacked
    skill_copies: SkillCopies
    masker: Masker
    environ: Mapping[str, str]
    settings_dir: Path | None
    mounts: tuple[Path, ...]
    hidden: tuple[Path, ...]
    max_output_bytes: int
    model_silence_s: float
    gateways: Gateways
    ceilings: Ceilings = field(default_factory=Ceilings)
    # The runner whose agent judges, if one does.
    judge: Runner | None = None
    # Sees the events of sessions while they happen.
    listen: Callable[[Trial, Event], None] | None = None

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.run_dir.name

    def listener(self, trial: Trial) -> Callable[[Event], None] | None:
        """Return what sees the events of the session of *trial*."""
        return None if self.listen is None else partial(self.listen, trial)

    def hidden_from(self, trial: Trial) -> tuple[Path, ...]:
        """Return what to hide from *trial*; without the skill, that includes the skill itself."""
        skill = self.suite.skill
        if skill is None or trial.execution.skill is not None:
            return self.hidden
        # The manifest by itself as well: a folder that an agent is shown cannot be hidden as a whole.
        return (*self.hidden, *(place for root in skill.places for place in (root, root / "SKILL.md")))

    @property
    def apart(self) -> tuple[Path, ...]:
        """What no installation around a program may show: the suite, and the folder of the settings."""
        return (self.suite.source, *([self.settings_dir] if self.settings_dir else []))

    def keep_text(self, path: Path, text: str) -> None:
        """Write a text into the record, without secrets."""
        path.write_bytes(self.masker.data(text.encode("utf-8", "backslashreplace")))


@dataclass(slots=True)
class SharedGround:
    """The one workspace of all attempts, prepared once; if that fails, it fails for each of them."""

    lock: anyio.Lock = field(default_factory=anyio.Lock)
    ready: Workspace | None = None
    trouble: WorkspaceError | None = None
    # Whether a trial in it did not end as expected, so that people may want to look at it.
    went_wrong: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts(AttemptParts):
    """What a run has besides: its plan, its graders, and how it makes workspaces."""

    plan: Plan
    workspaces: Workspaces
    shared: SharedGround = field(default_factory=SharedGround)
    packages: Packages
    graders: Mapping[str, Grader]
    # Whether commands of checks have the network of the runner, or that of the machine.
    check_network: Literal["runner", "full"] = "runner"
    # Takes note of what an attempt had used when a signal ended it.
    cut_short: Callable[[TrialKey, Usage], None]
    # What its containers share, if it has any.
    housing: Housing | None = None
    # Whether a check decides on an untouched workspace, by case, arm and number, if that was asked.
    decides: dict[str, bool] = field(default_factory=dict)

    def reaches_all(self, trial: Trial) -> bool:
        """Return whether what runs what the agent left has a network: its agent had one, or the settings say so."""
        return self.check_network == "full" or network_of(trial.execution.runner) == "full"


def make_masker(settings: Settings, plan: Plan) -> Masker:
    """Return a masker of secrets: those of the environment, of runners, cases, packages and bootstrap commands."""
    runners = (dict(runner.options.get("env") or {}) for runner in settings.runners)
    bootstraps = (execution.workspace.bootstrap for execution in plan.executions[:1])
    # A suite gives most of its cases the same variables.
    cases = {tuple(sorted(execution.case.env.items())) for execution in plan.executions if execution.case.env}
    packages = {execution.workspace.package.env for execution in plan.executions if execution.workspace.package}
    given = (*runners, *map(dict, cases | packages), *(item.env for item in bootstraps if item))
    masker = Masker(secret_values(dict(os.environ), *given))
    key = judge_key(plan)
    if key is not None and can_be_hidden(key):
        masker.learn((key,))
    masker.learn(tuple(key for key in user_keys(plan) if can_be_hidden(key)))
    masker.learn(bucket_keys(package_settings(settings.packages), os.environ))
    return masker


# Names the folders in which the service that started this run keeps what belongs to others.
HIDDEN_VARIABLE = "WHET_SERVICE_HIDDEN"


def make_graders(suite: Suite, stack: ExitStack) -> dict[str, Grader]:
    """Make the graders of *suite*, and close them with *stack*."""
    graders: dict[str, Grader] = {}
    for name in sorted({check.grader for case in suite.cases for check in case.checks}):
        graders[name] = grader_class(name)(suite)
        stack.callback(graders[name].close)
    return graders


class Spending(Protocol):
    """Takes note of what an attempt had used when something ended it."""

    def add(self, key: TrialKey, usage: Usage) -> None:
        """Note what was used."""


class Asked(Protocol):
    """The part of a run's state that its attempts use; a node of a cluster has another than the run itself."""

    info: RunInfo
    plan: Plan
    settings: Settings

    @property
    def spent(self) -> Spending:
        """What takes note of attempts that were cut short."""

    def refusal(self) -> str | None:
        """Return why models may be asked no more."""

    def notice(self, message: str) -> None:
        """Show *message* to people."""


def make_run_parts(
    state: Asked, scratch: Path, sandbox: Sandbox, graders: dict[str, Grader], masker: Masker
) -> RunParts:
    """Make what all attempts of a run share."""
    plan, settings = state.plan, state.settings
    records = _records(plan, settings)
    own = (*records, state.info.run_dir, scratch)
    # A suite that no agent may see is not in copies of its project either.
    suite = tuple(path for path in plan.suite.held_out if path == plan.suite.source)
    common = _attempt_parts(settings, plan, state.info.run_dir, scratch, sandbox, masker)
    gateways: Gateways = common["gateways"]
    gateways.allowance, gateways.notice = state.refusal, state.notice
    return RunParts(
        **common,
        hidden=(*records, scratch, *_of_others(os.environ)),
        plan=plan,
        workspaces=Workspaces(scratch, own=(*own, *suite), most_files=settings.ceilings.files),
        packages=Packages(scratch, package_settings(settings.packages), dict(os.environ), own, _trim_skill),
        graders=graders,
        cut_short=state.spent.add,
        check_network=settings.check_network,
    )


def _trim_skill(folder: Path) -> None:
    # Only here: most packages bring no skill.
    from whet.suites.left_out import take_out  # noqa: PLC0415

    take_out(folder)


def make_attempt_parts(
    plan: Plan, settings: Settings, run_dir: Path, *, scratch: Path, sandbox: Sandbox
) -> AttemptParts:
    """Make what a single attempt needs outside of a run."""
    return AttemptParts(
        **_attempt_parts(settings, plan, run_dir, scratch, sandbox, make_masker(settings, plan)),
        hidden=(settings.output_dir, run_dir, scratch),
    )


def _attempt_parts(
    settings: Settings, plan: Plan, run_dir: Path, scratch: Path, sandbox: Sandbox, masker: Masker
) -> dict[str, Any]:
    return {
        "suite": plan.suite,
        "run_dir": run_dir,
        "scratch": scratch,
        "sandbox": sandbox,
        "unpacked": Unpacked(scratch, sandbox),
        "skill_copies": SkillCopies(scratch, plan.watermarks),
        "masker": masker,
        "environ": dict(os.environ),
        "settings_dir": settings.file.parent if settings.file else None,
        "mounts": settings.mounts,
        "max_output_bytes": settings.max_output_bytes,
        "model_silence_s": settings.model_silence_s,
        "ceilings": settings.ceilings,
        "judge": settings.judge_runner,
        "gateways": Gateways(settings, dict(os.environ), sandbox, masker),
    }


def _of_others(environ: Mapping[str, str]) -> tuple[Path, ...]:
    return tuple(Path(path) for path in environ.get(HIDDEN_VARIABLE, "").split(os.pathsep) if path)


def _records(plan: Plan, settings: Settings) -> tuple[Path, ...]:
    """Return where runs are recorded, now and by default: agents must not see what others did before."""
    templates = {each.workspace.template_dir for each in plan.executions if each.workspace.template_dir}
    homes = (settings.file.parent if settings.file else Path.cwd(), *sorted(templates))
    usual = dict.fromkeys(home / ".whet" for home in homes)
    return (settings.output_dir, *(path for path in usual if path.is_dir()))
