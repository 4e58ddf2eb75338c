"""Say what an audit found: in words for people, and as the document `whet/audit/1`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from whet.model import codec
from whet.model.suite import Suite
from whet.reading.text import count, left, one_line, path_for_people, quoted
from whet.record.read.past_runs import PastRuns, PastTrials
from whet.report.screen import Screen, Style
from whet.suites.skills.case_texts import LeakedPart
from whet.suites.skills.leaks import Leak

_WIDEST = 200
_ANYWAY = "its oracle runs in every trial (oracle_ref), so any agent passes it: leave oracle_ref out of real runs"


SolutionOutcome = Literal["passed", "failed", "errored", "not audited", "none"]


class AuditedCase(Struct, frozen=True, kw_only=True):
    """What is known of one case.

    `passed_by` are the controls that pass it. `forbids` says that this is no fault: it asks only that a skill is not
    loaded. `reason` says why the solution did not pass.
    """

    id: str
    passed_by: tuple[str, ...]
    vacuous: bool
    forbids: bool
    solution: SolutionOutcome
    reason: str | None
    not_audited: str | None
    errored: str | None
    solved_anyway: bool

    @property
    def broken(self) -> bool:
        """Whether it has a solution that does not pass."""
        return self.solution == "failed"


class Audit(Struct, frozen=True, kw_only=True):
    """What is known of a suite; `record` is where the evidence is."""

    suite: Suite
    cases: tuple[AuditedCase, ...]
    past: PastRuns
    record: Path | None
    # What stands of its cases in the skill.
    leaks: tuple[Leak, ...] = ()

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
        case_ids, reasons = {case.id for case in self.suite.cases}, dict[str, str]()
        for lost in self.suite.lost:
            if lost.case is not None and lost.case not in case_ids:
                why = lost.message.removeprefix("is left out: ")
                reasons[lost.case] = f"{reasons[lost.case]}; {why}" if lost.case in reasons else why
        return reasons

    @property
    def unsolved(self) -> list[str]:
        """The tasks without a solution, which may be impossible."""
        tasks = {case.id for case in self.suite.cases if case.task is not None}
        return [case.id for case in self.cases if case.solution == "none" and case.id in tasks]

    @property
    def clean(self) -> bool:
        """Whether there is nothing to look at in the record."""
        return not (self.vacuous or self.broken or self.errored)


class AuditCaseDocument(Struct, frozen=True, kw_only=True):
    """One case: which controls pass it, how its solution did, and what recorded trials say about it."""

    id: str
    vacuous: bool
    passed_by: tuple[str, ...]
    forbids: bool
    solution: SolutionOutcome
    broken: bool
    reason: str | None
    not_audited: str | None
    errored: str | None
    oracle_in_every_trial: bool
    trials: int
    passed: int
    constant: bool
    idle_checks: tuple[str, ...]


class LeftOutTask(Struct, frozen=True, kw_only=True):
    """A task that whet cannot run, and why."""

    id: str
    reason: str


class AuditLeak(Struct, frozen=True, kw_only=True):
    """Where text of a case, or its name, stands in a file of the skill; `cases` are all that share it."""

    file: str
    line: int
    part: LeakedPart
    words: str
    cases: tuple[str, ...]


class AuditDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/audit/1"):
    """What `whet audit --json` prints of a suite: lists of case ids, then each case; `record` has the evidence."""

    suite: str
    suite_path: str
    vacuous: tuple[str, ...]
    broken: tuple[str, ...]
    idle_checks: tuple[str, ...]
    constant: tuple[str, ...]
    not_audited: tuple[str, ...]
    errored: tuple[str, ...]
    left_out: tuple[LeftOutTask, ...]
    leaks: tuple[AuditLeak, ...]
    runs: tuple[str, ...]
    unread_runs: tuple[str, ...]
    record: str | None
    cases: tuple[AuditCaseDocument, ...]


class AuditsDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/audits/1"):
    """What `whet audit --json` prints of several suites."""

    audits: tuple[AuditDocument, ...]


def audit_document(audit: Audit) -> AuditDocument:
    """Return all findings of an audit as a document."""
    past = {past_trials.case.id: past_trials for past_trials in audit.past.cases}
    return AuditDocument(
        suite=audit.suite.name,
        suite_path=str(audit.suite.source),
        vacuous=tuple(audit.vacuous),
        broken=tuple(audit.broken),
        idle_checks=tuple(
            f"{past_trials.case.id}::{label}" for past_trials in audit.past.cases for label in past_trials.idle
        ),
        constant=tuple(past_trials.case.id for past_trials in audit.past.cases if past_trials.constant),
        not_audited=tuple(case.id for case in audit.cases if case.not_audited),
        errored=tuple(audit.errored),
        left_out=tuple(LeftOutTask(id=name, reason=why) for name, why in audit.left_out.items()),
        leaks=tuple(map(_leak_document, audit.leaks)),
        runs=audit.past.runs,
        unread_runs=audit.past.unread,
        record=str(audit.record) if audit.record else None,
        cases=tuple(_case_document(case, past[case.id]) for case in audit.cases),
    )


def audits_text(audits: Sequence[Audit]) -> str:
    """Return the document of one audit, or one that holds several, as JSON text."""
    documents = tuple(map(audit_document, audits))
    document = documents[0] if len(documents) == 1 else AuditsDocument(audits=documents)
    return codec.encode_pretty(document).decode()


def _leak_document(leak: Leak) -> AuditLeak:
    return AuditLeak(file=str(leak.file), line=leak.line, part=leak.part, words=leak.words, cases=leak.cases)


def _case_document(case: AuditedCase, past: PastTrials) -> AuditCaseDocument:
    return AuditCaseDocument(
        id=case.id,
        vacuous=case.vacuous,
        passed_by=case.passed_by,
        forbids=case.forbids,
        solution=case.solution,
        broken=case.broken,
        reason=case.reason,
        not_audited=case.not_audited,
        errored=case.errored,
        oracle_in_every_trial=case.solved_anyway,
        trials=len(past.trials),
        passed=past.passed,
        constant=past.constant,
        idle_checks=past.idle,
    )


# What to mend is red, and what to look at is yellow.
_STYLES: dict[str, Style] = {
    "vacuous": "bad",
    "broken": "bad",
    "errored": "warn",
    "no solution": "warn",
    "left out": "warn",
    "leak": "warn",
    "idle check": "warn",
}


def audit_lines(audit: Audit, screen: Screen) -> Iterator[str]:
    """Yield all findings of an audit in lines, those to mend first."""
    solutions = sum(case.solution in {"passed", "failed", "errored"} for case in audit.cases)
    summary = f"{count(len(audit.cases), 'case')}, {count(solutions, 'solution')}"
    place = path_for_people(audit.suite.source, Path.cwd())
    yield f"{screen.paint(one_line(audit.suite.name), 'bold')} ({place}): {summary}"
    rows = (*_case_rows(audit.cases), *_task_rows(audit), *_leak_rows(audit.leaks), *_past_rows(audit.past))
    for label, name, text in rows:
        mark = screen.paint(left(label, 11), _STYLES.get(label, "dim"))
        yield f"  {mark}  {one_line(name)}: {one_line(text, _WIDEST)}"
    yield f"  {screen.paint(left('runs', 11), 'dim')}  {_runs(audit.past)}"
    if audit.record is not None:
        yield f"  {screen.paint(left('evidence', 11), 'dim')}  {screen.path(audit.record, Path.cwd())}"
    is_good = audit.clean and not all(case.not_audited for case in audit.cases)
    yield screen.paint(_summary(audit), "good" if is_good else "bold")


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


def _task_rows(audit: Audit) -> Iterator[tuple[str, str, str]]:
    for name in audit.unsolved:
        yield "no solution", name, "it has none, so whether the task can be done is not known"
    for name, why in audit.left_out.items():
        yield "left out", name, f"whet cannot run it: {why}"


def _leak_rows(leaks: Sequence[Leak]) -> Iterator[tuple[str, str, str]]:
    for leak in leaks:
        place = f"{path_for_people(leak.file, Path.cwd())}:{leak.line}"
        what = "its name stands" if leak.part == "name" else f"text of its {leak.part} stands"
        yield "leak", quoted(leak.cases, 3), f"{what} in {place}: {leak.words}"


def _past_rows(past: PastRuns) -> Iterator[tuple[str, str, str]]:
    for past_trials in past.cases:
        for label in past_trials.idle:
            trials = count(len(past_trials.trials), "trial")
            yield "idle check", f"{past_trials.case.id}::{label}", f"without it, {trials} would have ended alike"
    for past_trials in past.cases:
        if past_trials.constant:
            often = "all" if past_trials.passed else "none"
            yield "constant", past_trials.case.id, f"passed in {often} of {count(len(past_trials.trials), 'trial')}"


def _runs(past: PastRuns) -> str:
    if not past.runs:
        text = "none of this suite as it is now, so idle checks and constant cases are not known"
    else:
        text = f"{count(len(past.runs), 'recorded run')} of this suite as it is now"
    return f"{text}; {count(len(past.unread), 'record')} cannot be read" if past.unread else text


def _summary(audit: Audit) -> str:
    if audit.cases and all(case.not_audited for case in audit.cases):
        return "No case was audited."
    parts = [
        *([f"{count(len(audit.vacuous), 'case')} cannot tell good from bad"] if audit.vacuous else []),
        *([f"{count(len(audit.broken), 'solution')} not passing"] if audit.broken else []),
        *([f"{count(len(audit.errored), 'case')} errored"] if audit.errored else []),
    ]
    left = len(audit.left_out)
    summary = "; ".join(parts) or "No control passes a case, and every solution passes."
    return f"{summary} ({count(left, 'task')} left out)" if left else summary
