"""Single assertions of eval suites: each reason says which assertion it is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from whet.grade.answers.assertions import AssertionSubject, decide_assertion
from whet.model.eval_cases import Assertion
from whet.model.session import Session, SessionSummary, guessed


def subject(output: str, workspace: Path) -> AssertionSubject:
    summary = SessionSummary(runner="demo", agent="scripted", prompt="Go.", final_output=output)
    return AssertionSubject(session=Session.of(summary, ()), workspace=workspace)


@pytest.mark.parametrize(
    ("assertion", "state", "reason"),
    [
        ({"op": "contains", "value": "no"}, "failed", "contains 'no': it is not in 'yes'"),
        ({"op": "contains", "value": "yes"}, "passed", "contains 'yes': it is there"),
        ({"op": "contains", "value": "yes", "negate": True}, "failed", "not contains 'yes': it is there"),
        ({"op": "contains", "value": "no", "description": "It says no."}, "failed", "It says no.: it is not in 'yes'"),
        ({"op": "tool_called", "value": "Bash"}, "failed", "tool_called 'Bash': Bash was not called"),
        ({"op": "file_exists", "target": "a.txt"}, "failed", "file_exists a.txt: a.txt was not found"),
        ({"op": "skill_triggered"}, "undecided", "skill_triggered: no skill is named, and there is none under test"),
    ],
)
def test_the_reason_names_its_assertion(tmp_path: Path, assertion: dict[str, Any], state: str, reason: str) -> None:
    asked = Assertion(**assertion, has_value="value" in assertion)

    outcome = decide_assertion(asked, subject("yes", tmp_path))

    assert (outcome.state, outcome.reason.replace('"', "'")) == (state, reason)


def test_a_bound_of_tokens_is_not_decided_by_a_guess(tmp_path: Path) -> None:
    asked = Assertion(op="at_most", target="tokens", value=900, has_value=True)
    seen = subject("yes", tmp_path)

    outcome = decide_assertion(asked, replace(seen, session=replace(seen.session, usage=guessed(40, 8))))

    assert (outcome.state, outcome.reason) == (
        "undecided",
        "at_most tokens 900: the agent does not say what its tokens are",
    )
