"""Controls: let agents that solve nothing go through cases, and void those that they pass."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from whet import exit_codes
from whet.model.grade import PASSED
from whet.model.request import RunRequest, Settings
from whet.model.run import RunInfo, TrialResult
from whet.plan.audit import SOLVED, AuditPlan, plan_audit
from whet.plan.load import PlannedRun
from whet.reading.text import path_for_people
from whet.record.folder import LATEST
from whet.record.results import JournalResults
from whet.run.conclude import Conclusion
from whet.workspace.copy import remove_tree

# Below the folder of runs, one level too deep to be taken for one.
AUDITS = "audits"
# Runs every trial of a plan, and returns the exit code that the conclusion gives.
CarryOut: TypeAlias = Callable[[PlannedRun, Callable[[RunInfo, JournalResults], Conclusion]], int]


class ControlResults(Struct):
    """How controls and solutions ended, by case and by their names, where the record is, and the exit code."""

    results: dict[str, dict[str, TrialResult]] = field(default_factory=dict)
    run_dir: Path | None = None
    code: int = 0

    def conclude(self, info: RunInfo, results: JournalResults) -> Conclusion:
        """Note how everything ended; verdicts of controls decide on no exit code."""
        self.run_dir = info.run_dir
        for execution in results.plan.executions:
            for result in results.trials(execution):
                self.results.setdefault(execution.case.id, {})[execution.runner.id] = result
        return Conclusion(code=0)

    def forget(self) -> None:
        """Remove the record, in which there is nothing to look at."""
        if self.run_dir is None:
            return
        remove_tree(self.run_dir)
        (self.run_dir.parent / LATEST).unlink(missing_ok=True)
        with suppress(OSError):
            self.run_dir.parent.rmdir()
        self.run_dir = None


def try_controls(request: RunRequest, settings: Settings, audit_plan: AuditPlan, carry_out: CarryOut) -> ControlResults:
    """Let the controls go through their cases, into a record apart from those of runs."""
    control_results = ControlResults()
    if audit_plan.plan is None:
        return control_results
    # No reporter: one of them may write a file that is about runs.
    apart = replace(settings, output_dir=settings.output_dir / AUDITS, reporters=(), snapshots=None, max_cost_usd=None)
    control_request = replace(
        request, command="audit", more_reporters=(), resume=None, update_snapshots=False, add_trials=None
    )
    planned_run = PlannedRun(request=control_request, suite=audit_plan.plan.suite, settings=apart, plan=audit_plan.plan)
    control_results.code = carry_out(planned_run, control_results.conclude)
    if control_results.code == exit_codes.INTERRUPTED:
        control_results.forget()
        sys.stderr.write("interrupted before the controls ended: nothing is known about the cases\n")
    return control_results


def passed_by(results: dict[str, TrialResult]) -> tuple[str, ...]:
    """Return the controls whose checks held."""
    return tuple(name for name, result in results.items() if name != SOLVED and result.status in PASSED)


def without_void_cases(planned_run: PlannedRun, carry_out: CarryOut) -> PlannedRun | int:
    """Let controls go through the cases of a run before it begins, and void what they pass; an int is an exit code."""
    case_ids = {execution.case.id for execution in planned_run.plan.executions}
    cases = [case for case in planned_run.suite.cases if case.id in case_ids]
    # As the run does it: the oracle of a package that names one solves it for the controls too.
    audit_plan = plan_audit(planned_run.suite, planned_run.settings, cases, solutions=False)
    control_results = try_controls(planned_run.request, planned_run.settings, audit_plan, carry_out)
    if control_results.code == exit_codes.INTERRUPTED:
        return exit_codes.INTERRUPTED
    passes_by_case = {case.id: passed_by(control_results.results.get(case.id, {})) for case in cases}
    void_cases = {
        name: controls
        for name, controls in passes_by_case.items()
        if controls and name not in audit_plan.unjudged and name not in audit_plan.forbidding
    }
    if not void_cases:
        control_results.forget()
    assert not void_cases or control_results.run_dir is not None
    notices = [f"{name} is void: it passes with {', '.join(controls)}" for name, controls in void_cases.items()]
    if control_results.run_dir is not None:
        notices.append(f"what the controls did is in {path_for_people(control_results.run_dir, Path.cwd())}")
    return replace(
        planned_run, plan=replace(planned_run.plan, voided=void_cases), notices=(*planned_run.notices, *notices)
    )
