"""Load the settings of a run, plan it, and find everything that is wrong before anything starts."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from whet import plugins
from whet.errors import ConfigError, NothingOutstanding, StoreError, SuiteError, UsageError
from whet.model.arm import Arm
from whet.model.request import RunRequest, Settings
from whet.model.run import REPLAY, ExecutionKey, Plan, Runner, same_arms
from whet.model.suite import NO_SKILL, SKILL, Case, Suite, edited_of, parts_of
from whet.plan.images import check_images, image_problems
from whet.plan.judge import asks_judge, check_judge, is_judged, user_keys
from whet.plan.plan import make_plan, mount_problems, skill_problems, template_problems, until_decided
from whet.plan.settings.load import load_settings, what_it_may_cost, with_found_agent
from whet.plan.skill import bind_skill
from whet.plan.skill_copies import given_runner
from whet.plan.vary import refuse_other_differences
from whet.reading.plugin_folder import skills_of
from whet.reading.text import listed
from whet.record.file_hashes import file_problems
from whet.record.folder import RUN_FILE
from whet.record.run_file import RunOrigin
from whet.suites.losses import refuse_losses

if TYPE_CHECKING:
    from whet.agents.contract import Agent
    from whet.plan.outstanding import SuiteStatus
    from whet.plan.resume import EarlierRun

# What a replay reads; a repository may leave out the rest, such as logs.
_PLAYED = frozenset(
    ("session.json", "transcript.txt", "transcript.jsonl", "events.jsonl", "changes.json", "changes.tar", "diff.patch")
)


class PlannedRun(Struct, frozen=True, kw_only=True):
    """A run that is planned and has not begun."""

    request: RunRequest
    suite: Suite
    settings: Settings
    plan: Plan
    earlier: EarlierRun | None = None
    # What run.json says of it besides the usual.
    origin: RunOrigin = RunOrigin()
    notices: tuple[str, ...] = ()
    # Whether there are no settings, so that the agent is the one that is installed.
    unsettled: bool = False
    # The cluster that runs it, for people.
    cluster: str = ""
    # What has changed, if only that is run.
    status: SuiteStatus | None = None


class RunInputs(Struct, frozen=True, kw_only=True):
    """What a run is planned from, besides the suite: the request as it is carried out, and its settings."""

    request: RunRequest
    settings: Settings
    # The earlier run that it resumes.
    earlier: EarlierRun | None = None

    @property
    def suite_file(self) -> Path:
        """The file of the suite."""
        assert self.request.suite is not None
        return self.request.suite


def load_inputs(request: RunRequest) -> RunInputs:
    """Load the settings of the run that was asked for, or of the earlier one that it resumes."""
    earlier = earlier_run(request)
    request = earlier.request if earlier else request
    assert request.suite is not None
    settings = load_settings(request.suite, flags=request.flags, environ=os.environ, config_file=request.config_file)
    if request.last_failed:
        request, settings = _resuming().as_last_time(request, settings, request.suite)
    return RunInputs(request=request, settings=settings, earlier=earlier)


def earlier_run(request: RunRequest) -> EarlierRun | None:
    """Return the earlier run that *request* resumes, if it does."""
    return None if request.resume is None else _resuming().find_earlier(request.resume, request)


def _resuming() -> ModuleType:
    # Only now: most runs read no earlier one.
    return import_module("whet.plan.resume")


def plan_run(inputs: RunInputs, original_suite: Suite) -> PlannedRun:
    """Plan the run of the suite that was loaded; `check_run` finds out whether it can begin."""
    request, settings, earlier = inputs.request, inputs.settings, inputs.earlier
    selection = request.selection
    arms: tuple[Arm, ...] = ()
    lacks_runners = not settings.runners
    settings = _with_given_skills(with_found_agent(settings, original_suite, selection.runners))
    suite = bind_skill(original_suite, request.skill, settings, arms=any("=" in arm for arm in request.arms))
    if request.arms:
        from whet.plan.arms import bind_arms

        suite, arms = bind_arms(
            suite, request.arms, settings, request.skill, earlier.run.asked.commits if earlier else None
        )
        selection = replace(selection, arms=tuple(arm.partition("=")[0] for arm in request.arms))
    if request.strict:
        refuse_losses(suite)
        if suite.warnings:
            raise SuiteError(suite.warnings)
    if arms and settings.vary:
        refuse_other_differences(arms, settings.vary)
    make = partial(
        make_plan,
        suite,
        settings,
        model=request.model,
        in_place=request.in_place,
        fail_fast=request.fail_fast,
        strict=request.strict,
        arms=arms,
        seed=earlier.run.asked.seed if earlier else None,
        watermarks=earlier.run.asked.watermarks if earlier else None,
    )
    status: SuiteStatus | None = None
    if request.changed:
        # Shards are dealt from what has changed.
        all_shards = make(replace(selection, shard=None))
        status, only = _find_changes(all_shards, settings)
        selection = replace(selection, only=only)
        # On resume, this run would itself be the last one.
        request = replace(request, selection=replace(request.selection, only=only))
    plan = make(selection)
    if request.until is not None:
        plan = until_decided(plan, settings, request.until)
    if earlier:
        plan = earlier.lengthened(plan)
    return PlannedRun(
        request=request,
        suite=suite,
        settings=settings,
        plan=plan,
        earlier=earlier,
        unsettled=lacks_runners and bool(settings.runners),
        status=status,
    )


def _find_changes(plan: Plan, settings: Settings) -> tuple[SuiteStatus, frozenset[ExecutionKey]]:
    """Return what is outstanding of *plan*, and what to run of it; raises `NothingOutstanding`."""
    from whet.plan.outstanding import find_outstanding, nothing_outstanding, selected_of  # most runs run everything

    status = find_outstanding(plan, settings)
    if not status.outstanding:
        failed = len(status.failed_cases)
        raise NothingOutstanding(nothing_outstanding(status.cases, failed), status.cases, failed)
    return status, selected_of(plan, status)


def check_run(planned_run: PlannedRun) -> PlannedRun:
    """Find everything that is wrong before anything starts; return the run with its notices."""
    plan, settings = planned_run.plan, planned_run.settings
    _check_agents(plan, settings)
    check_images(plan, settings)
    planned_run = check_who_judges(planned_run)
    user_keys(plan)
    check_temporary(plan)
    _check_shared(plan)
    return replace(
        planned_run, notices=(*planned_run.notices, *_notices(planned_run.suite, planned_run.plan, settings))
    )


def check_who_judges(planned_run: PlannedRun) -> PlannedRun:
    """Return the run with warnings on who judges whom; raises without a judge, or at one with --strict-judge."""
    if not is_judged(planned_run.plan):
        return planned_run
    check_judge(planned_run.plan, planned_run.settings)
    from whet.plan.who_judges import warnings_on_judge  # most runs have no judge

    warnings = warnings_on_judge(planned_run.plan, planned_run.settings)
    messages = tuple(warning.message for warning in warnings)
    if messages and planned_run.request.strict_judge:
        raise UsageError("\n".join(messages), hint="choose another judge, or leave out --strict-judge")
    plan = replace(planned_run.plan, warnings=warnings)
    return replace(planned_run, plan=plan, notices=(*planned_run.notices, *messages))


def _with_given_skills(settings: Settings) -> Settings:
    """Return *settings* with the copies of the runners' own skills that agents are given."""
    if not any(runner.skills for runner in settings.runners):
        return settings

    return replace(settings, runners=tuple(given_runner(runner, settings) for runner in settings.runners))


