"""Say what an audit found: in words for people, and as the document `whet/audit/1`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from whet.dataclass import dataclass
from whet.model import wire
from whet.model.suite import Suite
from whet.reading.text import count, one_line, path_for_people, quoted
from whet.record.past_runs import PastRuns, PastTrials

SCHEMA = "whet/audit/1"
_WIDEST = 200
_ANYWAY = "its oracle runs in every trial (oracle_ref), so any agent passes it: leave oracle_ref out of real runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedCase:
    """What is known of one case.

    `passed_by` are the controls that pass it. `forbids` says that this is no fault: it asks only that a skill is not
    loaded. `solution` is "passed", "failed", "errored", "not audited" or "none", and `reason` why it did not pass.
    """

    id: str
    passed_by: tuple[str, ...]
    vacuous: bool
    forbids: bool
    solution: str
    reason: str | None
    not_audited: str | None
    errored: str | None
    solved_anyway: bool

    @property
    def broken(self) -> bool:
        """Whether it has a solution that does not pass."""
        return self.solution == "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What is known of a suite; `record` is where the evidence is."""

    suite: Suite
    cases: tuple[AuditedCase, ...]
    past: PastRuns
    record: Path | None

    @property
    def vacuous(self) -> list[str]:
        """The cases that a control passes."""
        return [case.id for case in self.cases if case.vacuous]

    @property
    def broken(self) -> list[str]:
        """The cases whose solution does not pass."""
        return [case.id for case in self.cases if case.broken]

    @property
    def errored(self) -> list[str]:
        """The cases of which nothing can be said, because something went wrong."""
        return [case.id for case in self.cases if case.errored or case.solution == "errored"]

    @property
    def left_out(self) -> dict[str, str]:
        """The tasks that are no cases here, and why."""
        known, found = {case.id for case in self.suite.cases}, dict[str, str]()
        for lost in self.suite.lost:
            if lost.case is not None and lost.case not in known:
                why = lost.message.removeprefix("is left out: ")
                found[lost.case] = f"{found[lost.case]}; {why}" if lost.case in found else why
        return found

    @property
    def unsolved(self) -> list[str]:
        """The tasks without a solution, which may be impossible."""
        tasks = {case.id for case in self.suite.cases if case.task is not None}
        return [case.id for case in self.cases if case.solution == "none" and case.id in tasks]

    @property
    def clean(self) -> bool:
        """Whether there is nothing to look at in the record."""
        return not (self.vacuous or self.broken or self.errored)


def audit_document(found: Audit) -> str:
    """Return all that was found as JSON."""
    past = {each.case.id: each for each in found.past.cases}
    document = {
        "schema": SCHEMA,
        "suite": found.suite.name,
        "suite_path": str(found.suite.source),
        "vacuous": found.vacuous,
        "broken": found.broken,
        "idle_checks": [f"{each.case.id}::{label}" for each in found.past.cases for label in each.idle],
        "constant": [each.case.id for each in found.past.cases if each.constant],
        "not_audited": [case.id for case in found.cases if case.not_audited],
        "errored": found.errored,
        "left_out": [{"id": name, "reason": why} for name, why in found.left_out.items()],
        "runs": found.past.runs,
        "unread_runs": found.past.unread,
        "record": str(found.record) if found.record else None,
        "cases": [_case(case, past[case.id]) for case in found.cases],
    }
    return wire.encode_pretty(document).decode()


def _case(case: AuditedCase, past: PastTrials) -> dict[str, Any]:
    return {
        "id": case.id,
        "vacuous": case.vacuous,
        "passed_by": case.passed_by,
        "forbids": case.forbids,
        "solution": case.solution,
        "broken": case.broken,
        "reason": case.reason,
        "not_audited": case.not_audited,
        "errored": case.errored,
        "oracle_in_every_trial": case.solved_anyway,
        "trials": len(past.trials),
        "passed": past.passed,
        "constant": past.constant,
        "idle_checks": past.idle,
    }


def audit_lines(found: Audit) -> Iterator[str]:
    """Yield all that was found, what must be mended first."""
    solutions = sum(case.solution in {"passed", "failed", "errored"} for case in found.cases)
    audited = f"{count(len(found.cases), 'case')}, {count(solutions, 'solution')}"
    yield f"{found.suite.name} ({path_for_people(found.suite.source, Path.cwd())}): {audited}"
    for label, name, text in (*_case_rows(found.cases), *_task_rows(found), *_past_rows(found.past)):
        yield f"  {label:11}  {one_line(name)}: {one_line(text, _WIDEST)}"
    yield f"  {'runs':11}  {_runs(found.past)}"
    if found.record is not None:
        yield f"  {'evidence':11}  {path_for_people(found.record, Path.cwd())}"
    yield _summary(found)


def _case_rows(cases: Sequence[AuditedCase]) -> Iterator[tuple[str, str, str]]:
    for case in cases:
        if case.vacuous:
            yield "vacuous", case.id, f"passes with {quoted(case.passed_by)}, so it cannot tell good from bad"
        if case.broken:
            yield "broken", case.id, f"its solution does not pass: {case.reason}"
        if case.errored:
            yield "errored", case.id, case.errored
        if case.solution == "errored":
            yield "errored", case.id, f"its solution could not be tried: {case.reason}"
        if case.forbids:
            yield "forbids", case.id, "passes without doing anything, as it should; others of the suite must trigger"
        if case.not_audited:
            yield "not audited", case.id, case.not_audited
        if case.solved_anyway:
            yield "note", case.id, _ANYWAY


def _task_rows(found: Audit) -> Iterator[tuple[str, str, str]]:
    for name in found.unsolved:
        yield "no solution", name, "it has none, so whether the task can be done is not known"
    for name, why in found.left_out.items():
        yield "left out", name, f"whet cannot run it: {why}"


def _past_rows(past: PastRuns) -> Iterator[tuple[str, str, str]]:
    for each in past.cases:
        for label in each.idle:
            trials = count(len(each.trials), "trial")
            yield "idle check", f"{each.case.id}::{label}", f"without it, {trials} would have ended alike"
    for each in past.cases:
        if each.constant:
            often = "all" if each.passed else "none"
            yield "constant", each.case.id, f"passed in {often} of {count(len(each.trials), 'trial')}"


def _runs(past: PastRuns) -> str:
    if not past.runs:
        found = "none of this suite as it is now, so idle checks and constant cases are not known"
    else:
        found = f"{count(len(past.runs), 'recorded run')} of this suite as it is now"
    return f"{found}; {count(len(past.unread), 'record')} cannot be read" if past.unread else found


def _summary(found: Audit) -> str:
    parts = [
        *([f"{count(len(found.vacuous), 'case')} cannot tell good from bad"] if found.vacuous else []),
        *([f"{count(len(found.broken), 'solution')} not passing"] if found.broken else []),
        *([f"{count(len(found.errored), 'case')} errored"] if found.errored else []),
    ]
    left = len(found.left_out)
    summary = "; ".join(parts) or "No control passes a case, and every solution passes."
    return f"{summary} ({count(left, 'task')} left out)" if left else summary
