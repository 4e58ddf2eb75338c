"""At the time limit: whether an agent was slow or its provider silent, told from what a program shows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from project import Outcome, Project

INIT = {"type": "system", "subtype": "init", "session_id": "s-1", "model": "m"}
RETRY = {"type": "system", "subtype": "api_retry", "attempt": 1, "error_status": 529, "error": "overloaded"}
UNREACHED = {"type": "system", "subtype": "api_retry", "attempt": 2, "error_status": None, "error": "unknown"}


def piece(kind: str) -> dict[str, Any]:
    return {"type": "stream_event", "event": {"type": kind, "index": 0}}


def said(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"type": "assistant", "message": {"id": "m-1", "content": list(blocks)}}


WORDS = said({"type": "text", "text": "API Error: 529 Overloaded"})
CALL = said({"type": "tool_use", "id": "1", "name": "Bash", "input": {"command": "sleep 600"}})
RESULT = {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "1", "content": "529"}]}}
BEGUN, GOES_ON, WHOLE = piece("message_start"), piece("content_block_delta"), piece("message_stop")

OUTAGES = {
    "not one word came": [INIT],
    "the provider is overloaded": [INIT, RETRY],
    "nobody is there": [INIT, UNREACHED],
    "it fails after a tool": [INIT, BEGUN, CALL, WHOLE, RESULT, RETRY, UNREACHED],
    "it hangs after a tool": [INIT, BEGUN, CALL, WHOLE, RESULT],
    "it hangs in the middle of its first answer": [INIT, BEGUN, GOES_ON],
    "it hangs after the first block of an answer": [INIT, BEGUN, GOES_ON, WORDS, GOES_ON],
    "it was overcome and came back": [INIT, RETRY, BEGUN, WORDS, RETRY],
}
DELAYS = {
    "a tool runs": [INIT, BEGUN, CALL, WHOLE],
    "a tool runs after trouble that was overcome": [INIT, RETRY, BEGUN, CALL, WHOLE],
    "all was said": [INIT, BEGUN, GOES_ON, WORDS, WHOLE],
}


def stopped(project: Project, records: list[dict[str, Any]], *, then: str = "exec sleep 600") -> Outcome:
    """The run of a program that prints *records* as Claude Code does, and is stopped at its time limit."""
    project.write("records", "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in records))
    where = project.root / "records"
    project.write("mine", f"#!/bin/sh\ncat > /dev/null\ncat '{where}'\n{then}\n", mode=0o755)
    project.settings(f"""
        [defaults]
        model_silence_ms = 300
        timeout_ms = 1500
        [runners.r.agent]
        type = "claude-code"
        command = "./mine"
        mounts = ["{project.root}"]
    """)
    project.suite("suite = [Case(id='a', prompt='Go.', check=ok)]\n")
    return project.run()


UNREACHABLE = "Reconnecting... 1/5 (stream disconnected before completion: error sending request for url)"
CUT_OFF = {
    "tells of it": [
        {"type": "error", "message": UNREACHABLE},
        {"type": "turn.failed", "error": {"message": UNREACHABLE}},
    ],
    "says nothing": [],
}


@pytest.mark.bubblewrap
@pytest.mark.parametrize("says", CUT_OFF)
@pytest.mark.parametrize("then", ["exit 1", "exec sleep 600"])
def test_an_agent_without_a_network_is_told_how_to_reach_its_model(project: Project, says: str, then: str) -> None:
    records = "".join(json.dumps(each) + "\n" for each in [{"type": "thread.started"}, *CUT_OFF[says]])
    project.write("records", records)
    project.write("mine", f"#!/bin/sh\ncat > /dev/null\ncat '{project.root}/records'\n{then}\n", mode=0o755)
    project.settings(f"""
        [defaults]
        timeout_ms = 1500
        [runners.r.agent]
        type = "codex"
        command = "./mine"
        network = false
        mounts = ["{project.root}"]
    """)
    project.suite("suite = [Case(id='a', prompt='Go.', check=ok)]\n")

    outcome = project.run("--sandbox", "bubblewrap")

    assert outcome.statuses == {"a": "errored"}
    assert outcome.message("a").endswith(
        'runner r has no network, and codex asks its model over one: network = "model" lets it reach its model '
        "and nothing else"
    )


@pytest.mark.parametrize("outage", OUTAGES)
def test_an_outage_at_the_time_limit_is_errored(project: Project, outage: str) -> None:
    outcome = stopped(project, OUTAGES[outage])

    assert (outcome.statuses, outcome.codes) == ({"a": "errored"}, {"a": "provider"}), outcome.message("a")
    assert outcome.trial("a")["failure"]["cause"] == "provider"
    assert "at its time limit of 1.5 s" in outcome.message("a")


@pytest.mark.parametrize("delay", DELAYS)
def test_a_delay_of_the_agent_at_the_time_limit_is_failed(project: Project, delay: str) -> None:
    outcome = stopped(project, DELAYS[delay])

    assert (outcome.statuses, outcome.codes) == ({"a": "failed"}, {"a": "timeout"}), outcome.message("a")


def test_a_model_that_is_still_speaking_is_slow_and_not_silent(project: Project) -> None:
    line = json.dumps(GOES_ON, separators=(",", ":"))

    outcome = stopped(project, [INIT, RETRY, BEGUN], then=f"while sleep 0.05; do echo '{line}'; done")

    assert outcome.codes == {"a": "timeout"}, outcome.message("a")


def test_it_is_said_how_often_the_provider_had_failed(project: Project) -> None:
    outcome = stopped(project, [INIT, RETRY, RETRY, UNREACHED])

    assert "the provider had failed 3 times, and the agent was trying again" in outcome.message("a")


def test_what_a_program_prints_when_it_is_stopped_is_no_outage(project: Project) -> None:
    line = json.dumps(RETRY, separators=(",", ":"))

    outcome = stopped(
        project, [INIT, BEGUN, CALL, WHOLE], then=f"trap \"echo '{line}'; exit 1\" TERM; while sleep 0.1; do :; done"
    )

    assert outcome.codes == {"a": "timeout"}, outcome.message("a")


def test_pieces_of_answers_are_not_kept(project: Project) -> None:
    outcome = stopped(project, OUTAGES["it hangs after the first block of an answer"])

    kept = outcome.artifact("a", "transcript.jsonl").read_text().splitlines()
    assert [json.loads(line)["type"] for line in kept] == ["system", "assistant"]


def test_an_outage_that_is_played_again_is_one_still(project: Project) -> None:
    recorded = stopped(project, OUTAGES["it hangs after a tool"])
    project.settings(f"""
        [runners.r.agent]
        type = "replay"
        script = "{recorded.folder}"
        options = {{ incomplete = true }}
    """)

    outcome = project.run()

    assert outcome.codes == {"a": "provider"}, outcome.stdout
