"""Plan an audit: the controls and the solution of each case, in the place of agents, and why some cases have none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from whet.errors import PackageError, UsageError
from whet.grade.contract import grader_class
from whet.model.arm import Arm
from whet.model.eval_cases import TaskPackage
from whet.model.request import Selection, Settings
from whet.model.run import Execution, Plan, Runner, in_arm
from whet.model.suite import SKILL, Case, Check, Solution, Suite, WorkspaceSpec
from whet.packages.settings import kind_of, local_path
from whet.plan.load import check_temporary
from whet.plan.plan import case_limits, fitting_ids, must_know, run_workspace, with_placed

SOLVED = "solution"
# What each control answers.
_CONTROLS = {"nothing": "", "done": "Done, all tests pass.", "repeat": "{prompt}"}
# Where tasks from elsewhere keep their solution.
_USUAL_ORACLE = "solution/solve.sh"
_NO_SKILL = "there is no skill to load; name its folder with --skill"


class AuditPlan(Struct, frozen=True, kw_only=True):
    """What an audit tries: a plan, or none if no case can be tried.

    `untried` says of a case why no control can go through it, `unjudged` which of its checks only a model decides, and
    `forbidding` names the cases that ask for nothing but that a skill is not loaded, beside others that ask for it.
    """

    plan: Plan | None
    cases: tuple[Case, ...]
    untried: dict[str, str] = field(default_factory=dict)
    unjudged: dict[str, tuple[str, ...]] = field(default_factory=dict)
    forbidding: frozenset[str] = frozenset()
    # Cases of packages whose oracle runs in every trial, whatever the agent does.
    solved_anyway: frozenset[str] = frozenset()


def plan_audit(suite: Suite, settings: Settings, cases: Sequence[Case], *, solutions: bool = True) -> AuditPlan:
    """Plan the controls of *cases*, and with *solutions* what must pass them."""
    runners = _control_runners()
    judged_checks = {case.id: tuple(check for check in case.checks if _is_judged(check, runners[0])) for case in cases}
    obstacles = {case.id: why for case in cases if (why := _obstacle(suite, case, judged_checks[case.id])) is not None}
    executions = tuple(
        _execution(suite, settings, _case(case, checks, runner), runner)
        for case in cases
        if case.id not in obstacles
        for runner, checks in _plan_controls(case, judged_checks[case.id], runners, solutions=solutions)
    )
    return AuditPlan(
        plan=_plan(suite, settings, executions) if executions else None,
        cases=tuple(cases),
        untried=obstacles,
        unjudged={name: tuple(check.label for check in checks) for name, checks in judged_checks.items() if checks},
        forbidding=_forbidding(suite, cases),
        solved_anyway=frozenset(case.id for case in cases if (task := _package(case)) and task.oracle_ref),
    )


def chosen_cases(suite: Suite, settings: Settings, selection: Selection) -> tuple[Case, ...]:
    """Return the cases that are selected; raises `UsageError` if there are none."""
    case_ids = fitting_ids(selection.cases, [case.id for case in suite.cases], "case")
    must_know("tag", selection.tags, suite.tags)
    tags = set(selection.tags or settings.tags)
    cases = tuple(
        case
        for case in suite.cases
        if (case_ids is None or case.id in case_ids) and (not tags or tags & set(case.tags))
    )
    if not cases:
        raise UsageError(f"nothing is selected from {suite.name}", hint="leave out --case and --tag")
    return cases


def _is_judged(check: Check, runner: Runner) -> bool:
    return grader_class(check.grader).needs_judge(check, runner)


def _obstacle(suite: Suite, case: Case, judged_checks: Sequence[Check]) -> str | None:
    if case.arms == (SKILL,) and suite.skill is None:
        return _NO_SKILL
    if len(judged_checks) == len(case.checks):
        return f"a model decides {', '.join(check.label for check in judged_checks)}, and an audit asks none"
    return None


def _plan_controls(
    case: Case, judged_checks: Sequence[Check], runners: Sequence[Runner], *, solutions: bool
) -> Iterator[tuple[Runner, tuple[Check, ...]]]:
    """Yield who goes through *case*, and the checks that decide."""
    plain = tuple(check for check in case.checks if check not in judged_checks)
    without = tuple(_with_oracle(check, None) for check in plain) if solutions else plain
    yield from ((runner, without) for runner in runners)
    oracle = _oracle(case)
    if solutions and case.solution is not None:
        yield _solution_runner(case.solution), plain
    elif solutions and oracle is not None:
        yield replace(runners[0], id=SOLVED), tuple(_with_oracle(check, oracle) for check in plain)


def _package(case: Case) -> TaskPackage | None:
    package: Any = next((check.params["package"] for check in case.checks if check.grader == "task-package"), None)
    return package if isinstance(package, TaskPackage) else None


def _oracle(case: Case) -> str | None:
    """Return the script that solves a package: the one that it names, or the usual one if the folder has it."""
    package, spec = _package(case), case.workspace.package if case.workspace else None
    if package is None or package.oracle_ref or spec is None:
        return package.oracle_ref if package else None
    try:
        local = local_path(spec.ref, spec.base_dir) if kind_of(spec.ref) == "local" else None
    except PackageError:
        return None
    return _USUAL_ORACLE if local is not None and (local / _USUAL_ORACLE).is_file() else None


def _with_oracle(check: Check, oracle: str | None) -> Check:
    package = check.params.get("package")
    if not isinstance(package, TaskPackage):
        return check
    return replace(check, params={**check.params, "package": replace(package, oracle_ref=oracle)})


def _forbidding(suite: Suite, cases: Sequence[Case]) -> frozenset[str]:
    """Return the trigger queries that must not trigger, if others of the suite must: together they tell."""
    labels = {check.label for case in suite.cases for check in case.checks if check.grader == "trigger"}
    if "should_trigger" not in labels:
        return frozenset()
    return frozenset(
        case.id
        for case in cases
        if all(check.grader == "trigger" and check.label == "should_not_trigger" for check in case.checks)
    )


def _case(case: Case, checks: tuple[Check, ...], runner: Runner) -> Case:
    """Return *case* for an audit; a control that fails went as expected, so that its workspace is not kept."""
    return replace(case, checks=checks, expected_fail=runner.id != SOLVED, classify=None)


def _execution(suite: Suite, settings: Settings, case: Case, runner: Runner) -> Execution:
    arm = Arm(name=SKILL, skill=suite.skill) if suite.skill else Arm()
    spec = with_placed(case, case.workspace or run_workspace(suite, settings))
    execution = Execution(
        case=case,
        runner=runner,
        arm=arm.name,
        limits=replace(case_limits(suite, case, settings), budget_usd=None),
        workspace=_isolate(spec),
        trials=1,
    )
    return in_arm(suite, execution, arm)


def _isolate(spec: WorkspaceSpec) -> WorkspaceSpec:
    """Return a workspace of its own for each trial: a solution must not change a folder of the user."""
    project_folder = spec.cwd if spec.cwd is not None and spec.cwd.is_dir() else None
    return replace(spec, mode="isolated", cwd=None, template_dir=spec.template_dir or project_folder)


def _control_runners() -> tuple[Runner, ...]:
    """Return a runner for each control."""
    return tuple(Runner(id=name, agent="control", options={"says": says}) for name, says in _CONTROLS.items())


def _solution_runner(solution: Solution) -> Runner:
    """Return the runner that gives the answer of *solution*, or runs its command."""
    return Runner(
        id=SOLVED, agent="solution", options={"answer": solution.answer, "run": solution.run, "folder": solution.folder}
    )


def _plan(suite: Suite, settings: Settings, executions: tuple[Execution, ...]) -> Plan:
    plan = Plan(
        suite=suite,
        executions=executions,
        schedule="parallel",
        max_parallel=settings.max_parallel,
        retries=0,
        check_timeout_s=settings.check_timeout_s,
        command_timeout_s=settings.command_timeout_s,
        # One check that does not hold is enough to know.
        fail_fast=True,
        arms=(Arm(name=executions[0].arm, skill=suite.skill),),
    )
    check_temporary(plan)
    return plan
