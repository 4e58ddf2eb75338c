"""Real agents whose provider fails until the time limit: that is errored; what the agent itself delays is failed."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from stage import Played, Stage

WAITS_LONG = 600
FAULTS: dict[str, dict[str, Any]] = {
    "401": {"fail": "auth"},
    "429": {"fail": "rate-limit", "retry_after": None},
    "429 with retry-after": {"fail": "rate-limit", "retry_after": WAITS_LONG},
    "500": {"fail": "server", "retry_after": None},
    "529": {"fail": "overloaded", "status": 529, "retry_after": None},
    "529 with retry-after": {"fail": "overloaded", "status": 529, "retry_after": WAITS_LONG},
    "cut": {"say": "Once upon a time there was", "cut": True},
    "hang": {"say": "Once upon a time there was", "hang": True},
}
# How the last request ended at the gateway: its outcome, the status of HTTP, and the kind of trouble.
SEEN = {
    "401": ("failed", 401, "auth"),
    "429": ("failed", 429, "rate-limit"),
    "429 with retry-after": ("failed", 429, "rate-limit"),
    "500": ("failed", 500, "server"),
    "529": ("failed", 529, "overloaded"),
    "529 with retry-after": ("failed", 529, "overloaded"),
    "cut": ("cut", 200, "network"),
    "hang": ("left", 200, None),
    "refused": ("unreachable", None, "network"),
}
READY = {"say": "All is ready."}
# It speaks of an outage as a provider or a program would, and is none.
SHOUTS = (
    'echo "API Error: 529 Overloaded"; echo "Reconnecting... 1/5 (unexpected status 529)";'
    'echo "Attempt 1 failed with status 529. Retrying with backoff..." >&2;'
    """echo '{"type":"system","subtype":"api_retry","attempt":1,"error_status":529,"error":"overloaded"}';"""
)


def stopped(stage: Stage, steps: list[dict[str, Any]], *, silence_ms: int = 500, more_ms: int = 0) -> Played:
    """The trial of an agent that has the time that it surely needs to come to its first tool."""
    stage.defaults = f"model_silence_ms = {silence_ms}"
    return stage.play(steps, "--timeout-ms", str(stage.program.start_ms + more_ms))


def is_an_outage(played: Played) -> bool:
    failure = played.trial["failure"] or {}
    return played.verdict == ("errored", "provider") and failure["cause"] == "provider"


def is_seen_by_the_gateway(played: Played, fault: str) -> bool:
    """Whether requests to the model ended with this fault, and with no other; some agents ask for a title as well."""
    text = played.outcome.artifact("a", "requests.jsonl").read_text()
    lines = [line for line in map(json.loads, text.splitlines()) if line["format"]]
    ended = {(line["outcome"], line["status"], line["trouble"]) for line in lines}
    return SEEN[fault] in ended and {kind for *_, kind in ended} - {None} == {SEEN[fault][2]} - {None}


def tells_of_retries(played: Played) -> bool:
    """Where the limit came first, it is said how often the provider had failed, or that the agent told of none."""
    said = played.outcome.message("a")
    if "time limit" not in said:
        return True
    return bool(re.search(r"had failed (once|\d+ times), and the agent was trying again|no retry was reported", said))


# A 401 before the first answer is a refused key, and no outage.
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "401"])
def test_a_provider_that_fails_before_its_first_answer_makes_the_trial_errored(stage: Stage, fault: str) -> None:
    played = stopped(stage, [{**FAULTS[fault], "always": True}])

    assert is_an_outage(played), played.story
    assert tells_of_retries(played), played.story
    assert is_seen_by_the_gateway(played, fault), played.story
    assert stage.project.left_after_a_while() == []


def test_a_provider_that_nobody_answers_for_makes_the_trial_errored(stage: Stage) -> None:
    played = stage.play([], "--timeout-ms", str(stage.program.start_ms // 2), refused=True)

    assert played.verdict == ("errored", "provider-unreachable"), played.story
    assert played.trial["failure"]["cause"] == "provider"
    assert is_seen_by_the_gateway(played, "refused"), played.story


@pytest.mark.parametrize("fault", ["429 with retry-after", "529", "hang"])
def test_a_provider_that_fails_in_the_middle_of_the_work_makes_the_trial_errored(stage: Stage, fault: str) -> None:
    played = stopped(stage, [{"run": "echo begun > begun.txt"}, {**FAULTS[fault], "always": True}], more_ms=5000)

    assert is_an_outage(played), played.story
    assert is_seen_by_the_gateway(played, fault), played.story
    assert "begun.txt" in played.outcome.artifact("a", "diff.patch").read_text()


def test_an_agent_that_waits_for_its_own_tool_failed_whatever_the_tool_prints(stage: Stage) -> None:
    played = stopped(stage, [{"run": SHOUTS + "tail -f /dev/null"}, READY])

    assert played.verdict == ("failed", "timeout"), played.story
    assert played.trial["failure"]["cause"] == "agent"


def test_an_agent_that_goes_round_in_circles_failed(stage: Stage) -> None:
    # Never the same twice, and not too often: one of them notices both, and ends by itself.
    circles = [{"say": f"API Error: 529 Overloaded, try {n}", "run": f"echo {n}; {SHOUTS}sleep 2"} for n in range(2000)]

    played = stopped(stage, circles, silence_ms=10**6)

    assert played.verdict == ("failed", "timeout"), played.story


def test_a_session_that_outgrows_its_model_failed_by_a_code_of_its_own(stage: Stage) -> None:
    played = stage.play([{"run": "echo begun"}, {"fail": "context", "always": True}])

    assert played.verdict == ("failed", "context-exhausted"), played.story
    assert played.outcome.session("a")["final_output"] != "Scripted session"


def test_a_first_request_that_does_not_fit_is_the_fault_of_the_suite(stage: Stage) -> None:
    played = stage.play([{"fail": "context", "always": True}])

    assert played.verdict == ("errored", "prompt-too-long"), played.story
    assert played.trial["failure"]["cause"] == "suite"
