"""What attempts are carried out with, made once for a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from whet import plugins
from whet.config import Settings
from whet.engine.parts import Parts
from whet.engine.unpack import Unpacked
from whet.grade.base import Grader
from whet.grade.python import PythonGrader
from whet.mask import Masker, secret_values
from whet.model.run import Plan
from whet.model.suite import Suite
from whet.packages.prepare import Packages
from whet.packages.settings import bucket_keys, package_settings
from whet.pipeline.judge import judge_key
from whet.pipeline.under_way import UnderWay
from whet.sandbox.base import Sandbox
from whet.workspace import Workspaces


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
