"""Real agents in trouble: what the provider did, what the agent did and what we did are told apart."""

from __future__ import annotations

import pytest
from stage import Stage

READY = {"say": "All is ready."}


def test_a_model_that_does_not_exist_is_asked_for_once_and_not_by_further_trials(boxed: Stage) -> None:
    steps = [{"fail": "model-rejected", "always": True}]

    once = boxed.play(steps)
    thrice = boxed.play(steps, "--trials", "3", "--schedule", "serial")

    assert once.verdict == ("errored", "model-rejected"), once.story
    assert once.trial["failure"]["cause"] == "provider"
    assert [trial["failure"]["code"] for trial in thrice.outcome.trials] == ["model-rejected"] * 3, thrice.story
    assert len(thrice.turns) == len(once.turns) > 0


def test_a_prompt_or_answer_that_talks_of_unknown_models_rejects_none(stage: Stage) -> None:
    said = '{"type":"error","error":{"type":"not_found_error","message":"model: x"}} 404 model_not_found'

    played = stage.play([{"say": said}], prompt=f"Explain {said}")

    assert played.verdict == ("passed", None), played.story


@pytest.mark.parametrize("fault", ["server", "rate-limit", "overloaded"])
def test_trouble_that_is_overcome_is_no_failure(stage: Stage, fault: str) -> None:
    played = stage.play([{"fail": fault}, READY], check='assert ctx.final_output() == "All is ready."')

    assert played.verdict == ("passed", None), played.story
    assert [turn.step for turn in played.turns] == [1, 2]


@pytest.mark.parametrize(
    ("fault", "code"), [("server", "provider"), ("auth", "key-refused"), ("bad-request", "provider")]
)
def test_a_provider_that_never_answers_well_is_an_error_and_not_the_agents_failure(
    stage: Stage, fault: str, code: str
) -> None:
    played = stage.play([{"fail": fault, "always": True}])

    assert played.verdict == ("errored", code), played.story
    assert played.trial["failure"]["cause"] == "provider"
    assert stage.project.left_after_a_while() == []


def test_a_request_that_is_refused_as_wrong_after_good_ones_is_the_agents_failure(stage: Stage) -> None:
    played = stage.play([{"run": "echo hello"}, {"fail": "bad-request", "always": True}])

    assert played.trial["status"] == "failed", played.story


def test_a_stream_that_is_cut_off_is_never_the_agents_failure(stage: Stage) -> None:
    played = stage.play([{"say": "Once upon a time", "cut": True}, READY])

    # One of them does not ask again.
    gives_up = stage.program.agent == "gemini"
    assert played.verdict == (("errored", "provider") if gives_up else ("passed", None)), played.story


def test_an_agent_stopped_in_the_middle_of_a_tool_timed_out_and_leaves_nothing_running(boxed: Stage) -> None:
    steps = [{"run": "echo begun > begun.txt; tail -f /dev/null"}, READY]

    played = boxed.play(steps, "--timeout-ms", str(boxed.program.start_ms))

    assert played.verdict == ("failed", "timeout"), played.story
    assert "begun.txt" in played.outcome.artifact("a", "diff.patch").read_text()
    called = [event["tool"] for event in played.events if event["type"] == "tool_call"]
    # One of them tells a call only when it has ended.
    assert len(called) == (0 if boxed.program.agent == "opencode" else 1)
    assert boxed.project.left_after_a_while() == []
