"""Decide answers without a judge: exact values, JSON Schemas and assertions, in a worker because a search may hang."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from whet.checks.context import NotRecorded
from whet.errors import GraderError
from whet.grade.answers.assertions import (
    NoJson,
    any_json,
    at_pointer,
    decide_assertion,
    first_json,
    whole_json,
)
from whet.grade.answers.compare import values_equal
from whet.grade.answers.evaluators import DecidingGrader
from whet.grade.answers.texts import AssertionSubject, transcript_of
from whet.grade.claims.files import Outcome, failed, passed, undecided
from whet.grade.evidence import EventLog, Evidence
from whet.model import codec
from whet.model.callable import Evaluator
from whet.model.eval_cases import FILE_OPS, FILE_PREFIX, BooleanAssertion, ExactMatch, JsonSchema
from whet.model.grade import Grade
from whet.model.session import Session, SessionSummary
from whet.model.suite import Check, Suite
from whet.reading.schemas import SchemaTrouble, schema_problems
from whet.reading.text import shown

# A decision, and how well it went, from 0 to 1.
ScoredOutcome = tuple[Outcome, float]


def decide(case: ExactMatch | JsonSchema | BooleanAssertion, subject: AssertionSubject) -> ScoredOutcome:
    """Return whether *case* holds of *subject*, and how much of it."""
    match case:
        case ExactMatch():
            return _all_or_nothing(_exact(case, subject.output))
        case JsonSchema():
            return _all_or_nothing(_schema(case, subject.output))
        case BooleanAssertion():
            return _boolean(case, subject)


def _all_or_nothing(outcome: Outcome) -> ScoredOutcome:
    return outcome, float(outcome.state == "passed")


def _exact(case: ExactMatch, output: str) -> Outcome:
    try:
        answer = _extract_answer(case, output)
    except NoJson as error:
        return failed(str(error), shown(output, 200))
    except KeyError:
        return failed(f"there is nothing at {case.path}", shown(output, 200))
    expected_value = case.expected
    if case.trim:
        expected_value, answer = _trim(expected_value), _trim(answer)
    rule = Evaluator(kind="exact", case_sensitive=case.case_sensitive, tolerance=case.numeric_tolerance)
    if values_equal(expected_value, answer, rule):
        return passed("as expected", shown(answer, 200))
    return failed(f"expected {shown(expected_value, 200)}, got {shown(answer, 200)}")


def _extract_answer(case: ExactMatch, output: str) -> Any:
    """Return the text, or its JSON value if JSON is expected."""
    if case.path is not None:
        return at_pointer(any_json(output), case.path)
    return output if isinstance(case.expected, str) else any_json(output)


def _trim(value: Any) -> Any:
    match value:
        case str():
            return value.strip()
        case list():
            return [_trim(item) for item in value]
        case dict():
            return {key: _trim(item) for key, item in value.items()}
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


def _boolean(case: BooleanAssertion, subject: AssertionSubject) -> ScoredOutcome:
    """All assertions must hold, or any; the reason names those that do not hold."""
    outcomes = [decide_assertion(assertion, subject) for assertion in case.assertions]
    text = "\n".join(f"{_SIGNS[outcome.state]} {outcome.reason}" for outcome in outcomes)
    holding = sum(outcome.state == "passed" for outcome in outcomes)
    undecidable = next((outcome for outcome in outcomes if outcome.state == "undecided"), None)
    enough = holding == len(outcomes) if case.match == "all" else holding > 0
    if undecidable is not None and not (case.match == "any" and enough):
        return undecided(undecidable.reason, text), 0.0
    value = holding / len(outcomes) if case.match == "all" else float(enough)
    if enough:
        return passed(f"{holding} of {len(outcomes)} hold", text), value
    reasons = "; ".join(outcome.reason for outcome in outcomes if outcome.state == "failed")
    return failed(reasons, text), value


_SIGNS = {"passed": "+", "failed": "-", "undecided": "?"}


class _ScorerRequest(Struct, frozen=True, kw_only=True):
    case: str
    number: int
    session: SessionSummary
    events_path: str | None
    workspace: str
    created: tuple[str, ...] = ()
    transcript: str = ""


class AnswerGrader(DecidingGrader):
    """Decides the cases of an eval suite that need no judge."""

    def __init__(self, suite: Suite) -> None:
        super().__init__(suite, partial(_decide, suite))

    async def grade(self, check: Check, evidence: Evidence) -> Grade:
        """Decide *check*; raises `GraderError` if that is not possible."""
        _refuse_gaps(check, evidence)
        started_at = time.monotonic()
        request = _ScorerRequest(
            case=evidence.case.id,
            number=evidence.case.checks.index(check),
            session=evidence.session,
            events_path=str(evidence.events_path) if evidence.events_path else None,
            workspace=str(evidence.workspace),
            created=evidence.changes.created,
            transcript=str(transcript_of(evidence)),
        )
        grade = await self.decide_in_worker(request, timeout_s=evidence.timeout_s, what="the decision about the answer")
        if grade.undecided:
            raise GraderError(grade.reason)
        return replace(grade, duration_s=round(time.monotonic() - started_at, 6))


def _decide(suite: Suite, request: bytes) -> Grade:
    """Decide one check of *suite*, inside a worker."""
    question = codec.decode_exact(request, _ScorerRequest)
    events = EventLog(Path(question.events_path) if question.events_path else None, len(question.session.turns))
    check = next(case for case in suite.cases if case.id == question.case).checks[question.number]
    subject = AssertionSubject(
        session=Session.of(question.session, events),
        workspace=Path(question.workspace),
        skill_names=suite.skill.names if suite.skill else frozenset(),
        created=question.created,
        transcript=Path(question.transcript),
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
    if evidence.gaps is None or not isinstance(case, BooleanAssertion):
        return
    for assertion in case.assertions:
        target = assertion.target or ""
        path = target.removeprefix(FILE_PREFIX)
        looks_at_file = assertion.op in FILE_OPS or path != target
        if looks_at_file and evidence.gaps.workspace and path not in evidence.gaps.paths:
            raise NotRecorded(f"{path} was not recorded: {evidence.gaps.workspace}")
