"""Single assertions over the answer, the session and the workspace."""

from __future__ import annotations

from typing import Any

from whet.claims.forms import Contains, Exists, Matches, PathClaim
from whet.claims.patterns import compiled, pattern_of
from whet.evals import Assertion
from whet.grade.claims import files
from whet.grade.claims.outcome import Outcome, failed, passed, shortened, undecided
from whet.grade.evals.finding_json import NoJson, any_json, at_pointer
from whet.grade.evals.loading import loaded_among
from whet.grade.evals.subject import Subject
from whet.grade.evaluate.answer import shortened as shown
from whet.grade.evaluate.plain import same
from whet.model.benchmark import Evaluator
from whet.workspace.baseline import Before

_EXACTLY = Evaluator(kind="exact", case_sensitive=True)
_NEGATIVE = {"not_contains": "contains", "tool_not_called": "tool_called"}


def decide_assertion(assertion: Assertion, subject: Subject) -> Outcome:
    """Whether *assertion* holds; the reason begins with what was asserted."""
    outcome = _decide(assertion, subject)
    negative = assertion.negate != (assertion.op in _NEGATIVE)
    if outcome.state == "undecided":
        return undecided(f"{_title(assertion)}: {outcome.reason}", outcome.evidence)
    holds = (outcome.state == "passed") != negative
    return (passed if holds else failed)(f"{_title(assertion)}: {outcome.reason}", outcome.evidence)


def _title(assertion: Assertion) -> str:
    if assertion.description:
        return assertion.description
    parts = [("not " if assertion.negate else "") + assertion.op, assertion.target or ""]
    parts.append(shown(assertion.value) if assertion.has_value else "")
    return " ".join(part for part in parts if part)


def _decide(assertion: Assertion, subject: Subject) -> Outcome:
    """What there is to say about the thing itself, whether or not it should be so."""
    op, value = _NEGATIVE.get(assertion.op, assertion.op), assertion.value
    match op:
        case "contains" | "equals" | "regex":
            return _text(op, value, _text_of(assertion, subject))
        case "json_path":
            return _json(assertion, subject.output)
        case "tool_called":
            calls = len(subject.session.tool_calls(value))
            return _said(calls > 0, f"{value} was called {calls} times", f"{value} was not called")
        case "command_run":
            ran = next((command for command in subject.session.commands() if value in command), None)
            return _said(ran is not None, f"it ran {shortened(ran or '')}", f"no command contains '{shortened(value)}'")
        case "skill_triggered":
            return _skill(value, subject)
        case _:
            return files.decide(_claim(assertion), subject.workspace, Before(kind="absent"))


def _said(holds: bool, yes: str, no: str) -> Outcome:
    return passed(yes) if holds else failed(no)


def _text_of(assertion: Assertion, subject: Subject) -> str:
    return "\n".join(subject.session.commands()) if assertion.target == "commands" else subject.output


def _text(op: str, value: str, text: str) -> Outcome:
    if op == "equals":
        return _said(text.strip() == value.strip(), "it is equal", f"it is '{shortened(text)}'")
    if op == "contains":
        return _said(value in text, "it is there", f"it is not in '{shortened(text)}'")
    # Where it can be stopped: the engine backtracks.
    found = compiled(pattern_of(value)).find(text)
    return _said(found is not None, "it matches", f"it does not match '{shortened(text)}'")


def _json(assertion: Assertion, output: str) -> Outcome:
    assert assertion.target is not None
    try:
        found: Any = at_pointer(any_json(output), assertion.target)
    except NoJson as error:
        return failed(str(error))
    except KeyError:
        return failed(f"there is nothing at {assertion.target or '(the whole)'}")
    if not assertion.has_value:
        return passed(f"there is {shown(found)}")
    return _said(same(assertion.value, found, _EXACTLY), "it is the value", f"it is {shown(found)}")


def _skill(name: str | None, subject: Subject) -> Outcome:
    names = frozenset((name,)) if name else subject.skill_names
    if not names:
        return undecided("no skill is named, and there is none under test")
    found = loaded_among(subject.session.detected_skills, names)
    return _said(found is not None, f"it was loaded: {found}", f"{' or '.join(sorted(names))} was not loaded")


def _claim(assertion: Assertion) -> PathClaim:
    path = assertion.target or ""
    match assertion.op:
        case "file_contains":
            return Contains(path, assertion.value)
        case "file_matches":
            return Matches(path, pattern_of(assertion.value))
        case _:
            return Exists(path)
