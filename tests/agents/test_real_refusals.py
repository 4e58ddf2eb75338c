"""Real agents whose key is refused, or whose provider nobody can reach: one trial is ended, and no other starts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace
from programs import CLAUDE_CODE, CODEX, KEY
from stage import Played, Stage

READY = {"say": "All is ready."}
# One after the other, and with everything that could try again.
FLAGS = ("--trials", "3", "--max-parallel", "1", "--retries", "2")
ANOTHER = ("sk-another-key-000000000",)


@pytest.fixture
def patient(stage: Stage) -> Stage:
    """The agent as people have it, which tries again for minutes."""
    stage.program = replace(stage.program, env={})
    return stage


def started(played: Played) -> list[Any]:
    """The trials that left anything: an agent has at least a transcript."""
    folder = played.outcome.folder
    return [trial for trial in played.outcome.trials if (folder / trial["artifact_dir"]).is_dir()]


def asked(played: Played) -> list[dict[str, Any]]:
    """The requests to models that the gateway saw."""
    lines = played.outcome.artifact("a", "requests.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["format"]]


def codes(played: Played) -> list[str]:
    return [trial["failure"]["code"] for trial in played.outcome.trials]


def test_a_refused_key_ends_the_run_of_its_runner_at_the_first_answer(patient: Stage) -> None:
    played = patient.play([READY], *FLAGS, keys=ANOTHER)

    variable = next(name for name, value in patient.program.environ.items() if value == KEY)
    said = f"the key in {variable} was refused (401) by http://127.0.0.1"
    assert played.outcome.code == 3, played.story
    assert codes(played) == ["key-refused"] * 3, played.story
    assert all(said in trial["failure"]["message"] for trial in played.outcome.trials)
    assert {trial["status"] for trial in played.outcome.trials} == {"errored"}
    assert len(started(played)) == 1
    assert [len(trial["attempts"]) for trial in played.outcome.trials] == [1, 1, 1]
    # The program had no time to try again.
    assert {line["retries"] for line in asked(played)} == {0}
    assert f"runner real: {said}" in played.outcome.stdout + played.outcome.stderr
    assert "--last-failed" not in played.outcome.stdout
    assert "whet run --resume" in played.outcome.stdout
    assert patient.project.left_after_a_while() == []


def test_a_run_goes_on_when_its_key_is_corrected(stage: Stage) -> None:
    refused = stage.play([READY], *FLAGS, keys=ANOTHER)

    played = stage.play([{**READY, "always": True}], "--resume", "latest", keys=(KEY,))

    assert refused.outcome.code == 3, refused.story
    assert played.outcome.code == 0, played.story
    assert [trial["status"] for trial in played.outcome.trials] == ["passed"] * 3


def test_a_refused_key_is_believed_where_everybody_may_list_the_models(patient: Stage) -> None:
    played = patient.play([{"fail": "auth", "times": 50}], *FLAGS)

    assert played.outcome.code == 3, played.story
    assert codes(played) == ["key-refused"] * 3, played.story
    assert len(started(played)) == 1


def test_a_403_for_one_request_does_not_end_the_run(stage: Stage) -> None:
    # It may be about the model or the place.
    played = stage.play([{"fail": "auth", "status": 403, "times": 50}], *FLAGS[:4])

    assert set(codes(played)) == {"provider"}, played.story
    assert len(started(played)) == 3


def test_a_provider_that_nobody_can_reach_ends_the_run_of_its_runner(patient: Stage) -> None:
    played = patient.play([], *FLAGS, refused=True)

    assert played.outcome.code == 3, played.story
    assert codes(played) == ["provider-unreachable"] * 3, played.story
    assert "http://127.0.0.1" in played.outcome.message("a")
    assert len(started(played)) == 1
    assert patient.project.left_after_a_while() == []


# How each of them logs in by itself: variables, files at home, and what whet calls it.
LOGINS: dict[str, tuple[dict[str, str], dict[str, str], str]] = {
    "claude-code": (
        {"ANTHROPIC_BASE_URL": "{url}", "CLAUDE_CODE_OAUTH_TOKEN": KEY},
        {},
        "the login in CLAUDE_CODE_OAUTH_TOKEN was refused (401)",
    ),
    "codex": (
        {"OPENAI_BASE_URL": "{url}/v1"},
        {".codex/auth.json": json.dumps({"OPENAI_API_KEY": KEY})},
        "the login in ~/.codex/auth.json was refused (401)",
    ),
}


@pytest.mark.parametrize("program", [CLAUDE_CODE, CODEX], ids=lambda program: program.agent, indirect=True)
def test_a_refused_login_is_read_from_an_agent_without_the_gateway(patient: Stage) -> None:
    environ, files, said = LOGINS[patient.program.agent]
    for name, text in files.items():
        patient.project.write(f"../home/{name}", text)
    patient.program = replace(patient.program, environ=environ)
    patient.agent = f"pass_env = {json.dumps(list(environ))}"

    played = patient.play([READY], *FLAGS, keys=ANOTHER)

    assert codes(played) == ["key-refused"] * 3, played.story
    assert said in played.outcome.message("a"), played.story
    assert played.outcome.session("a")["route"].startswith("direct")
    assert len(started(played)) == 1