def notices_on_cost(planned_run: PlannedRun, plan: Plan) -> tuple[str, ...]:
    """Return what *plan* may cost, if the agent was not chosen by anybody."""
    if not planned_run.unsettled:
        return ()
    judged_trials = sum(execution.trials for execution in plan.executions if asks_judge(execution))
    return (what_it_may_cost(plan, planned_run.settings, judged_trials),)


def _notices(suite: Suite, plan: Plan, settings: Settings) -> Iterator[str]:
    yield from map(str, suite.warnings)
    yield from same_arms(plan)
    yield from _part_notices(plan)
    yield from _skill_notices(suite, plan)
    yield from _warn_of_missing_files(plan)
    yield from _out_of_reach(plan)
    yield from _lending_notices(plan, settings)


def _warn_of_missing_files(plan: Plan) -> Iterator[str]:
    """Yield a warning for each skill that names what agents are not given of it."""
    skills = [arm.skill for arm in plan.arms if arm.skill is not None and arm.skill.left_out]
    if skills:
        from whet.suites.left_out import warning_of_lost  # most runs have no skill

        warnings = (warning_of_lost(skill.source, skill.left_out) for skill in skills)
        yield from dict.fromkeys(warning for warning in warnings if warning is not None)


def _skill_notices(suite: Suite, plan: Plan) -> Iterator[str]:
    """Yield what keeps agents from loading a skill of *plan*, or its suite from having one."""
    places = dict.fromkeys(arm.skill.source for arm in plan.arms if arm.skill is not None)
    if places or SKILL in suite.arms or suite.arms == (NO_SKILL,):
        # Most runs have no skill.
        from whet.suites.skills.of_suite import skills_of_suite
        from whet.suites.skills.rules import check_skill

        skills = dict.fromkeys(skill for place in places for skill in skills_of(place))
        for skill in skills or skills_of_suite(suite):
            yield from map(str, check_skill(skill).of_level("error"))


