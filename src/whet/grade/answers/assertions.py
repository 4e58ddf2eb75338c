"""Decide single assertions about the answer, the session and the workspace."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from whet.dataclass import dataclass
from whet.grade import claim_files as files
from whet.grade.claim_files import Outcome, failed, passed, shortened, undecided
from whet.grade.evaluators import same
from whet.ground.protecting import Before
from whet.model.benchmark import Evaluator
from whet.model.eval_cases import Assertion
from whet.model.run import figure
from whet.model.session import Session
from whet.model.skills import SkillDetection, proof_of, was_loaded
from whet.reading.claims import Contains, Exists, Matches, PathClaim
from whet.reading.paths import Globs
from whet.reading.patterns import compiled, pattern_of
from whet.reading.text import shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A session, the workspace it left, and the names of the skill under test."""

    session: Session
    workspace: Path
    skill_names: frozenset[str] = frozenset()

    @property
    def output(self) -> str:
        """The agent's answer."""
        return self.session.final_output


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
    for fenced in _FENCE.findall(text):
        try:
            return whole_json(fenced)
        except NoJson:
            continue
    decoder = json.JSONDecoder()
    for number, found in enumerate(_OPENING.finditer(text)):
        if number >= _MOST_TRIES:
            break
        try:
            return decoder.raw_decode(text, found.start())[0]
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


def decide_assertion(assertion: Assertion, subject: Subject) -> Outcome:
    """Return whether *assertion* holds; the reason begins with the assertion."""
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
    parts.append(shown(assertion.value, 200) if assertion.has_value else "")
    return " ".join(part for part in parts if part)


def _decide(assertion: Assertion, subject: Subject) -> Outcome:  # noqa: PLR0911 - one for each op
    """Decide the assertion without regard to negation."""
    op, value = _NEGATIVE.get(assertion.op, assertion.op), assertion.value
    match op:
        case "contains" | "equals" | "regex":
            of_commands = assertion.target == "commands"
            return _text(op, value, "\n".join(subject.session.commands()) if of_commands else subject.output)
        case "json_path":
            return _json(assertion, subject.output)
        case "tool_called":
            calls = len(subject.session.tool_calls(value))
            return _said(calls > 0, f"{value} was called {calls} times", f"{value} was not called")
        case "at_most":
            return _at_most(assertion, subject.session)
        case "command_run":
            ran = next((command for command in subject.session.commands() if value in command), None)
            return _said(ran is not None, f"it ran {shortened(ran or '')}", f"no command contains '{shortened(value)}'")
        case "skill_triggered":
            return _skill(value, subject)
        case _:
            decide = _any_file if assertion.pattern else _one_file
            return decide(assertion, subject.workspace)


def _said(holds: bool, yes: str, no: str) -> Outcome:
    return passed(yes) if holds else failed(no)


def _text(op: str, value: str, text: str) -> Outcome:
    if op == "equals":
        return _said(text.strip() == value.strip(), "it is equal", f"it is '{shortened(text)}'")
    if op == "contains":
        return _said(value in text, "it is there", f"it is not in '{shortened(text)}'")
    # The engine backtracks, so this runs in a worker, which can be stopped.
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
        return passed(f"there is {shown(found, 200)}")
    return _said(same(assertion.value, found, _EXACTLY), "it is the value", f"it is {shown(found, 200)}")


def _skill(name: str | None, subject: Subject) -> Outcome:
    names = frozenset((name,)) if name else subject.skill_names
    if not names:
        return undecided("no skill is named, and there is none under test")
    found = proof_of_loading(subject.session.detected_skills, names)
    return _said(found is not None, f"it was loaded: {found}", f"{' or '.join(sorted(names))} was not loaded")


def proof_of_loading(detections: Iterable[SkillDetection], names: frozenset[str]) -> str | None:
    """Return the evidence that a skill with one of *names* was loaded, if there is any."""
    return next((proof_of(each) for each in detections if was_loaded(each) and each.skill in names), None)


def _at_most(assertion: Assertion, session: Session) -> Outcome:
    usage, name = session.usage, assertion.target
    figures = {
        "tokens": usage.reported("total_tokens"),
        "cost_usd": usage.cost_usd,
        "seconds": session.duration_s,
        "steps": session.steps,
    }
    found = figures[name or ""]
    if found is None:
        return undecided(f"the agent does not say what its {name} are")
    return _said(found <= assertion.value, f"it is {figure(found)}", f"it is {figure(found)}")


def _one_file(assertion: Assertion, workspace: Path) -> Outcome:
    return files.decide(_claim(assertion), workspace, Before(kind="absent"))


def _any_file(assertion: Assertion, workspace: Path) -> Outcome:
    """Decide about the files that a pattern of paths matches, in any case; one of them is enough."""
    pattern, seen = assertion.target or "", 0
    globs = Globs((pattern.casefold(),))
    for folder, _, names in os.walk(workspace):
        for name in sorted(names):
            path = Path(folder, name).relative_to(workspace).as_posix()
            if globs.holds(path.casefold()):
                seen += 1
                outcome = _one_file(replace(assertion, target=path), workspace)
                if outcome.state != "failed":
                    return outcome
    return failed(f"none of {seen} files that match {pattern} does" if seen else f"no file matches {pattern}")


def _claim(assertion: Assertion) -> PathClaim:
    path = assertion.target or ""
    match assertion.op:
        case "file_contains":
            return Contains(path, assertion.value)
        case "file_matches":
            return Matches(path, pattern_of(assertion.value))
        case _:
            return Exists(path)
