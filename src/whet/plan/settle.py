"""Load and plan a run, or the regrading of one, and find everything that is wrong before anything starts."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.dataclass import dataclass
from whet.errors import ConfigError, StoreError, SuiteError, UsageError
from whet.model import plugins
from whet.model.arm import Arm, baseline_of, same_arms
from whet.model.request import RunRequest, Settings
from whet.model.run import NO_AGENT, Execution, Plan, Runner, in_arm
from whet.model.suite import SKILL, Case, Suite, WorkspaceSpec
from whet.plan.plan import make_plan, mount_problems, skill_problems, template_problems
from whet.plan.settings import load_settings
from whet.record.folder import RUN_FILE, find_run_folder
from whet.suites.format import load_suite

if TYPE_CHECKING:
    from whet.plan.resume import Resumed
    from whet.record.recorded_run import RecordedRun

_AGENT = "replay"
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
    from whet.record.recorded_run import read_run  # noqa: PLC0415

    start = request.suite or Path.cwd()
    settings = load_settings(start, flags=request.flags, environ=os.environ, config_file=request.config_file)
    return resume(read_run(find_run_folder(request.resume, settings.output_dir)), request)


def _planned(request: RunRequest, earlier: Resumed | None, early: Callable[[Settings], None]) -> Planned:
    """Load and plan; finds everything that is wrong before anything starts."""
    assert request.suite is not None
    path = request.suite
    settings = load_settings(path, flags=request.flags, environ=os.environ, config_file=request.config_file)
    selection = request.selection
    if request.last_failed:
        from whet.record.recorded_run import newest_run  # noqa: PLC0415

        last = newest_run(settings.output_dir, path.resolve())
        selection = replace(selection, only=last.failed())
        request = replace(request, skill=request.skill or last.skill)
        if request.config_file is None and last.config_file is not None:
            # The same settings as then: with other runners, the failures would be others.
            request = replace(request, config_file=last.config_file)
            settings = load_settings(path, flags=request.flags, environ=os.environ, config_file=last.config_file)
    early(settings)
    # Only here: reading the settings does not need it.
    from whet.plan.skill import bind_skill  # noqa: PLC0415

    arms: tuple[Arm, ...] = ()
    suite = bind_skill(load_suite(path), request.skill, settings, arms=any("=" in arm for arm in request.arms))
    if request.arms:
        from whet.plan.arms import bind_arms  # noqa: PLC0415

        suite, arms = bind_arms(suite, request.arms, settings, request.skill)
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
    )
    if earlier:
        plan = earlier.lengthened(plan)
    _check_agents(plan, settings)
    check_judge(plan)
    _check_temporary(plan)
    _check_shared(plan)
    notices = (*map(str, suite.warnings), *same_arms(plan.arms))
    return Planned(request=request, suite=suite, settings=settings, plan=plan, earlier=earlier, notices=notices)


def _check_agents(plan: Plan, settings: Settings) -> None:
    problems = [*mount_problems("run.mounts", settings.mounts), *template_problems(plan, settings)]
    cases = tuple({execution.case.id: execution.case for execution in plan.executions}.values())
    for runner in _runners(plan):
        agent = plugins.find("agents", runner.agent)()
        problems += (f"runners.{runner.id}.{problem}" for problem in agent.problems(runner, cases))
        problems += (f"runners.{runner.id}.{problem}" for problem in replay_problems(runner, cases))
        problems += skill_problems(f"runners.{runner.id}.skills", runner.skills)
        problems += _near_programs(runner, settings)
        problems += mount_problems(f"runners.{runner.id}.agent.mounts", runner.options.get("mounts") or ())
        if runner.skills and getattr(agent, "takes_skills", None) is None and _gives_skills(plan, runner):
            problems.append(
                f"runners.{runner.id}: the agent {runner.agent} has no place for skills, so it would be without them; "
                "let its class say `takes_skills`, or leave this runner out"
            )
        if runner.skills and runner.options.get("inherit_home") and getattr(agent, "takes_skills", "home") == "home":
            problems.append(f"runners.{runner.id}.skills: cannot be placed in an inherited home; leave one of them out")
    if problems:
        where = settings.file.name if settings.file else "settings"
        raise ConfigError("\n".join(f"{where}: {problem}" for problem in problems))


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
    as_it_is = f"bring it back, or play it as it is with script = {str(root / 'trials')!r}"
    try:
        lines = read_run(root).lines
    except StoreError as error:
        yield f"agent.script: {error.message}; {as_it_is}"
        return
    for line in lines:
        if line.result.key.case in names:
            found = file_problems(root, line, lambda path: path.rpartition("/")[2] in _PLAYED, workspaces=False)
            yield from (f"agent.script: {root}/{problem}; {as_it_is}" for problem in found)


def check_judge(plan: Plan) -> None:
    """Fail early if a judge is needed but not configured."""
    asking = [execution for execution in plan.executions if _is_judged(execution)]
    if not asking:
        return
    # Only here and below: most runs have no judge, whose HTTP client takes long to import.
    from whet.grade.judge_client import find_key, judge_settings  # noqa: PLC0415

    settings = judge_settings(plan.suite.judge)
    try:
        find_key(settings, os.environ)
        _ = settings.model_name
    except UsageError as error:
        names = ", ".join(dict.fromkeys(execution.case.id for execution in asking[:3]))
        bare = asking[0].runner.agent == NO_AGENT
        hint = "or configure a runner: then the agent is run, and no judge is needed" if bare else None
        raise UsageError(f"{error.message} (for {names})", hint=error.hint or hint) from None


def judge_key(plan: Plan) -> str | None:
    """Return the key of the judge, a secret, if one is asked."""
    if not any(_is_judged(execution) for execution in plan.executions):
        return None
    from whet.grade.judge_client import find_key, judge_settings  # noqa: PLC0415

    return find_key(judge_settings(plan.suite.judge), os.environ)


def _is_judged(execution: Execution) -> bool:
    # Only here: reading the settings does not need it.
    from whet.grade.grader import grader_class  # noqa: PLC0415

    return any(grader_class(check.grader).needs_judge(check, execution.runner) for check in execution.case.checks)


def _check_temporary(plan: Plan) -> None:
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


def plan_regrading(suite: Suite, settings: Settings, record: RecordedRun) -> Plan:
    """Plan one execution for each that was recorded and whose case still exists, in the order of the suite."""
    trials: dict[tuple[str, str, str], int] = {}
    for case, runner, arm, number in record.results:
        trials[case, runner, arm] = max(number, trials.get((case, runner, arm), 0))
    runners = {runner: _runner(runner, settings, record) for _, runner, _ in trials}
    names = tuple(dict.fromkeys(arm for _, _, arm in trials))
    baseline = record.asked.baseline or baseline_of(names)
    arms = {name: Arm(name=name, skill=suite.skill if name == SKILL else None) for name in names}
    beside = {case for case, _, arm in trials if arm != baseline}
    executions = tuple(
        in_arm(
            suite,
            # No agent runs, and the workspace is the recorded one. A package is needed for its verifier.
            Execution(
                case=case,
                runner=runners[runner],
                arm=arm,
                limits=case.limits,
                workspace=case.workspace or WorkspaceSpec(),
                trials=count,
                control=arm == baseline and case.id in beside,
            ),
            arms[arm],
        )
        for case in suite.cases
        for (identifier, runner, arm), count in trials.items()
        if identifier == case.id
    )
    if not executions:
        raise UsageError(
            f"{suite.source} has none of the cases of {record.run_dir.name}",
            hint="name the suite that was run with --suite",
        )
    return Plan(
        suite=suite,
        executions=executions,
        schedule="parallel",
        max_parallel=settings.max_parallel,
        retries=0,
        check_timeout_s=settings.check_timeout_s,
        command_timeout_s=settings.command_timeout_s,
        arms=tuple(arms.values()),
        baseline=baseline,
    )


def notices(suite: Suite, record: RecordedRun) -> Iterator[str]:
    """Yield which cases of the suite were not recorded, and which recorded ones are no longer in the suite."""
    cases = [case.id for case in suite.cases]
    recorded = list(dict.fromkeys(case for case, *_ in record.results))
    gone = [case for case in recorded if case not in cases]
    fresh = [case for case in cases if case not in recorded]
    if gone:
        yield f"no longer in the suite, so left out: {', '.join(gone)}"
    if fresh:
        yield f"not in the recorded run, so not regraded: {', '.join(fresh)}"


def _runner(name: str, settings: Settings, record: RecordedRun) -> Runner:
    """Return the runner as it is configured, or else as it was recorded."""
    configured = next((runner for runner in settings.runners if runner.id == name), None)
    session = next((record.session(item) for item in record.results.values() if item.key.runner == name), None)
    if configured is not None and (session is None or session.agent == configured.agent):
        return configured
    if session is None:
        return Runner(id=name, agent="unknown")
    return Runner(id=name, agent=session.agent, model=session.model)
