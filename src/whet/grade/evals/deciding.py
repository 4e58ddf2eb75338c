"""Decisions about an answer that code can come to: the value, its shape, and what is true of it."""

from __future__ import annotations

from typing import Any

from whet.evals import BooleanAssertion, ExactMatch, JsonSchema
from whet.grade.claims.outcome import Outcome, failed, passed, undecided
from whet.grade.evals.asserting import decide_assertion
from whet.grade.evals.finding_json import NoJson, any_json, at_pointer, first_json, whole_json
from whet.grade.evals.subject import Subject
from whet.grade.evaluate.answer import shortened
from whet.grade.evaluate.plain import same
from whet.model.benchmark import Evaluator
from whet.schemas import SchemaTrouble, schema_problems

# A decision, and how well it went, from 0 to 1.
Decided = tuple[Outcome, float]


def decide(case: ExactMatch | JsonSchema | BooleanAssertion, subject: Subject) -> Decided:
    """Whether *case* holds of *subject*."""
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
        return failed(str(error), shortened(output))
    except KeyError:
        return failed(f"there is nothing at {case.path}", shortened(output))
    wanted = case.expected
    if case.trim:
        wanted, given = _trimmed(wanted), _trimmed(given)
    rule = Evaluator(kind="exact", case_sensitive=case.case_sensitive, tolerance=case.numeric_tolerance)
    if same(wanted, given, rule):
        return passed("as expected", shortened(given))
    return failed(f"expected {shortened(wanted)}, got {shortened(given)}")


def _meant(case: ExactMatch, output: str) -> Any:
    """The text, or where JSON is expected what it is as JSON."""
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
        return failed(str(error), shortened(output))
    except SchemaTrouble as error:
        return undecided(f"the schema cannot be used: {error}")
    return failed("; ".join(problems), shortened(value)) if problems else passed("as the schema says")


def _boolean(case: BooleanAssertion, subject: Subject) -> Decided:
    """All must hold, or any; the reason names those that do not."""
    outcomes = [decide_assertion(assertion, subject) for assertion in case.assertions]
    told = "\n".join(f"{_SIGNS[outcome.state]} {outcome.reason}" for outcome in outcomes)
    holding = sum(outcome.state == "passed" for outcome in outcomes)
    broken = next((outcome for outcome in outcomes if outcome.state == "undecided"), None)
    enough = holding == len(outcomes) if case.match == "all" else holding > 0
    if broken is not None and not (case.match == "any" and enough):
        return undecided(broken.reason, told), 0.0
    value = holding / len(outcomes) if case.match == "all" else float(enough)
    if enough:
        return passed(f"{holding} of {len(outcomes)} hold", told), value
    missed = "; ".join(outcome.reason for outcome in outcomes if outcome.state == "failed")
    return failed(missed, told), value


_SIGNS = {"passed": "+", "failed": "-", "undecided": "?"}
