"""What attempts need, made once for a run: sandbox, folders, graders, secrets to mask and paths to hide."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import anyio
from msgspec import Struct, field

from whet.errors import WorkspaceError
from whet.gateway.gateways import Gateways
from whet.gateway.rate_limit import SharedLimits
from whet.gateway.routes import network_of
from whet.gateway.sessions import SessionSpending
from whet.grade.contract import Grader, grader_class
from whet.model.events import Event
from whet.model.request import Settings
from whet.model.run import Plan, Runner, Trial, TrialKey
from whet.model.session import Usage
from whet.model.suite import Ceilings, Suite
from whet.packages.settings import bucket_keys, package_settings
from whet.packages.task_packages import Packages
from whet.plan.judge import judge_keys, user_keys
from whet.run.scratch import SkillCopies, UnpackedPrograms
from whet.sandbox.contract import Sandbox
from whet.secrets import Masker, can_be_hidden, secret_values
from whet.workspace.contract import Workspace
from whet.workspace.make import Workspaces

if TYPE_CHECKING:
    from whet.run._containers import ContainerPool
    from whet.sandbox.container.task import TaskContainer


class SharedWorkspaceState(Struct):
    """The one workspace of all attempts, prepared once; if that fails, it fails for each of them."""

    lock: anyio.Lock = field(default_factory=anyio.Lock)
    ready: Workspace | None = None
    trouble: WorkspaceError | None = None
    # Whether a trial in it did not end as expected, so that people may want to look at it.
    went_wrong: bool = False


class RunLink(Struct, frozen=True, kw_only=True):
    """How attempts reach the run that they belong to; on a node of a cluster, that is on another machine."""

    # Says why models may be asked no more, if the money is spent.
    refusal: Callable[[], str | None] = lambda: None
    # Shows a message to people.
    notice: Callable[[str], object] = lambda _: None
    # Takes note of what an attempt had used when a signal ended it.
    cut_short: Callable[[TrialKey, Usage], None] = lambda *_: None
    # Sees the events of sessions while they happen.
    listen: Callable[[Trial, Event], None] | None = None
    # What sessions under way have spent.
    under_way: SessionSpending = field(default_factory=SessionSpending)
    # The limits that all nodes share, if this is one of several.
    shared: SharedLimits | None = None


class RunContext(Struct, frozen=True, kw_only=True):
    """What all attempts of a run share: the plan, the sandbox, the folders, the graders and what to hide."""

    plan: Plan
    run_dir: Path
    scratch: Path
    sandbox: Sandbox
    unpacked: UnpackedPrograms
    skill_copies: SkillCopies
    masker: Masker
    environ: Mapping[str, str]
    settings_dir: Path | None
    mounts: tuple[Path, ...]
    hidden: tuple[Path, ...]
    max_output_bytes: int
    model_silence_s: float
    run_to_end: bool
    gateways: Gateways
    workspaces: Workspaces
    packages: Packages
    graders: Mapping[str, Grader]
    link: RunLink
    ceilings: Ceilings = field(default_factory=Ceilings)
    # The runner whose agent judges, if one does.
    judge: Runner | None = None
    # Whether commands of checks have the network of the runner, or that of the machine.
    check_network: Literal["runner", "full"] = "runner"
    # What its containers share, if it has any, and the one that is the sandbox of this attempt at a task.
    container_pool: ContainerPool | None = None
    container: TaskContainer | None = None
    shared: SharedWorkspaceState = field(default_factory=SharedWorkspaceState)
    # Whether a check decides on an untouched workspace, by case, arm and number, if that was asked.
    decides: dict[str, bool] = field(default_factory=dict)

    @property
    def suite(self) -> Suite:
        """The suite."""
        return self.plan.suite

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.run_dir.name

    def listener(self, trial: Trial) -> Callable[[Event], None] | None:
        """Return what sees the events of the session of *trial*."""
        return None if self.link.listen is None else partial(self.link.listen, trial)

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

    def reaches_all(self, trial: Trial) -> bool:
        """Return whether what runs what the agent left has a network: its agent had one, or the settings say so."""
        return self.check_network == "full" or network_of(trial.execution.runner) == "full"

    async def release(self) -> None:
        """Release the graders, the gateway, the containers and the sandbox: no attempt needs them any more."""
        for grader in self.graders.values():
            await grader.release()
        await self.gateways.close()
        if self.container_pool is not None:
            await self.container_pool.finish()
        await self.sandbox.close()

    def keep_text(self, path: Path, text: str) -> None:
        """Write a text into the record, without secrets."""
        self.masker.write(path, text)


def make_masker(settings: Settings, plan: Plan) -> Masker:
    """Return a masker of secrets: of the environment, runners, arms, cases, packages and bootstrap commands."""
    runners = (dict(runner.options.get("env") or {}) for runner in settings.runners)
    bootstraps = (execution.workspace.bootstrap for execution in plan.executions[:1])
    # A suite gives most of its cases the same variables.
    cases = {tuple(sorted(execution.case.env.items())) for execution in plan.executions if execution.case.env}
    packages = {execution.workspace.package.env for execution in plan.executions if execution.workspace.package}
    arms = (dict(arm.env) for arm in plan.arms)
    environments = (*runners, *arms, *map(dict, cases | packages), *(item.env for item in bootstraps if item))
    model_keys = [*judge_keys(plan), *user_keys(plan)]
    keys_of_buckets = bucket_keys(package_settings(settings.packages), os.environ)
    named_values = secret_values(dict(os.environ), *environments)
    return Masker((*named_values, *filter(can_be_hidden, model_keys), *keys_of_buckets))


# Names the folders in which the service that started this run keeps what belongs to others.
HIDDEN_VARIABLE = "WHET_SERVICE_HIDDEN"


def make_graders(suite: Suite, stack: ExitStack) -> dict[str, Grader]:
    """Make the graders of *suite*, and close them with *stack*."""
    graders: dict[str, Grader] = {}
    for name in sorted({check.grader for case in suite.cases for check in case.checks}):
        graders[name] = grader_class(name)(suite)
        stack.callback(graders[name].close)
    return graders


class RunFolders(Struct, frozen=True, kw_only=True):
    """Where a run works: its record, and a folder for what is gone with the run."""

    run_dir: Path
    scratch: Path


def make_run_context(
    plan: Plan,
    settings: Settings,
    folders: RunFolders,
    *,
    sandbox: Sandbox,
    masker: Masker,
    graders: Mapping[str, Grader],
    link: RunLink,
    container_pool: ContainerPool | None = None,
    hidden_folders: tuple[Path, ...] | None = None,
) -> RunContext:
    """Make the context of a run; agents do not see *hidden_folders*, by default all records and other attempts."""
    run_dir, scratch, environ = folders.run_dir, folders.scratch, dict(os.environ)
    records = _records(plan, settings)
    run_folders = (*records, run_dir, scratch)
    # A suite that no agent may see is not in copies of its project either.
    suite = tuple(path for path in plan.suite.held_out if path == plan.suite.source)
    return RunContext(
        plan=plan,
        run_dir=run_dir,
        scratch=scratch,
        sandbox=sandbox,
        unpacked=UnpackedPrograms(scratch, sandbox),
        skill_copies=SkillCopies(scratch, plan.watermarks),
        masker=masker,
        environ=environ,
        settings_dir=settings.file.parent if settings.file else None,
        mounts=settings.mounts,
        hidden=(*records, scratch, *_of_others(os.environ)) if hidden_folders is None else hidden_folders,
        max_output_bytes=settings.max_output_bytes,
        model_silence_s=settings.model_silence_s,
        run_to_end=settings.run_to_end,
        gateways=Gateways(
            settings,
            environ,
            sandbox,
            masker,
            allowance=link.refusal,
            notice=link.notice,
            under_way=link.under_way,
            shared=link.shared,
        ),
        workspaces=Workspaces(scratch, own=(*run_folders, *suite), most_files=settings.ceilings.files),
        packages=Packages(scratch, package_settings(settings.packages), environ, run_folders, _trim_skill),
        graders=graders,
        link=link,
        ceilings=settings.ceilings,
        judge=settings.judge_runner,
        check_network=settings.check_network,
        container_pool=container_pool,
    )


def _trim_skill(folder: Path) -> None:
    # Only here: most packages bring no skill.
    from whet.suites.left_out import take_out

    take_out(folder)


def _of_others(environ: Mapping[str, str]) -> tuple[Path, ...]:
    return tuple(Path(path) for path in environ.get(HIDDEN_VARIABLE, "").split(os.pathsep) if path)


def _records(plan: Plan, settings: Settings) -> tuple[Path, ...]:
    """Return where runs are recorded, now and by default: agents must not see what others did before."""
    templates = {execution.workspace.template_dir for execution in plan.executions if execution.workspace.template_dir}
    homes = (settings.file.parent if settings.file else Path.cwd(), *sorted(templates))
    usual = dict.fromkeys(home / ".whet" for home in homes)
    return (settings.output_dir, *(path for path in usual if path.is_dir()))