def _part_notices(plan: Plan) -> Iterator[str]:
    """Yield which cases have no part yet in a suite that was split, and which were edited since they were held out."""
    suite_cases, parts = plan.suite.cases, parts_of(plan.suite.cases)
    if parts and (new_cases := [case.id for case in suite_cases if case.id not in parts]):
        yield f"no part yet, so --split leaves them out: {listed(new_cases)}; whet split draws it"
    planned = {execution.case.id: execution.case for execution in plan.executions}
    if edited := edited_of(planned.values()):
        yield f"edited since they were held out: {listed(edited)}"


def _out_of_reach(plan: Plan) -> Iterator[str]:
    if plan.until is not None:
        from whet.decide.until import out_of_reach  # most runs compare nothing

        yield from out_of_reach(plan)


def _lending_notices(plan: Plan, settings: Settings) -> Iterator[str]:
    """Yield notices of what is given to tasks and packages, or not; raises if tasks ask for what they may not have."""
    yield from _offline(plan, settings)
    if any(execution.case.task for execution in plan.executions):
        from whet.plan.lent_variables import lent_variables  # few cases are tasks

        yield from lent_variables(plan, settings, os.environ)


def _offline(plan: Plan, settings: Settings) -> Iterator[str]:
    """Yield a notice for each verifier that asks for a network which its runner does not have."""
    for case, runner in {
        (execution.case.id, execution.runner.id): (execution.case, execution.runner) for execution in plan.executions
    }.values():
        packages = (check.params["package"] for check in case.checks if check.grader == "task-package")
        offline = settings.check_network == "runner" and runner.options.get("network", True) is not True
        if offline and any(package.resource_hints.network for package in packages):
            yield (
                f"{case.id}: its verifier asks for a network, and runner {runner.id} has none "
                '(run.check_network = "full" gives it)'
            )


def _check_agents(plan: Plan, settings: Settings) -> None:
    problems = [*mount_problems("run.mounts", settings.mounts), *template_problems(plan, settings)]
    problems += image_problems(plan, settings)
    cases = tuple({execution.case.id: execution.case for execution in plan.executions}.values())
    for runner in _runners(plan):
        agent = plugins.find("agents", runner.agent)()
        problems += (f"runners.{runner.id}.{problem}" for problem in agent.problems(runner, cases))
        problems += (f"runners.{runner.id}.{problem}" for problem in replay_problems(runner, cases))
        problems += skill_problems(f"runners.{runner.id}.skills", runner.skills)
        problems += _near_programs(runner, settings)
        problems += mount_problems(f"runners.{runner.id}.agent.mounts", runner.options.get("mounts") or ())
        problems += _cut_off(agent, runner, cases)
        if runner.skills and getattr(agent, "takes_skills", None) is None and _gives_skills(plan, runner):
            problems.append(
                f"runners.{runner.id}: the agent {runner.agent} does not take skills; "
                "set `takes_skills` in its class, or leave this runner out"
            )
        if runner.skills and runner.options.get("inherit_home") and getattr(agent, "takes_skills", "home") == "home":
            problems.append(f"runners.{runner.id}.skills: cannot be placed in an inherited home; leave one of them out")
    if problems:
        where = settings.file.name if settings.file else "settings"
        raise ConfigError("\n".join(f"{where}: {problem}" for problem in problems))


