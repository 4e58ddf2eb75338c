"""Audit a suite: let controls and solutions go through its cases as agents do, and say what the cases are worth."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from whet import exit_codes
from whet.errors import Cause, UsageError
from whet.model.grade import PASSED
from whet.model.request import RunRequest
from whet.model.run import TrialResult
from whet.model.suite import Case, Suite
from whet.plan.audit import SOLVED, AuditPlan, chosen_cases, plan_audit
from whet.plan.images import check_images, image_problems
from whet.plan.lent_variables import lent_variables
from whet.plan.settings.load import load_settings
from whet.plan.skill import bind_skill
from whet.reading.plugin_folder import skills_of
from whet.record.read.past_runs import past_runs
from whet.report.audit import Audit, AuditedCase, SolutionOutcome, audit_lines, audits_text
from whet.report.screen import Screen
from whet.run.controls import passed_by, try_controls
from whet.run.flow import carry_out, start_early
from whet.suites.format import load_suite
from whet.suites.skills.leaks import Leak, find_leaks
from whet.suites.skills.of_suite import skills_of_suite

# Causes that say nothing about the case.
_ELSEWHERE: tuple[Cause, ...] = ("infrastructure", "provider", "cancelled")


class AuditOutcome(Struct, frozen=True):
    """What was found about a suite, and the exit code that follows; without a report, it was interrupted."""

    code: int
    report: Audit | None = None


def audit(requests: Sequence[RunRequest], *, as_json: bool) -> int:
    """Audit the suites that *requests* name, print what was found, and return the exit code."""
    outcomes: list[AuditOutcome] = []
    for request in requests:
        outcome = audit_suite(request)
        if outcome.report is None:
            return outcome.code
        outcomes.append(outcome)
        if not as_json:
            screen = Screen(sys.stdout, os.environ)
            sys.stdout.write(screen.text(audit_lines(outcome.report, screen)))
    if as_json:
        sys.stdout.write(audits_text([outcome.report for outcome in outcomes if outcome.report is not None]))
    codes = {outcome.code for outcome in outcomes}
    return next((code for code in (exit_codes.FAILED, exit_codes.ERRORED) if code in codes), max(codes))


def audit_suite(request: RunRequest) -> AuditOutcome:
    """Let controls and solutions go through the suite that *request* names."""
    assert request.suite is not None
    settings = load_settings(request.suite, flags=request.flags, environ=os.environ, config_file=request.config_file)
    start_early(settings)
    suite = bind_skill(load_suite(request.suite, request.reading), request.skill, settings)
    audit_plan = plan_audit(suite, settings, chosen_cases(suite, settings, request.selection))
    if audit_plan.plan is not None:
        if lacking := list(image_problems(audit_plan.plan, settings)):
            raise UsageError("\n".join(lacking))
        check_images(audit_plan.plan, settings)
        lent_variables(audit_plan.plan, settings, os.environ, solutions=True)
    control_results = try_controls(request, settings, audit_plan, carry_out)
    if control_results.code == exit_codes.INTERRUPTED:
        return AuditOutcome(exit_codes.INTERRUPTED)
    past = past_runs(suite, audit_plan.cases, settings.output_dir)
    report = Audit(
        suite=suite,
        cases=tuple(
            _audit_case(case, audit_plan, control_results.results.get(case.id, {})) for case in audit_plan.cases
        ),
        past=past,
        record=control_results.run_dir,
        leaks=_leaks(suite),
    )
    if report.clean:
        control_results.forget()
        report = replace(report, record=None)
    if report.vacuous or report.broken:
        return AuditOutcome(exit_codes.FAILED, report)
    return AuditOutcome(exit_codes.ERRORED if report.errored else control_results.code, report)


def _leaks(suite: Suite) -> tuple[Leak, ...]:
    """Return what stands of the cases of *suite* in the skills that it is about."""
    skills = skills_of(suite.skill.source) if suite.skill is not None else skills_of_suite(suite)
    names = suite.skill.names if suite.skill is not None else ()
    return tuple(leak for skill in skills for leak in find_leaks(suite, skill, names))


def _audit_case(case: Case, audit_plan: AuditPlan, results: dict[str, TrialResult]) -> AuditedCase:
    controls = [result for name, result in results.items() if name != SOLVED]
    passing_controls, undecided_checks = passed_by(results), audit_plan.unjudged.get(case.id, ())
    forbids = bool(passing_controls) and case.id in audit_plan.forbidding
    why = audit_plan.untried.get(case.id)
    if passing_controls and undecided_checks:
        why = f"all else holds with {', '.join(passing_controls)}, and a model decides {', '.join(undecided_checks)}"
    solution = _solution_outcome(case, results, undecided_checks, why)
    return AuditedCase(
        id=case.id,
        passed_by=passing_controls,
        vacuous=bool(passing_controls) and not undecided_checks and not forbids,
        forbids=forbids,
        solution=solution,
        reason=_message(results[SOLVED]) if solution in {"failed", "errored"} else None,
        not_audited=why,
        errored=_control_error(controls),
        solved_anyway=case.id in audit_plan.solved_anyway,
    )


def _solution_outcome(
    case: Case, results: dict[str, TrialResult], undecided_checks: Sequence[str], why: str | None
) -> SolutionOutcome:
    """Return how the solution went."""
    result = results.get(SOLVED)
    if result is None:
        return "not audited" if case.solution is not None and why is not None else "none"
    if result.status in PASSED:
        return "not audited" if undecided_checks else "passed"
    cause = result.failure.cause if result.failure else None
    return "errored" if cause in _ELSEWHERE else "failed"


def _control_error(controls: Sequence[TrialResult]) -> str | None:
    """Return why nothing is known of a case: a control that did not come to a verdict, unless another one passed."""
    if any(result.status in PASSED for result in controls):
        return None
    error_result = next((result for result in controls if result.status == "errored"), None)
    return None if error_result is None else f"{error_result.key.runner}: {_message(error_result)}"


def _message(result: TrialResult) -> str:
    return result.failure.message if result.failure else ""
