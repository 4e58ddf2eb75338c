"""What attempts are carried out with, made once for a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Protocol

from whet.dataclass import dataclass
from whet.grade.grader import Grader
from whet.grade.python import PythonGrader
from whet.ground.package_settings import bucket_keys, package_settings
from whet.ground.packages import Packages
from whet.ground.sandbox import Sandbox
from whet.ground.secrets import Masker, secret_values
from whet.ground.workspaces import Workspaces
from whet.model import plugins
from whet.model.grade import FailureClass
from whet.model.request import Settings
from whet.model.run import Plan, Trial, TrialKey, TrialResult, folder_name
from whet.model.seen import Event
from whet.model.session import Usage
from whet.model.suite import NO_SKILL, Case, Ceilings, Suite
from whet.plan.settle import judge_key
from whet.run.run_state import UnderWay
from whet.run.scratch import Unpacked


class Classifier(Protocol):
    """Asks a case's author what class a failure belongs to."""

    async def classify(self, case: Case, result: TrialResult, *, timeout_s: float) -> FailureClass | None:
        """The class, or none; a `GraderError` where it fails to say anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The sandbox, the folders, the graders and the facts that every attempt of a run shares."""

    plan: Plan
    run_id: str
    run_dir: Path
    scratch: Path
    sandbox: Sandbox
    workspaces: Workspaces
    packages: Packages
    graders: Mapping[str, Grader]
    classifier: Classifier | None
    masker: Masker
    environ: Mapping[str, str]
    settings_dir: Path | None
    mounts: tuple[Path, ...]
    hidden: tuple[Path, ...]
    max_output_bytes: int
    model_silence_s: float
    unpacked: Unpacked
    ceilings: Ceilings = field(default_factory=Ceilings)
    # Who wants to see sessions while they happen.
    listen: Callable[[Trial, Event], None] | None = None
    # Told what an attempt had taken that a signal cut short.
    cut_short: Callable[[TrialKey, Usage], None] = lambda _key, _usage: None
    # Why the model of a runner was rejected, by runner: its other trials need not find out again.
    rejected: dict[str, str] = field(default_factory=dict)
    # Whether a check decides on an untouched workspace, by case, variant and number, as far as that had to be known.
    decides: dict[str, bool] = field(default_factory=dict)

    def listener(self, trial: Trial) -> Callable[[Event], None] | None:
        """Who is to be told what happens in the session of *trial*."""
        return None if self.listen is None else partial(self.listen, trial)

    def hidden_from(self, trial: Trial) -> tuple[Path, ...]:
        """What nobody may see in *trial*; without the skill, that is also the skill itself."""
        skill = self.plan.suite.skill
        if skill is None or trial.key.variant != NO_SKILL:
            return self.hidden
        # The manifest by itself as well: a folder that an agent is shown cannot be hidden as a whole.
        return (*self.hidden, *(place for root in skill.places for place in (root, root / "SKILL.md")))

    def keep_text(self, path: Path, text: str) -> None:
        """Put a text into the record, without secrets."""
        path.write_bytes(self.masker.data(text.encode("utf-8", "backslashreplace")))


def trial_folder(key: TrialKey) -> str:
    """Where the artifacts of a trial lie, below `trials/` or `workspaces/` of the run folder."""
    return f"{folder_name(key.case)}/{folder_name(key.runner)}/{folder_name(key.variant)}/{key.number}"


def make_masker(settings: Settings, plan: Plan) -> Masker:
    """Knows the values of secrets: ours, and those of runners, cases, packages and bootstrap commands."""
    runners = (dict(runner.options.get("env") or {}) for runner in settings.runners)
    bootstraps = (execution.workspace.bootstrap for execution in plan.executions[:1])
    # A suite gives most of its cases the same variables.
    cases = {tuple(sorted(execution.case.env.items())) for execution in plan.executions if execution.case.env}
    packages = {execution.workspace.package.env for execution in plan.executions if execution.workspace.package}
    given = (*runners, *map(dict, cases | packages), *(item.env for item in bootstraps if item))
    masker = Masker(secret_values(dict(os.environ), *given))
    key = judge_key(plan)
    masker.learn((*((key,) if key is not None else ()), *bucket_keys(package_settings(settings.packages), os.environ)))
    return masker


# Where a service that started us keeps what belongs to others; the settings may lie around it, which agents see.
HIDDEN_VARIABLE = "WHET_SERVICE_HIDDEN"


def make_graders(suite: Suite, stack: ExitStack) -> dict[str, Grader]:
    """Whoever decides the checks of *suite*, let go of with *stack*."""
    graders: dict[str, Grader] = {}
    for name in sorted({check.grader for case in suite.cases for check in case.checks}):
        graders[name] = plugins.find("graders", name)(suite)
        stack.callback(graders[name].close)
    return graders


def make_parts(
    under_way: UnderWay,
    settings: Settings,
    scratch: Path,
    *,
    sandbox: Sandbox,
    graders: dict[str, Grader],
    masker: Masker,
) -> Parts:
    """The sandbox, the folders, the graders and the facts that every attempt shares."""
    python = graders.get("python")
    records = _records(under_way.plan, settings)
    own = (*records, under_way.info.run_dir, scratch)
    return Parts(
        plan=under_way.plan,
        run_id=under_way.info.run_id,
        run_dir=under_way.info.run_dir,
        scratch=scratch,
        unpacked=Unpacked(scratch, sandbox),
        sandbox=sandbox,
        workspaces=Workspaces(scratch, own=own),
        packages=Packages(scratch, package_settings(settings.packages), dict(os.environ), own),
        graders=graders,
        classifier=python if isinstance(python, PythonGrader) else None,
        masker=masker,
        cut_short=under_way.spent.add,
        environ=dict(os.environ),
        settings_dir=settings.file.parent if settings.file else None,
        mounts=settings.mounts,
        hidden=(*records, scratch, *_of_others(os.environ)),
        max_output_bytes=settings.max_output_bytes,
        model_silence_s=settings.model_silence_s,
        ceilings=settings.ceilings,
    )


def _of_others(environ: Mapping[str, str]) -> tuple[Path, ...]:
    return tuple(Path(path) for path in environ.get(HIDDEN_VARIABLE, "").split(os.pathsep) if path)


def _records(plan: Plan, settings: Settings) -> tuple[Path, ...]:
    """Where runs are recorded, now and usually: what agents did before is nothing for those of this run to see."""
    templates = {each.workspace.template_dir for each in plan.executions if each.workspace.template_dir}
    homes = (settings.file.parent if settings.file else Path.cwd(), *sorted(templates))
    usual = dict.fromkeys(home / ".whet" for home in homes)
    return (settings.output_dir, *(path for path in usual if path.is_dir()))
