"""Gemini CLI: every recording of the real program is read into the right events and the right ending."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reading import Read, read_output, read_recording, task

from whet.agents.gemini import GeminiAgent
from whet.model.events import CommandRun, Message, ToolCall, ToolResult, Trouble
from whet.model.run import Runner
from whet.model.session import Usage

VERDICTS = {
    "auth_401": "provider",
    "bad_model_400": "provider",
    "killed_stream": "unfinished",
    "killed_stream_group": "unfinished",
    "killed_tool": "unfinished",
    "killed_tool_group": "unfinished",
    "permission_denied": "ok",
    "plain": "ok",
    "rate_limit_then_ok": "ok",
    "resume/turn1": "ok",
    "resume/turn2": "ok",
    "server_error_500": "provider",
    "skill": "ok",
    "skill_read": "ok",
    "tools": "ok",
    "unknown_model_404": "model-rejected",
}


def _read(name: str) -> Read:
    return read_recording(GeminiAgent(), f"gemini/{name}")


def _failed(message: str) -> Read:
    record = {"type": "result", "status": "error", "error": {"type": "unknown", "message": message}}
    return read_output(GeminiAgent(), json.dumps(record).encode(), exit_code=1)


@pytest.mark.parametrize(("name", "verdict"), VERDICTS.items())
def test_every_ending_gets_the_right_verdict(name: str, verdict: str) -> None:
    read = _read(name)

    assert read.verdict == verdict


@pytest.mark.parametrize(
    ("name", "kind", "status"),
    [
        ("auth_401", "auth", 401),
        ("bad_model_400", "bad-request", 400),
        ("server_error_500", "server", 500),
        ("unknown_model_404", "model-rejected", None),
    ],
)
def test_trouble_is_what_the_message_of_the_result_says(name: str, kind: str, status: int | None) -> None:
    read = _read(name)

    (trouble,) = read.of(Trouble)
    assert (trouble.kind, trouble.status) == (kind, status)
    assert read.session.usage == Usage()


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("[API Error: Quota exceeded. (Status: RESOURCE_EXHAUSTED)]\nPlease wait.", "rate-limit"),
        ("[API Error: The model is overloaded. (Status: UNAVAILABLE)]", "overloaded"),
        ("[API Error: The model is overloaded. Please try again later.]", "overloaded"),
        ("[API Error: Quota exceeded.]\nPlease wait and try again later.", "rate-limit"),
        ("[API Error: An internal error has occurred.]", "server"),
        ("[API Error: terminated]", "network"),
        ("[API Error: exception TypeError: fetch failed sending request]", "network"),
        ('[API Error: {"error":{"code":400,"details":[{"reason":"API_KEY_INVALID"}]}}]', "auth"),
        ("[API Error: the user said models/x is not found for API version v1]", "other"),
        ("Reached the most turns; [API Error: models/x is not found for API version v1]", "other"),
    ],
)
def test_other_messages_of_the_program_are_understood_too(message: str, kind: str) -> None:
    read = _failed(message)

    assert [trouble.kind for trouble in read.of(Trouble)] == [kind]


def test_a_session_with_tools_is_seen_with_all_that_it_did() -> None:
    read = _read("tools")

    session = read.session
    assert session.commands() == ("echo hi > out.txt && ls",)
    # The stream does not tell it.
    assert read.of(CommandRun)[0].exit_code is None
    assert session.file_reads() == ("notes.txt",)
    assert session.file_edits() == ("report.md",)
    assert session.steps == 4
    assert session.model == "gemini-2.5-pro"
    assert session.session_id == "083589e8-4081-4271-bea2-f5d910b56d5e"
    assert [call.tool for call in read.of(ToolCall)] == ["run_shell_command", "read_file", "write_file"]
    assert [result.id for result in read.of(ToolResult)] == [call.id for call in read.of(ToolCall)]


def test_pieces_of_messages_are_put_together() -> None:
    read = _read("tools")

    assert [(message.role, message.phase, message.text) for message in read.of(Message)] == [
        ("user", None, "Create out.txt, read notes.txt, write report.md, then say ready."),
        ("assistant", "commentary", "Looking around."),
        ("assistant", "final", "skillgym ready"),
    ]
    assert read.session.final_output == "skillgym ready"


def test_thoughts_count_as_output_although_only_the_total_has_them() -> None:
    usage = _read("tools").session.usage

    assert (usage.input_tokens, usage.cached_tokens) == (8000, 3000)
    assert (usage.output_tokens, usage.reasoning_tokens) == (97, 7)


@pytest.mark.parametrize(("name", "confidence"), [("skill", "explicit"), ("skill_read", "strong")])
def test_a_skill_is_seen(name: str, confidence: str) -> None:
    read = _read(name)

    assert [(found.skill, found.confidence) for found in read.session.detected_skills] == [("greeting", confidence)]


def test_a_tool_that_is_not_offered_did_not_run() -> None:
    read = _read("permission_denied")

    assert read.session.commands() == ()
    assert [result.ok for result in read.of(ToolResult)] == [False]


def test_a_command_that_was_cut_off_is_still_seen() -> None:
    read = _read("killed_tool")

    assert read.session.commands() == ("python3 -c 'import time; time.sleep(71)'",)


def test_words_that_were_cut_off_are_no_final_message() -> None:
    read = _read("killed_stream")

    assert [message.phase for message in read.of(Message)] == [None, "commentary"]


def test_the_prompt_goes_through_standard_input() -> None:
    runner = Runner(id="r", agent="gemini", model="gemini-2.5-pro", options={"args": ["--debug"]})

    asked = GeminiAgent().command(task(runner, prompt="-p"))

    mode = ("--output-format", "stream-json", "--approval-mode", "yolo")
    assert asked.argv == ("gemini", *mode, "--model", "gemini-2.5-pro", "--debug")
    assert asked.stdin == b"-p"
    assert asked.announces_end


@pytest.mark.parametrize(
    ("environ", "login", "kind"),
    [
        ({"GEMINI_API_KEY": "secret-key"}, True, "gemini-api-key"),
        ({}, True, "oauth-personal"),
        ({"GOOGLE_GENAI_USE_VERTEXAI": "true"}, False, "vertex-ai"),
        ({}, False, "gemini-api-key"),
    ],
)
def test_the_settings_say_how_to_log_in(tmp_path: Path, environ: dict[str, str], login: bool, kind: str) -> None:
    if login:
        (tmp_path / ".gemini").mkdir()
        (tmp_path / ".gemini/oauth_creds.json").write_text("{}")

    asked = GeminiAgent().command(task(environ={**environ, "HOME": str(tmp_path)}))

    settings = asked.home_files[".gemini/settings.json"]
    assert json.loads(settings)["security"]["auth"]["selectedType"] == kind
    assert json.loads(settings)["privacy"]["usageStatisticsEnabled"] is False
    assert b"secret-key" not in settings
    assert (".gemini/oauth_creds.json" in asked.home_copies) is login


def test_it_tries_four_times_and_not_ten() -> None:
    asked = GeminiAgent().command(task())

    assert json.loads(asked.home_files[".gemini/settings.json"])["general"]["maxAttempts"] == 4


def test_nothing_is_put_beside_the_settings_of_the_user(tmp_path: Path) -> None:
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".gemini/oauth_creds.json").write_text("{}")
    runner = Runner(id="r", agent="gemini", options={"inherit_home": True})

    asked = GeminiAgent().command(task(runner, environ={"HOME": str(tmp_path)}))

    assert asked.env["HOME"] == str(tmp_path)
    assert asked.home_files == asked.home_copies == {}


def test_a_key_file_can_be_read_and_what_env_says_wins() -> None:
    environ = {"GOOGLE_APPLICATION_CREDENTIALS": "/keys/robot.json", "GEMINI_API_KEY": "mine"}
    runner = Runner(id="r", agent="gemini", options={"env": {"GEMINI_API_KEY": "another"}})

    asked = GeminiAgent().command(task(runner, environ=environ))

    assert asked.readable == (Path("/keys/robot.json"),)
    assert asked.env["GEMINI_API_KEY"] == "another"
    assert asked.env["HOME"] == "/tmp/ws/home"
