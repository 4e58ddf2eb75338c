"""Load and plan a run, and find everything that is wrong before anything starts."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.dataclass import dataclass
from whet.errors import ConfigError, StoreError, SuiteError, UsageError
from whet.model import plugins
from whet.model.arm import Arm
from whet.model.request import RunRequest, Settings
from whet.model.run import NO_AGENT, Execution, Plan, Runner, same_arms
from whet.model.suite import Case, Suite
from whet.plan.images import check_images, image_problems
from whet.plan.plan import make_plan, mount_problems, skill_problems, template_problems, until_decided
from whet.plan.settings import load_settings, what_it_may_cost, with_found_agent
from whet.reading.text import listed
from whet.record.folder import RUN_FILE, find_run_folder
from whet.suites.format import load_suite

if TYPE_CHECKING:
    from whet.agents.agent import Agent
    from whet.plan.resume import Resumed

_AGENT = "replay"
_NO_JUDGES = (_AGENT, NO_AGENT)
# What a replay reads; a repository may leave out the rest, such as logs.
_PLAYED = frozenset(
    ("session.json", "transcript.txt", "transcript.jsonl", "events.jsonl", "changes.json", "changes.tar", "diff.patch")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A run that is planned and has not begun; `facts` go into run.json with the usual ones."""

    request: RunRequest
    suite: Suite
    settings: Settings
    plan: Plan
    earlier: Resumed | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    # Whether there are no settings, so that the agent is the one that is installed.
    unsettled: bool = False
    # The cluster that runs it, for people.
    cluster: str = ""


def settle(request: RunRequest, early: Callable[[Settings], None] = lambda _: None) -> Planned:
    """Load and plan the run that was asked for, or the earlier one that it resumes.

    *early* gets the settings before the suite is loaded.
    """
    earlier = earlier_run(request)
    return _planned(earlier.request if earlier else request, earlier, early)


def earlier_run(request: RunRequest) -> Resumed | None:
    """Return the earlier run that *request* resumes, if it does."""
    if request.resume is None:
        return None
    # Only here and below: most runs read no earlier one.
    from whet.plan.resume import resume  # noqa: PLC0415
    from whet.record.recorded_run import read_resumable  # noqa: PLC0415

    start = request.suite or Path.cwd()
    settings = load_settings(start, flags=request.flags, environ=os.environ, config_file=request.config_file)
    return resume(read_resumable(find_run_folder(request.resume, settings.output_dir)), request)


def _planned(request: RunRequest, earlier: Resumed | None, early: Callable[[Settings], None]) -> Planned:
    """Load and plan; finds everything that is wrong before anything starts."""
    assert request.suite is not None
    path = request.suite
    settings = load_settings(path, flags=request.flags, environ=os.environ, config_file=request.config_file)
    if request.last_failed:
        from whet.plan.resume import as_last_time  # noqa: PLC0415 - as above

        request, settings = as_last_time(request, settings, path)
    selection = request.selection
    early(settings)
    # Only here: reading the settings does not need it.
    from whet.plan.skill import bind_skill  # noqa: PLC0415

    arms: tuple[Arm, ...] = ()
    loaded = load_suite(path)
    unsettled = not settings.runners
    settings = with_found_agent(settings, loaded) if unsettled else _with_given_skills(settings)
    suite = bind_skill(loaded, request.skill, settings, arms=any("=" in arm for arm in request.arms))
    if request.arms:
        from whet.plan.arms import bind_arms  # noqa: PLC0415

        suite, arms = bind_arms(
            suite, request.arms, settings, request.skill, earlier.run.asked.commits if earlier else None
        )
        selection = replace(selection, arms=tuple(arm.partition("=")[0] for arm in request.arms))
    if request.strict and suite.warnings:
        raise SuiteError(suite.warnings)
    plan = make_plan(
        suite,
        settings,
        selection,
        model=request.model,
        in_place=request.in_place,
        fail_fast=request.fail_fast,
        strict=request.strict,
        arms=arms,
        seed=earlier.run.asked.seed if earlier else None,
        watermarks=earlier.run.asked.watermarks if earlier else None,
    )
    if request.until is not None:
        plan = until_decided(plan, settings, request.until)
    if earlier:
        plan = earlier.lengthened(plan)
    _check_agents(plan, settings)
    check_images(plan, settings)
    check_judge(plan, settings)
    user_keys(plan)
    check_temporary(plan)
    _check_shared(plan)
    return Planned(
        request=request,
        suite=suite,
        settings=settings,
        plan=plan,
        earlier=earlier,
        notices=tuple(_notices(suite, plan, settings)),
        unsettled=unsettled and bool(settings.runners),
    )


