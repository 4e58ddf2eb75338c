"""Audit a suite: let controls and solutions go through its cases as agents do, and say what the cases are worth."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from whet.errors import Cause, UsageError
from whet.model.grade import PASSED
from whet.model.request import RunRequest
from whet.model.run import TrialResult
from whet.model.suite import Case
from whet.plan.audit import SOLVED, AuditPlan, chosen_cases, plan_audit
from whet.plan.images import check_images, image_problems
from whet.plan.lending import lent_variables
from whet.plan.settings import load_settings
from whet.plan.skill import bind_skill
from whet.record.past_runs import past_runs
from whet.report.audit import Audit, AuditedCase, audit_document, audit_lines
from whet.run.controls import passed_by, try_controls
from whet.run.flow import carry_out, start_early
from whet.run.run_state import ERRORED, FAILED, INTERRUPTED
from whet.suites.format import load_suite

# These say nothing about the case.
_ELSEWHERE: tuple[Cause, ...] = ("infrastructure", "provider", "cancelled")


def audit(request: RunRequest, *, as_json: bool) -> int:
    """Audit the suite that *request* names, print what was found, and return the exit code."""
    assert request.suite is not None
    settings = load_settings(request.suite, flags=request.flags, environ=os.environ, config_file=request.config_file)
    start_early(settings)
    suite = bind_skill(load_suite(request.suite), request.skill, settings)
    tried = plan_audit(suite, settings, chosen_cases(suite, settings, request.selection))
    if tried.plan is not None:
        if lacking := list(image_problems(tried.plan, settings)):
            raise UsageError("\n".join(lacking))
        check_images(tried.plan, settings)
        lent_variables(tried.plan, settings, os.environ, solutions=True)
    seen = try_controls(request, settings, tried, carry_out)
    if seen.code == INTERRUPTED:
        return INTERRUPTED
    past = past_runs(suite, tried.cases, settings.output_dir)
    found = Audit(
        suite=suite,
        cases=tuple(_audited(case, tried, seen.results.get(case.id, {})) for case in tried.cases),
        past=past,
        record=seen.run_dir,
    )
    if found.clean:
        seen.forget()
        found = replace(found, record=None)
    sys.stdout.write(audit_document(found) if as_json else "".join(f"{line}\n" for line in audit_lines(found)))
    return FAILED if found.vacuous or found.broken else ERRORED if found.errored else seen.code


def _audited(case: Case, tried: AuditPlan, results: dict[str, TrialResult]) -> AuditedCase:
    controls = [result for name, result in results.items() if name != SOLVED]
    passed, unjudged = passed_by(results), tried.unjudged.get(case.id, ())
    forbids = bool(passed) and case.id in tried.forbidding
    why = tried.untried.get(case.id)
    if passed and unjudged:
        why = f"all else holds with {', '.join(passed)}, and a model decides {', '.join(unjudged)}"
    solution = _solved(case, results, unjudged, why)
    return AuditedCase(
        id=case.id,
        passed_by=passed,
        vacuous=bool(passed) and not unjudged and not forbids,
        forbids=forbids,
        solution=solution,
        reason=_message(results[SOLVED]) if solution in {"failed", "errored"} else None,
        not_audited=why,
        errored=_errored(controls),
        solved_anyway=case.id in tried.solved_anyway,
    )


def _solved(case: Case, results: dict[str, TrialResult], unjudged: Sequence[str], why: str | None) -> str:
    """Return how the solution went: "passed", "failed", "errored", "not audited" or "none"."""
    result = results.get(SOLVED)
    if result is None:
        return "not audited" if case.solution is not None and why is not None else "none"
    if result.status in PASSED:
        return "not audited" if unjudged else "passed"
    caused = result.failure.cause if result.failure else None
    return "errored" if caused in _ELSEWHERE else "failed"


def _errored(controls: Sequence[TrialResult]) -> str | None:
    """Return why nothing is known of a case: a control that did not come to a verdict, unless another one passed."""
    if any(result.status in PASSED for result in controls):
        return None
    found = next((result for result in controls if result.status == "errored"), None)
    return None if found is None else f"{found.key.runner}: {_message(found)}"


def _message(result: TrialResult) -> str:
    return result.failure.message if result.failure else ""
