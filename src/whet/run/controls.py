"""Controls: let agents that solve nothing go through cases, and void those that they pass."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import TypeAlias

from whet.dataclass import dataclass
from whet.ground.copying import remove_tree
from whet.model.grade import PASSED
from whet.model.request import RunRequest, Settings
from whet.model.run import RunInfo, TrialResult
from whet.plan.audit import SOLVED, AuditPlan, plan_audit
from whet.plan.settle import Planned
from whet.reading.text import path_for_people
from whet.record.folder import LATEST
from whet.record.results import JournalResults
from whet.run.conclude import Conclusion
from whet.run.run_state import INTERRUPTED

# Below the folder of runs, one level too deep to be taken for one.
AUDITS = "audits"
# Runs every trial of a plan, and returns the exit code that the conclusion gives.
CarryOut: TypeAlias = Callable[[Planned, Callable[[RunInfo, JournalResults], Conclusion]], int]


@dataclass(slots=True)
class Seen:
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


def try_controls(request: RunRequest, settings: Settings, tried: AuditPlan, carry_out: CarryOut) -> Seen:
    """Let the controls go through their cases, into a record apart from those of runs."""
    seen = Seen()
    if tried.plan is None:
        return seen
    # No reporter: one of them may write a file that is about runs.
    apart = replace(settings, output_dir=settings.output_dir / AUDITS, reporters=(), snapshots=None, max_cost_usd=None)
    asked = replace(request, command="audit", more_reporters=(), resume=None, update_snapshots=False, add_trials=None)
    planned = Planned(request=asked, suite=tried.plan.suite, settings=apart, plan=tried.plan)
    seen.code = carry_out(planned, seen.conclude)
    if seen.code == INTERRUPTED:
        seen.forget()
        sys.stderr.write("interrupted before the controls ended: nothing is known about the cases\n")
    return seen


def passed_by(results: dict[str, TrialResult]) -> tuple[str, ...]:
    """Return the controls whose checks held."""
    return tuple(name for name, result in results.items() if name != SOLVED and result.status in PASSED)


def without_void_cases(planned: Planned, carry_out: CarryOut) -> Planned | int:
    """Let controls go through the cases of a run before it begins, and void what they pass; an int is an exit code."""
    asked = {execution.case.id for execution in planned.plan.executions}
    cases = [case for case in planned.suite.cases if case.id in asked]
    # As the run does it: the oracle of a package that names one solves it for the controls too.
    tried = plan_audit(planned.suite, planned.settings, cases, solutions=False)
    seen = try_controls(planned.request, planned.settings, tried, carry_out)
    if seen.code == INTERRUPTED:
        return INTERRUPTED
    found = {case.id: passed_by(seen.results.get(case.id, {})) for case in cases}
    voided = {
        name: passed
        for name, passed in found.items()
        if passed and name not in tried.unjudged and name not in tried.forbidding
    }
    if not voided:
        seen.forget()
    assert not voided or seen.run_dir is not None
    notices = [f"{name} is void: it passes with {', '.join(passed)}" for name, passed in voided.items()]
    if seen.run_dir is not None:
        notices.append(f"what the controls did is in {path_for_people(seen.run_dir, Path.cwd())}")
    return replace(planned, plan=replace(planned.plan, voided=voided), notices=(*planned.notices, *notices))