def _with_given_skills(settings: Settings) -> Settings:
    """Return *settings* with the copies of the runners' own skills that agents are given."""
    if not any(runner.skills for runner in settings.runners):
        return settings
    from whet.plan.skill_copies import given_runner  # noqa: PLC0415 - few runners have skills

    return replace(settings, runners=tuple(given_runner(runner, settings) for runner in settings.runners))


def notices_on_cost(planned: Planned, plan: Plan) -> tuple[str, ...]:
    """Return what *plan* may cost, if the agent was not chosen by anybody."""
    if not planned.unsettled:
        return ()
    return (what_it_may_cost(plan, planned.settings, asks_judge),)


def _notices(suite: Suite, plan: Plan, settings: Settings) -> Iterator[str]:
    yield from map(str, suite.warnings)
    yield from same_arms(plan)
    yield from _lost(plan)
    yield from _out_of_reach(plan)
    yield from _lent(plan, settings)


def _lost(plan: Plan) -> Iterator[str]:
    """Yield a warning for each skill that names what agents are not given of it."""
    skills = [arm.skill for arm in plan.arms if arm.skill is not None and arm.skill.left_out]
    if skills:
        from whet.suites.left_out import warning_of_lost  # noqa: PLC0415 - most runs have no skill

        warnings = (warning_of_lost(skill.source, skill.left_out) for skill in skills)
        yield from dict.fromkeys(warning for warning in warnings if warning is not None)


def _out_of_reach(plan: Plan) -> Iterator[str]:
    if plan.until is not None:
        from whet.grade.until import out_of_reach  # noqa: PLC0415 - most runs compare nothing

        yield from out_of_reach(plan)


def _lent(plan: Plan, settings: Settings) -> Iterator[str]:
    """Yield notices of what is given to tasks and packages, or not; raises if tasks ask for what they may not have."""
    yield from _offline(plan, settings)
    if any(execution.case.task for execution in plan.executions):
        from whet.plan.lending import lent_variables  # noqa: PLC0415 - few cases are tasks

        yield from lent_variables(plan, settings, os.environ)


def _offline(plan: Plan, settings: Settings) -> Iterator[str]:
    """Yield a notice for each verifier that asks for a network which its runner does not have."""
    for case, runner in {(each.case.id, each.runner.id): (each.case, each.runner) for each in plan.executions}.values():
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
    """Yield the problem of an agent that cannot go on with its session, if a case is a conversation."""
    talks = [case.id for case in cases if case.converses and case.task is None]
    if not talks or agent.continues(runner):
        return
    how = "set its `agent.resume`" if runner.agent == "command" else "define `continues` in its class"
    yield (
        f"runners.{runner.id}: {listed(talks)} is a conversation, and the agent {runner.agent} takes one "
        f"prompt only; {how}, or leave this runner or these cases out"
    )


def _runners(plan: Plan) -> list[Runner]:
    """Return each runner once, with the skills that it has in any execution."""
    found: dict[str, Runner] = {}
    for execution in plan.executions:
        earlier = found.setdefault(execution.runner.id, execution.runner)
        if execution.runner.skills != earlier.skills:
            skills = tuple(dict.fromkeys((*earlier.skills, *execution.runner.skills)))
            found[execution.runner.id] = replace(earlier, skills=skills)
    return list(found.values())


def _near_programs(runner: Runner, settings: Settings) -> Iterator[str]:
    """Report a program that is not on PATH but is in the folder of the settings file."""
    program = runner.options.get("command")
    if runner.agent != "command" or not program or "/" in program or settings.file is None:
        return
    if shutil.which(program) is None and (settings.file.parent / program).is_file():
        yield f'runners.{runner.id}.agent.command: there is no program "{program}" on PATH; did you mean "./{program}"?'


def _gives_skills(plan: Plan, runner: Runner) -> bool:
    """Return whether *runner* gets skills other than those in the workspaces of packages."""
    own = (each for each in plan.executions if each.runner.id == runner.id)
    return any(each.runner.skills and each.case.skill_place is None for each in own)


def replay_problems(runner: Runner, cases: Sequence[Case]) -> Iterator[str]:
    """Yield what has changed in the run folder that *runner* replays; a bare `trials` folder is not checked."""
    script = runner.options.get("script")
    if runner.agent != _AGENT or not isinstance(script, str) or not (Path(script) / RUN_FILE).is_file():
        return
    from whet.record.recorded_run import read_run  # noqa: PLC0415
    from whet.record.sealing import file_problems  # noqa: PLC0415

    root, names = Path(script), {case.id for case in cases}
    as_it_is = f"restore it, or play it as it is with script = {str(root / 'trials')!r}"
    try:
        lines = read_run(root).lines
    except StoreError as error:
        yield f"agent.script: {error.message}; {as_it_is}"
        return
    for line in lines:
        if line.result.key.case in names:
            found = file_problems(root, line, lambda path: path.rpartition("/")[2] in _PLAYED, workspaces=False)
            yield from (f"agent.script: {root}/{problem}; {as_it_is}" for problem in found)


