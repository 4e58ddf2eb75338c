"""Decide single assertions about the answer, the session and the workspace."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from whet.grade.answers import calls
from whet.grade.answers.compare import values_equal
from whet.grade.answers.texts import AssertionSubject, NoText, text_of
from whet.grade.claims import files
from whet.grade.claims.files import Outcome, abbreviate, failed, passed, undecided
from whet.model.callable import Evaluator
from whet.model.eval_cases import ANY_SKILL, Assertion
from whet.model.run import figure
from whet.model.session import Session
from whet.model.skills import SkillDetection, proof_of, was_loaded
from whet.reading.claims.forms import Contains, Exists, Matches, PathClaim
from whet.reading.paths import Globs
from whet.reading.patterns import compiled, pattern_of
from whet.reading.text import shown
from whet.workspace.protected import Before

_FENCE = re.compile(r"^[ \t]*```[\w-]*[ \t]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
_OPENING = re.compile(r"[{\[]")
_MOST_TRIES = 1000


class NoJson(ValueError):
    """A text has no JSON value."""


def whole_json(text: str) -> Any:
    """Parse *text*; raises `NoJson`."""
    try:
        return json.loads(text.strip())
    except (ValueError, RecursionError) as error:
        raise NoJson(f"the answer is not JSON: {error}") from None


def first_json(text: str) -> Any:
    """Parse the first fence that has a value, or else the first object or list in the text; raises `NoJson`."""
    for block in _FENCE.findall(text):
        try:
            return whole_json(block)
        except NoJson:
            continue
    decoder = json.JSONDecoder()
    for number, opening in enumerate(_OPENING.finditer(text)):
        if number >= _MOST_TRIES:
            break
        try:
            return decoder.raw_decode(text, opening.start())[0]
        except (ValueError, RecursionError):
            continue
    raise NoJson("the answer holds no JSON")


def any_json(text: str) -> Any:
    """Parse the whole text, or else its first block; raises `NoJson`."""
    try:
        return whole_json(text)
    except NoJson:
        return first_json(text)


def at_pointer(value: Any, pointer: str) -> Any:
    """Return the value at a JSON pointer; raises `KeyError`."""
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and re.fullmatch(r"0|[1-9][0-9]{0,8}", name) and int(name) < len(value):
            value = value[int(name)]
        else:
            raise KeyError(pointer)
    return value


_EXACTLY = Evaluator(kind="exact", case_sensitive=True)
_NEGATIVE = {"not_contains": "contains", "tool_not_called": "tool_called"}


def decide_assertion(assertion: Assertion, subject: AssertionSubject) -> Outcome:
    """Return whether *assertion* holds; the reason begins with the assertion."""
    try:
        outcome = _decide(assertion, subject if assertion.turn is None else subject.in_turn(assertion.turn))
    except NoText as error:
        # Where there is nothing to look at, neither a text nor its absence can be seen.
        return failed(f"{_title(assertion)}: {error}")
    negative = assertion.negate != (assertion.op in _NEGATIVE)
    if outcome.state == "undecided":
        return undecided(f"{_title(assertion)}: {outcome.reason}", outcome.evidence)
    holds = (outcome.state == "passed") != negative
    return (passed if holds else failed)(f"{_title(assertion)}: {outcome.reason}", outcome.evidence)


def _title(assertion: Assertion) -> str:
    if assertion.description:
        return assertion.description
    parts = [("not " if assertion.negate else "") + assertion.op, assertion.target or ""]
    parts.append(shown(assertion.value, 200) if assertion.has_value else "")
    return " ".join(part for part in parts if part)


def _decide(assertion: Assertion, subject: AssertionSubject) -> Outcome:  # noqa: PLR0911 - one for each op
    """Decide the assertion without regard to negation."""
    op, value = _NEGATIVE.get(assertion.op, assertion.op), assertion.value
    match op:
        case "contains" | "equals" | "regex":
            text = text_of(assertion.target, subject)
            return _text(op, value, text) if assertion.least is None else _count(assertion, text)
        case "json_path":
            return _json(assertion, subject.output)
        case "tool_called" | "tool_used" | "tool_order" | "tool_matched" | "tools_in_order":
            return calls.decide(assertion, subject.session)
        case "file_created":
            return _created(value, subject.created)
        case "at_most":
            return _at_most(assertion, subject.session)
        case "command_run":
            matching_command = next((command for command in subject.session.commands() if value in command), None)
            return _choose_outcome(
                matching_command is not None,
                f"it ran {abbreviate(matching_command or '')}",
                f"no command contains '{abbreviate(value)}'",
            )
        case "skill_triggered":
            return _skill(value, subject)
        case _:
            decide = _any_file if assertion.pattern else _one_file
            return decide(assertion, subject.workspace)


def _choose_outcome(holds: bool, yes: str, no: str) -> Outcome:
    return passed(yes) if holds else failed(no)


def _text(op: str, value: str, text: str) -> Outcome:
    if op == "equals":
        return _choose_outcome(text.strip() == value.strip(), "it is equal", f"it is '{abbreviate(text)}'")
    if op == "contains":
        return _choose_outcome(value in text, "it is there", f"it is not in '{abbreviate(text)}'")
    # The engine backtracks, so this runs in a worker, which can be stopped.
    hit = compiled(pattern_of(value)).find(text)
    return _choose_outcome(hit is not None, "it matches", f"it does not match '{abbreviate(text)}'")


def _count(assertion: Assertion, text: str) -> Outcome:
    """Return whether the pattern matches as often as it should."""
    count = len(list(compiled(pattern_of(assertion.value)).find_iter(text) or ()))
    return _choose_outcome(calls.is_within(assertion, count), f"it matches {count} times", f"it matches {count} times")


def _created(pattern: str, created: Iterable[str]) -> Outcome:
    """Return whether the agent made a file whose path *pattern* matches from end to end."""
    path = next((path for path in created if compiled(pattern_of(pattern)).find(path) is not None), None)
    return _choose_outcome(path is not None, f"it made {path}", "it made no such file")


def _json(assertion: Assertion, output: str) -> Outcome:
    assert assertion.target is not None
    try:
        value: Any = at_pointer(any_json(output), assertion.target)
    except NoJson as error:
        return failed(str(error))
    except KeyError:
        return failed(f"there is nothing at {assertion.target or '(the whole)'}")
    if not assertion.has_value:
        return passed(f"there is {shown(value, 200)}")
    return _choose_outcome(
        values_equal(assertion.value, value, _EXACTLY), "it is the value", f"it is {shown(value, 200)}"
    )


def _skill(name: str | None, subject: AssertionSubject) -> Outcome:
    if name == ANY_SKILL:
        loaded = [detection for detection in subject.session.detected_skills if was_loaded(detection)]
        return _choose_outcome(
            bool(loaded), "; ".join(f"{skill.skill}: {proof_of(skill)}" for skill in loaded), "no skill was loaded"
        )
    names = frozenset((name,)) if name else subject.skill_names
    if not names:
        return undecided("no skill is named, and there is none under test")
    proof = proof_of_loading(subject.session.detected_skills, names)
    return _choose_outcome(proof is not None, f"it was loaded: {proof}", f"{' or '.join(sorted(names))} was not loaded")


def proof_of_loading(detections: Iterable[SkillDetection], names: frozenset[str]) -> str | None:
    """Return the evidence that a skill with one of *names* was loaded, if there is any."""
    return next(
        (proof_of(detection) for detection in detections if was_loaded(detection) and detection.skill in names), None
    )


def _at_most(assertion: Assertion, session: Session) -> Outcome:
    usage, name = session.usage, assertion.target
    figures = {
        "tokens": usage.reported("total_tokens"),
        "cost_usd": usage.cost_usd,
        "seconds": session.duration_s,
        "steps": session.steps,
    }
    amount = figures[name or ""]
    if amount is None:
        return undecided(f"the agent does not say what its {name} are")
    return _choose_outcome(amount <= assertion.value, f"it is {figure(amount)}", f"it is {figure(amount)}")


def _one_file(assertion: Assertion, workspace: Path) -> Outcome:
    return files.decide(_claim(assertion), workspace, Before(kind="absent"))


def _any_file(assertion: Assertion, workspace: Path) -> Outcome:
    """Decide about the files that a pattern of paths matches, ignoring case; one of them is enough."""
    pattern, match_count, outcome = assertion.target or "", 0, None
    globs = Globs((pattern.casefold(),))
    for folder, _, names in os.walk(workspace):
        for name in sorted(names):
            path = Path(folder, name).relative_to(workspace).as_posix()
            if globs.holds(path.casefold()):
                match_count += 1
                outcome = _one_file(replace(assertion, target=path), workspace)
                if outcome.state != "failed":
                    return outcome
    if outcome is not None and match_count == 1:
        return outcome
    return failed(
        f"none of {match_count} files that match {pattern} does" if match_count else f"no file matches {pattern}"
    )


def _claim(assertion: Assertion) -> PathClaim:
    path = assertion.target or ""
    match assertion.op:
        case "file_contains":
            return Contains(path, assertion.value)
        case "file_matches":
            return Matches(path, pattern_of(assertion.value))
        case _:
            return Exists(path)