def _cut_off(agent: Agent, runner: Runner, cases: Iterable[Case]) -> Iterator[str]:
    """Yield the problem of an agent that cannot resume its session, if a case is a conversation."""
    talks = [case.id for case in cases if case.converses and case.task is None]
    if not talks or agent.continues(runner):
        return
    how = "set its `agent.resume`" if runner.agent == "command" else "define `continues` in its class"
    kind = "is a conversation" if len(talks) == 1 else "are conversations"
    yield (
        f"runners.{runner.id}: {listed(talks)} {kind}, and the agent {runner.agent} takes one "
        f"prompt only; {how}, or leave this runner or these cases out"
    )


def _runners(plan: Plan) -> list[Runner]:
    """Return each runner once, with the skills that it has in any execution."""
    runners_by_id: dict[str, Runner] = {}
    for execution in plan.executions:
        earlier = runners_by_id.setdefault(execution.runner.id, execution.runner)
        if execution.runner.skills != earlier.skills:
            skills = tuple(dict.fromkeys((*earlier.skills, *execution.runner.skills)))
            runners_by_id[execution.runner.id] = replace(earlier, skills=skills)
    return list(runners_by_id.values())


def _near_programs(runner: Runner, settings: Settings) -> Iterator[str]:
    """Report a program that is not on PATH but is in the folder of the settings file."""
    program = runner.options.get("command")
    if runner.agent != "command" or not program or "/" in program or settings.file is None:
        return
    if shutil.which(program) is None and (settings.file.parent / program).is_file():
        yield f'runners.{runner.id}.agent.command: there is no program "{program}" on PATH; did you mean "./{program}"?'


def _gives_skills(plan: Plan, runner: Runner) -> bool:
    """Return whether *runner* gets skills other than those in the workspaces of packages."""
    executions = (execution for execution in plan.executions if execution.runner.id == runner.id)
    return any(execution.runner.skills and execution.case.skill_place is None for execution in executions)


def replay_problems(runner: Runner, cases: Sequence[Case]) -> Iterator[str]:
    """Yield what has changed in the run folder that *runner* replays; a bare `trials` folder is not checked."""
    script = runner.options.get("script")
    if runner.agent != REPLAY or not isinstance(script, str) or not (Path(script) / RUN_FILE).is_file():
        return
    from whet.record.read.run import read_run

    root, names = Path(script), {case.id for case in cases}
    as_it_is = f"restore it, or play it as it is with script = {str(root / 'trials')!r}"
    try:
        lines = read_run(root).lines
    except StoreError as error:
        yield f"agent.script: {error.message}; {as_it_is}"
        return
    for line in lines:
        if line.result.key.case in names:
            problems = file_problems(root, line, lambda path: path.rpartition("/")[2] in _PLAYED, workspaces=False)
            yield from (f"agent.script: {root}/{problem}; {as_it_is}" for problem in problems)


def check_temporary(plan: Plan) -> None:
    """Refuse a temporary folder inside of a template: each workspace would copy all others."""
    try:
        temporary = Path(tempfile.gettempdir()).resolve()
    except FileNotFoundError:
        # No folder can be written. The code that makes the run folder reports it.
        return
    templates = {
        execution.workspace.template_dir for execution in plan.executions if execution.workspace.mode == "isolated"
    }
    for template in templates:
        if template is not None and temporary.is_relative_to(template.resolve()):
            raise UsageError(
                f"the temporary folder {temporary} is inside of {template}, which every workspace is a copy of",
                hint="set TMPDIR to another folder, or move the suite into a folder of its own",
            )


def _check_shared(plan: Plan) -> None:
    """Refuse a shared folder that cannot be entered or made: every trial would fail. Raises the `OSError`."""
    for folder in {execution.workspace.cwd for execution in plan.executions if execution.workspace.cwd}:
        try:
            # Look inside: a folder that cannot be entered still has a status.
            os.stat(f"{folder}/.")  # noqa: PTH116 - a Path leaves the dot out
        except FileNotFoundError:
            first = next(execution for execution in (folder, *folder.parents) if execution.parent.exists())
            if not os.access(first.parent, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(first)) from None