def check_judge(plan: Plan, settings: Settings) -> None:
    """Fail early if a judge is needed but not configured."""
    asking = [execution for execution in plan.executions if asks_judge(execution)]
    if not asking:
        return
    try:
        find_judge(settings)
    except UsageError as error:
        names = ", ".join(dict.fromkeys(execution.case.id for execution in asking[:3]))
        bare = asking[0].runner.agent == NO_AGENT
        hint = "or configure a runner: then the agent is run, and no judge is needed" if bare else error.hint
        raise UsageError(f"{error.message} (for {names})", hint=hint) from None


def find_judge(settings: Settings) -> None:
    """Raise `UsageError` unless the settings have a judge: a model with a key, or a runner."""
    try:
        _find_judge(settings)
    except UsageError as error:
        name = settings.runners[0].id if settings.runners else "NAME"
        error.hint = error.hint or f'or let an agent judge: runner = "{name}" in the table [judge] of the settings'
        raise


def _find_judge(settings: Settings) -> None:
    # Only here and below: most runs have no judge, whose HTTP client takes long to import.
    from whet.grade.judge_client import find_key, judge_settings  # noqa: PLC0415

    named = settings.judge.get("runner")
    if named is None:
        judge = judge_settings(settings.judging)
        find_key(judge, os.environ)
        _ = judge.model_name
    elif settings.judge_runner is None:
        known = ", ".join(runner.id for runner in settings.runners)
        raise UsageError(f'judge.runner: no runner is called "{named}"', hint=f"known: {known or 'none'}")
    elif settings.judge_runner.agent in _NO_JUDGES:
        raise UsageError(f'judge.runner: "{named}" is {settings.judge_runner.agent}, which cannot judge')


def user_keys(plan: Plan) -> tuple[str, ...]:
    """Return the keys of the models that play users, which are secrets; raises if one is needed and missing."""
    asking = [each for each in plan.executions if each.case.user is not None and each.runner.agent != _AGENT]
    users = {each.case.user: each.case.id for each in reversed(asking) if each.case.user is not None}
    if not users:
        return ()
    from whet.grade.user_model import user_settings  # noqa: PLC0415 - as with judges

    found = []
    for user, case in users.items():
        try:
            found.append(user_settings(plan.suite.user, user, os.environ)[1])
        except UsageError as error:
            raise UsageError(f"{error.message} (for {case})", hint=error.hint) from None
    return tuple(dict.fromkeys(found))


def judge_key(plan: Plan) -> str | None:
    """Return the key of the judge, a secret, if one is asked."""
    if "runner" in plan.suite.judge or not is_judged(plan):
        return None
    from whet.grade.judge_client import find_key, judge_settings  # noqa: PLC0415

    return find_key(judge_settings(plan.suite.judge), os.environ)


def is_judged(plan: Plan) -> bool:
    """Return whether a judge decides some checks of *plan*."""
    return any(asks_judge(execution) for execution in plan.executions)


def asks_judge(execution: Execution) -> bool:
    """Return whether a judge decides some checks of *execution*."""
    # Only here: reading the settings does not need it.
    from whet.grade.grader import grader_class  # noqa: PLC0415

    return any(grader_class(check.grader).needs_judge(check, execution.runner) for check in execution.case.checks)


def check_temporary(plan: Plan) -> None:
    """Refuse a temporary folder inside of a template: each workspace would copy all others."""
    try:
        temporary = Path(tempfile.gettempdir()).resolve()
    except FileNotFoundError:
        # No folder can be written. The code that makes the run folder reports it.
        return
    templates = {each.workspace.template_dir for each in plan.executions if each.workspace.mode == "isolated"}
    for template in templates:
        if template is not None and temporary.is_relative_to(template.resolve()):
            raise UsageError(
                f"the temporary folder {temporary} is inside of {template}, which every workspace is a copy of",
                hint="set TMPDIR to another folder, or move the suite into a folder of its own",
            )


def _check_shared(plan: Plan) -> None:
    """Refuse a shared folder that cannot be entered or made: every trial would fail. Raises the `OSError`."""
    for folder in {each.workspace.cwd for each in plan.executions if each.workspace.cwd}:
        try:
            # Look inside: a folder that cannot be entered still has a status.
            os.stat(f"{folder}/.")  # noqa: PTH116 - a Path leaves the dot out
        except FileNotFoundError:
            first = next(each for each in (folder, *folder.parents) if each.parent.exists())
            if not os.access(first.parent, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(first)) from None
