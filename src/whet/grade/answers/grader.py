"""Decide answers without a judge: exact values, JSON Schemas and assertions, in a worker because a search may hang."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from whet.dataclass import dataclass
from whet.errors import GraderError
from whet.grade.assertions import NoJson, Subject, any_json, at_pointer, decide_assertion, first_json, whole_json
from whet.grade.claim_files import Outcome, failed, passed, undecided
from whet.grade.context import NotRecorded
from whet.grade.evaluator_graders import DecidingGrader
from whet.grade.evaluators import same
from whet.grade.evidence import EventLog, Evidence, RecordedEvidence
from whet.model import wire
from whet.model.benchmark import Evaluator
from whet.model.eval_cases import FILE_OPS, BooleanAssertion, ExactMatch, JsonSchema
from whet.model.grade import Grade
from whet.model.session import Session, SessionSummary
from whet.model.suite import Check, Suite
from whet.reading.schemas import SchemaTrouble, schema_problems
from whet.reading.text import shown

# A decision, and how well it went, from 0 to 1.
Decided = tuple[Outcome, float]


def decide(case: ExactMatch | JsonSchema | BooleanAssertion, subject: Subject) -> Decided:
    """Return whether *case* holds of *subject*, and how much of it."""
    match case:
        case ExactMatch():
            return _all_or_nothing(_exact(case, subject.output))
        case JsonSchema():
            return _all_or_nothing(_schema(case, subject.output))
        case BooleanAssertion():
            return _boolean(case, subject)


def _all_or_nothing(outcome: Outcome) -> Decided:
    return outcome, float(outcome.state == "passed")


def _exact(case: ExactMatch, output: str) -> Outcome:
    try:
        given = _meant(case, output)
    except NoJson as error:
        return failed(str(error), shown(output, 200))
    except KeyError:
        return failed(f"there is nothing at {case.path}", shown(output, 200))
    wanted = case.expected
    if case.trim:
        wanted, given = _trimmed(wanted), _trimmed(given)
    rule = Evaluator(kind="exact", case_sensitive=case.case_sensitive, tolerance=case.numeric_tolerance)
    if same(wanted, given, rule):
        return passed("as expected", shown(given, 200))
    return failed(f"expected {shown(wanted, 200)}, got {shown(given, 200)}")


def _meant(case: ExactMatch, output: str) -> Any:
    """Return the text, or its JSON value if JSON is expected."""
    if case.path is not None:
        return at_pointer(any_json(output), case.path)
    return output if isinstance(case.expected, str) else any_json(output)


def _trimmed(value: Any) -> Any:
    match value:
        case str():
            return value.strip()
        case list():
            return [_trimmed(item) for item in value]
        case dict():
            return {key: _trimmed(item) for key, item in value.items()}
        case _:
            return value


def _schema(case: JsonSchema, output: str) -> Outcome:
    try:
        value = whole_json(output) if case.extract == "whole" else first_json(output)
        problems = schema_problems(case.schema, value)
    except NoJson as error:
        return failed(str(error), shown(output, 200))
    except SchemaTrouble as error:
        return undecided(f"the schema cannot be used: {error}")
    return failed("; ".join(problems), shown(value, 200)) if problems else passed("it matches the schema")


def _boolean(case: BooleanAssertion, subject: Subject) -> Decided:
    """All must hold, or any; the reason names those that do not."""
    outcomes = [decide_assertion(assertion, subject) for assertion in case.assertions]
    text = "\n".join(f"{_SIGNS[outcome.state]} {outcome.reason}" for outcome in outcomes)
    holding = sum(outcome.state == "passed" for outcome in outcomes)
    broken = next((outcome for outcome in outcomes if outcome.state == "undecided"), None)
    enough = holding == len(outcomes) if case.match == "all" else holding > 0
    if broken is not None and not (case.match == "any" and enough):
        return undecided(broken.reason, text), 0.0
    value = holding / len(outcomes) if case.match == "all" else float(enough)
    if enough:
        return passed(f"{holding} of {len(outcomes)} hold", text), value
    missed = "; ".join(outcome.reason for outcome in outcomes if outcome.state == "failed")
    return failed(missed, text), value


_SIGNS = {"passed": "+", "failed": "-", "undecided": "?"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    case: str
    number: int
    session: SessionSummary
    events_path: str | None
    workspace: str


class AnswerGrader(DecidingGrader):
    """Decides the cases of an eval suite that need no judge."""

    def __init__(self, suite: Suite) -> None:
        super().__init__(suite, partial(_decide, suite))

    async def grade(self, check: Check, evidence: Evidence) -> Grade:
        """Decide *check*; raises `GraderError` if that is not possible."""
        _refuse_gaps(check, evidence)
        began = time.monotonic()
        request = _Request(
            case=evidence.case.id,
            number=evidence.case.checks.index(check),
            session=evidence.session,
            events_path=str(evidence.events_path) if evidence.events_path else None,
            workspace=str(evidence.workspace),
        )
        given = await self.decided(request, timeout_s=evidence.timeout_s, what="the decision about the answer")
        if given.undecided:
            raise GraderError(given.reason)
        return replace(given, duration_s=round(time.monotonic() - began, 6))


def _decide(suite: Suite, request: bytes) -> Grade:
    """Decide one check of *suite*, inside a worker."""
    asked = wire.decode_exact(request, _Request)
    events = EventLog(Path(asked.events_path) if asked.events_path else None, len(asked.session.turns))
    check = next(case for case in suite.cases if case.id == asked.case).checks[asked.number]
    subject = Subject(
        session=Session.of(asked.session, events),
        workspace=Path(asked.workspace),
        skill_names=suite.skill.names if suite.skill else frozenset(),
    )
    outcome, value = decide(check.params["case"], subject)
    return Grade(
        check=check.label,
        value=value,
        passed=outcome.state == "passed",
        reason=outcome.reason,
        evidence=outcome.evidence,
        weight=check.weight,
        undecided=outcome.state == "undecided",
    )


def _refuse_gaps(check: Check, evidence: Evidence) -> None:
    """Raise `NotRecorded` if the check looks at a file that the record does not have."""
    case = check.params["case"]
    if not isinstance(evidence, RecordedEvidence) or not isinstance(case, BooleanAssertion):
        return
    for assertion in case.assertions:
        if assertion.op in FILE_OPS and evidence.gaps.workspace and assertion.target not in evidence.gaps.paths:
            raise NotRecorded(f"{assertion.target} was not recorded: {evidence.gaps.workspace}")
