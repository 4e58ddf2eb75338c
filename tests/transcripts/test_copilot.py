"""GitHub Copilot CLI: every recording of the real program is read into the right events and the right ending."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reading import RECORDINGS, Read, read_output, read_recording, task

from whet.agents.copilot import CopilotAgent
from whet.model.events import CommandRun, Message, SessionEnded, ToolCall, ToolResult, Trouble
from whet.model.run import Runner
from whet.model.session import Usage

VERDICTS = {
    "auth_401": "provider",
    "bad_model_400": "provider",
    "killed_stream": "agent-crashed",
    "killed_stream_group": "agent-crashed",
    "killed_tool": "agent-crashed",
    "killed_tool_group": "agent-crashed",
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
    """The program leaves its usage in its home, where it is collected."""
    usage = RECORDINGS / "copilot" / name / "usage.json"
    collected = {"copilot-usage.json": usage.read_bytes()} if usage.exists() else {}
    return read_recording(CopilotAgent(), f"copilot/{name}", collected)


@pytest.mark.parametrize(("name", "verdict"), VERDICTS.items())
def test_every_ending_gets_the_right_verdict(name: str, verdict: str) -> None:
    read = _read(name)

    assert read.verdict == verdict


def test_a_result_after_an_abort_is_no_success_although_it_says_exit_code_0() -> None:
    read = _read("killed_tool_group")

    assert [(ended.ok, ended.reason) for ended in read.of(SessionEnded)] == [(False, "aborted: user_initiated")]


@pytest.mark.parametrize(
    ("name", "kind", "status"),
    [
        ("auth_401", "auth", 401),
        ("bad_model_400", "bad-request", 400),
        ("server_error_500", "server", 500),
        ("unknown_model_404", "model-rejected", 404),
    ],
)
def test_the_last_trouble_has_the_status_that_the_provider_answered_with(name: str, kind: str, status: int) -> None:
    read = _read(name)

    last = read.of(Trouble)[-1]
    assert (last.kind, last.status) == (kind, status)
    assert read.session.usage == Usage()


def test_trouble_that_was_overcome_is_seen_and_forgiven() -> None:
    read = _read("rate_limit_then_ok")

    assert [(trouble.kind, trouble.status) for trouble in read.of(Trouble)] == [("rate-limit", 429)]
    assert read.observer.trouble is None
    assert read.session.final_output == "skillgym ready"


def test_a_provider_that_does_not_answer_is_trouble_with_the_network() -> None:
    failure = '{"type":"model.call_failure","data":{"failureKind":"transport","errorMessage":"unexpected EOF"}}'
    error = '{"type":"session.error","data":{"errorType":"query","message":"Could not connect to the provider"}}'
    output = f'{failure}\n{error}\n{{"type":"result","exitCode":1}}\n'

    read = read_output(CopilotAgent(), output.encode(), exit_code=1)

    assert read.verdict == "provider"
    assert [trouble.kind for trouble in read.of(Trouble)] == ["network", "network"]


def test_a_session_with_tools_is_seen_with_all_that_it_did_and_nothing_twice() -> None:
    read = _read("tools")

    session = read.session
    assert session.commands() == ("echo hi > out.txt && ls",)
    assert read.of(CommandRun)[0].exit_code == 0
    assert session.file_reads() == ("notes.txt",)
    assert session.file_edits() == ("report.md",)
    assert session.steps == 4
    assert session.model == "stub-model"
    assert session.session_id == "dd942204-2d0c-4cdd-acc5-cf23efccbbb5"
    assert [(call.tool, call.id) for call in read.of(ToolCall)] == [
        ("bash", "call_stub000149"),
        ("view", "call_stub000151"),
        ("create", "call_stub000153"),
    ]
    assert [(result.id, result.ok) for result in read.of(ToolResult)] == [
        ("call_stub000149", True),
        ("call_stub000151", True),
        ("call_stub000153", True),
    ]


def test_messages_come_once_with_their_phases() -> None:
    read = _read("tools")

    assert [(message.role, message.phase, message.text) for message in read.of(Message)] == [
        ("user", None, "Create out.txt, read notes.txt, write report.md, then say ready."),
        ("assistant", "thinking", "I should look at the workspace first."),
        ("assistant", "commentary", "Looking around."),
        ("assistant", "final", "skillgym ready"),
    ]
    assert read.session.final_output == "skillgym ready"


def test_tokens_come_from_the_file_that_was_asked_for() -> None:
    usage = _read("tools").session.usage

    assert (usage.input_tokens, usage.cached_tokens) == (8000, 3000)
    assert (usage.output_tokens, usage.reasoning_tokens) == (97, 7)
    assert usage.cost_usd is None


def test_without_that_file_the_tokens_are_unknown() -> None:
    read = read_recording(CopilotAgent(), "copilot/tools")

    assert read.session.usage == Usage()


@pytest.mark.parametrize("content", [b"", b"[]", b'{"modelMetrics": [1]}', b'{"modelMetrics": {"m": {"usage": 1}}}'])
def test_a_file_of_tokens_that_makes_no_sense_breaks_nothing(content: bytes) -> None:
    read = read_recording(CopilotAgent(), "copilot/plain", {"copilot-usage.json": content})

    assert (read.verdict, read.session.usage) == ("ok", Usage())


@pytest.mark.parametrize(("name", "confidence"), [("skill", "explicit"), ("skill_read", "strong")])
def test_a_skill_is_seen(name: str, confidence: str) -> None:
    read = _read(name)

    assert [(found.skill, found.confidence) for found in read.session.detected_skills] == [("greeting", confidence)]


def test_a_skill_that_could_not_be_loaded_was_only_asked_for() -> None:
    output = (RECORDINGS / "copilot/skill/stdout.jsonl").read_bytes()

    read = read_output(CopilotAgent(), output.replace(b'"success":true', b'"success":false'))

    assert [(found.skill, found.confidence) for found in read.session.detected_skills] == [("greeting", "weak")]


def test_a_denied_command_did_not_run() -> None:
    read = _read("permission_denied")

    assert read.session.commands() == ()
    assert [result.ok for result in read.of(ToolResult)] == [False]
    assert [trouble.kind for trouble in read.of(Trouble)] == ["permission"]
    assert read.session.final_output == "I could not run it."


def test_a_command_that_was_cut_off_is_still_seen() -> None:
    read = _read("killed_tool")

    assert read.session.commands() == ("python3 -c 'import time; time.sleep(71)'",)


def test_what_a_helper_says_is_not_the_answer() -> None:
    said = {"type": "assistant.message", "data": {"content": "from a helper", "parentToolCallId": "t1"}}
    output = json.dumps(said) + '\n{"type":"result","sessionId":"s","exitCode":0}\n'

    read = read_output(CopilotAgent(), output.encode())

    assert [message.phase for message in read.of(Message)] == ["commentary"]


def test_the_prompt_goes_through_standard_input_and_the_tokens_into_the_home() -> None:
    runner = Runner(id="r", agent="copilot", model="large", options={"args": ["--no-custom-instructions"]})

    asked = CopilotAgent().command(task(runner, prompt="-p"))

    mode = ("--output-format", "json", "--allow-all", "--no-ask-user")
    usage = ("--usage-output-file", "/tmp/ws/home/copilot-usage.json")
    assert asked.argv == ("copilot", *mode, *usage, "--model", "large", "--no-custom-instructions")
    assert asked.stdin == b"-p"
    assert asked.collect == ("copilot-usage.json",)
    assert asked.announces_end


def test_credentials_pass_by_name_and_its_state_is_its_own() -> None:
    environ = {
        "GH_TOKEN": "t",
        "COPILOT_PROVIDER_BASE_URL": "http://127.0.0.1:1/v1",
        "COPILOT_HOME": "/home/me/.copilot",
        "COPILOT_SKILLS_DIRS": "/home/me/skills",
        "OTHER": "x",
    }
    runner = Runner(id="r", agent="copilot", skills=(Path("/suite/skills/greeting"),))

    asked = CopilotAgent().command(task(runner, environ=environ))

    assert asked.env["COPILOT_HOME"] == "/tmp/ws/home/.copilot"
    assert asked.env["COPILOT_AUTO_UPDATE"] == "false"
    assert asked.env["GH_TOKEN"] == "t"
    assert asked.env["COPILOT_PROVIDER_BASE_URL"] == "http://127.0.0.1:1/v1"
    assert not {"COPILOT_SKILLS_DIRS", "OTHER"} & asked.env.keys()
    assert asked.home_copies == {".copilot/skills/greeting": Path("/suite/skills/greeting")}
