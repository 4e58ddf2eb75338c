"""Claude Code: every recording of the real program is read into the right events and the right ending."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from reading import Read, read_output, read_recording, task

from whet.agents.claude_code import ClaudeCodeAgent
from whet.model.events import (
    CommandRun,
    ContextAdded,
    Message,
    SessionEnded,
    SkillSignal,
    ToolCall,
    ToolResult,
    Trouble,
    UsageSeen,
)
from whet.model.run import Runner

VERDICTS = {
    "auth_401": "provider",
    "bad_model_400": "provider",
    "killed_stream": "agent-not-started",
    "killed_stream_group": "agent-not-started",
    "killed_tool": "agent-crashed",
    "killed_tool_group": "agent-crashed",
    "permission_denied": "ok",
    "plain": "ok",
    "plain_v2.1.197": "ok",
    "rate_limit_then_ok": "ok",
    "resume/turn1": "ok",
    "resume/turn2": "ok",
    "server_error_500": "provider",
    "server_error_500_v2.1.197": "provider",
    "skill": "ok",
    "skill_read": "ok",
    "skill_v2.1.197": "ok",
    "tools": "ok",
    "tools_v2.1.197": "ok",
    "unknown_model_404": "model-rejected",
    "unknown_model_404_v2.1.197": "model-rejected",
}


def _read(name: str) -> Read:
    return read_recording(ClaudeCodeAgent(), f"claude/{name}")


def _say(*records: dict[str, Any], exit_code: int = 0) -> Read:
    return read_output(ClaudeCodeAgent(), b"\n".join(json.dumps(record).encode() for record in records), exit_code)


def _block(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "assistant", "message": {"id": "m", "content": [{"type": kind, **fields}]}}


def _returned(call_id: str, content: Any, *, is_error: bool = False, **details: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call_id, "content": content, "is_error": is_error}
    return {"type": "user", "message": {"content": [block]}, "tool_use_result": details}


def _bash(command: str, content: str, *, is_error: bool = False, **details: Any) -> Read:
    call = _block("tool_use", id="c", name="Bash", input={"command": command})
    return _say(call, _returned("c", content, is_error=is_error, **details))


RESULT = {"type": "result", "subtype": "success", "is_error": False, "result": "Done."}


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
        ("server_error_500_v2.1.197", "server", 500),
        ("unknown_model_404", "model-rejected", 404),
        ("unknown_model_404_v2.1.197", "model-rejected", 404),
    ],
)
def test_an_error_of_the_provider_has_its_kind_and_status_and_is_no_answer(name: str, kind: str, status: int) -> None:
    read = _read(name)

    assert (read.of(Trouble)[-1].kind, read.of(Trouble)[-1].status) == (kind, status)
    assert read.of(Message) == []
    assert (read.session.final_output, read.session.steps) == ("", 0)


def test_an_error_is_no_success_even_if_the_program_says_0() -> None:
    output = Path(__file__).with_name("claude") / "server_error_500" / "stdout.jsonl"

    read = read_output(ClaudeCodeAgent(), output.read_bytes(), 0)

    assert read.verdict == "provider"


def test_trouble_that_was_overcome_is_told_and_does_not_count() -> None:
    read = _read("rate_limit_then_ok")

    assert [(trouble.kind, trouble.status) for trouble in read.of(Trouble)] == [("rate-limit", 429)]
    assert read.observer.trouble is None


@pytest.mark.parametrize("name", ["tools", "tools_v2.1.197"])
def test_tools_become_commands_reads_and_edits(name: str) -> None:
    session = _read(name).session

    assert session.commands() == ("echo hi > out.txt && ls",)
    assert session.file_reads() == ("notes.txt",)
    assert session.file_edits() == ("report.md",)
    assert [call.tool for call in session.tool_calls()] == ["Bash", "Read", "Write"]
    assert (session.steps, session.final_output) == (4, "skillgym ready")


def test_a_session_is_told_in_order() -> None:
    read = _read("tools")

    assert [event.type for event in read.events if not isinstance(event, UsageSeen)] == [
        "session_started",
        *("message", "message", "tool_call", "command", "tool_result"),
        *("tool_call", "file_read", "tool_result"),
        *("tool_call", "file_edit", "tool_result"),
        *("message", "final_output", "session_ended"),
    ]
    assert [(said.phase, said.text) for said in read.of(Message)] == [
        ("thinking", "I should look at the workspace first."),
        ("commentary", "Looking around."),
        ("final", "skillgym ready"),
    ]


def test_results_name_their_call() -> None:
    read = _read("tools")

    calls = [(call.id, call.tool) for call in read.of(ToolCall)]
    assert [(result.id, result.tool) for result in read.of(ToolResult)] == calls
    assert read.of(ToolResult)[0].output == "README.md\nnotes.txt\nout.txt"
    assert read.of(CommandRun)[0].exit_code == 0


def test_it_says_who_it_is() -> None:
    session = _read("plain").session

    assert session.session_id == "6d8295bc-b93b-41c5-8364-65fe7a57d8bf"
    assert (session.model, session.version) == ("claude-sonnet-4-5", "2.1.325")


@pytest.mark.parametrize("name", ["skill", "skill_v2.1.197"])
def test_a_skill_that_was_loaded_is_explicit(name: str) -> None:
    read = _read(name)

    assert [signal.skill for signal in read.of(SkillSignal)] == ["greeting"]
    assert [(skill.skill, skill.confidence) for skill in read.session.detected_skills] == [("greeting", "explicit")]
    assert read.session.steps == 3


@pytest.mark.parametrize("name", ["skill", "skill_v2.1.197"])
def test_the_text_of_a_skill_that_was_loaded_is_an_event_and_nothing_that_the_user_said(name: str) -> None:
    read = _read(name)

    (added,) = read.of(ContextAdded)
    assert "Greet in one line, end with a full stop." in added.text
    assert not any(message.role == "user" for message in read.of(Message))


def test_a_skill_that_was_read_is_strong() -> None:
    session = _read("skill_read").session

    assert [(skill.skill, skill.confidence) for skill in session.detected_skills] == [("greeting", "strong")]


def test_a_skill_that_could_not_be_loaded_was_only_asked_for() -> None:
    call = _block("tool_use", id="c", name="Skill", input={"skill": "nonexistent"})
    refusal = "<tool_use_error>Unknown skill: nonexistent</tool_use_error>"

    read = _say(call, _returned("c", refusal, is_error=True))

    (found,) = read.session.detected_skills
    assert (found.skill, found.confidence) == ("nonexistent", "weak")


@pytest.mark.parametrize(
    ("name", "gross", "cached", "output", "cost"),
    [
        ("plain", 1100, 0, 21, 0.003615),
        ("tools", 8000, 3000, 90, 0.01725),
        ("tools_v2.1.197", 8000, 3000, 90, 0.01725),
        ("skill", 5100, 1500, 66, 0.01224),
        ("resume/turn1", 1100, 0, 21, 0.003615),
        # The program tells the money of both turns; only this one's counts.
        ("resume/turn2", 1700, 500, 22, 0.00408),
    ],
)
def test_tokens_and_money_are_those_of_this_run(name: str, gross: int, cached: int, output: int, cost: float) -> None:
    usage = _read(name).session.usage

    assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens) == (gross, cached, output)
    assert usage.cost_usd == pytest.approx(cost)


def test_what_a_killed_session_read_is_known_and_what_it_wrote_is_not() -> None:
    usage = _read("killed_tool").session.usage

    assert (usage.input_tokens, usage.output_tokens) == (1100, None)


def test_thinking_tokens_are_told_where_the_program_tells_them() -> None:
    told, silent = _read("tools").session.usage, _read("tools_v2.1.197").session.usage

    assert (told.reasoning_tokens, silent.reasoning_tokens) == (0, None)


def test_a_refused_tool_did_nothing_and_the_session_goes_on() -> None:
    read = _read("permission_denied")

    assert read.session.commands() == ()
    assert [(call.tool, result.ok) for call, result in zip(read.of(ToolCall), read.of(ToolResult), strict=True)] == [
        ("Bash", False)
    ]
    assert [trouble.kind for trouble in read.of(Trouble)] == ["permission"]
    assert read.session.final_output == "I could not run it."


def test_a_command_that_was_cut_off_was_run() -> None:
    read = _say(_block("tool_use", id="c", name="Bash", input={"command": "make"}), exit_code=143)

    assert read.of(CommandRun) == [CommandRun(command="make")]
    assert read.verdict == "agent-crashed"


@pytest.mark.parametrize(
    ("content", "is_error", "details", "code"),
    [
        ("ok", False, {}, 0),
        ("Exit code 3\nout", True, {}, 3),
        ("Exit code 137", True, {}, 137),
        # A command may print the same words and succeed.
        ("Exit code 3", False, {}, 0),
        ("", False, {"returnCodeInterpretation": "No matches found"}, None),
        ("", False, {"backgroundTaskId": "b1"}, None),
        ("Command timed out after 2m", True, {}, None),
    ],
)
def test_exit_codes_are_told_where_they_are_known(content: str, is_error: bool, details: Any, code: int | None) -> None:
    read = _bash("make", content, is_error=is_error, **details)

    assert read.of(CommandRun)[0].exit_code == code


def test_a_call_that_was_not_valid_ran_nothing() -> None:
    read = _bash("sleep 60", "<tool_use_error>Blocked: sleep</tool_use_error>", is_error=True)

    assert read.of(CommandRun) == []


def test_the_program_decides_what_is_an_error_and_not_the_words_of_the_model() -> None:
    words = 'API Error: 404 {"error":"model_not_found"} Invalid API key'

    read = _say(_block("text", text=words), {**RESULT, "result": words})

    assert (read.verdict, read.of(Trouble), read.session.final_output) == ("ok", [], words)


def test_a_404_of_a_gateway_does_not_reject_the_model() -> None:
    read = _say({**RESULT, "is_error": True, "api_error_status": 404}, exit_code=1)

    assert read.verdict == "agent-not-started"


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        ("server_error", 529, "overloaded"),
        ("server_error", None, "server"),
        ("rate_limit", None, "rate-limit"),
        ("unknown", 400, "bad-request"),
        ("unknown", None, "other"),
        ("something_new", 418, "other"),
    ],
)
def test_an_error_is_judged_by_its_name_and_its_status(error: str, status: int | None, kind: str) -> None:
    said = {"type": "assistant", "error": error, "api_error_status": status, "message": {"content": []}}

    read = _say(said)

    assert [(trouble.kind, trouble.status) for trouble in read.of(Trouble)] == [(kind, status)]


def test_a_session_that_ran_out_of_turns_did_not_finish() -> None:
    read = _say(_block("text", text="So far."), {"type": "result", "subtype": "error_max_turns", "is_error": False})

    assert read.of(SessionEnded) == [SessionEnded(ok=False, reason="error_max_turns")]
    assert read.verdict == "unfinished"
    assert read.of(Message)[0].phase == "commentary"


def test_words_before_an_error_do_not_hide_it() -> None:
    said = {"type": "assistant", "error": "server_error", "api_error_status": 500, "message": {"content": []}}
    result = {**RESULT, "is_error": True, "api_error_status": 500}

    read = _say(_block("text", text="Looking."), said, result, exit_code=1)

    assert read.verdict == "provider"


def test_calls_at_once_are_one_step() -> None:
    calls = [_block("tool_use", id=name, name="Bash", input={"command": name}) for name in ("ls", "pwd")]
    results = [_returned(name, "ok") for name in ("pwd", "ls")]

    read = _say(*calls, *results, _block("text", text="Done."), RESULT)

    assert (read.session.steps, read.session.commands()) == (2, ("pwd", "ls"))


def test_half_of_a_character_does_not_lose_a_record() -> None:
    output = b'{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"cut \\ud83d"}]}}'

    read = read_output(ClaudeCodeAgent(), output)

    assert read.session.final_output == "cut ?"


def _command(options: dict[str, Any] | None = None, **given: Any) -> Any:
    runner = Runner(id="r", agent="claude-code", model=given.pop("model", None), options=options or {}, **given)
    environ = {"PATH": "/bin", "ANTHROPIC_API_KEY": "sk-1", "ANTHROPIC_BASE_URL": "http://127.0.0.1:1", "OTHER": "no"}
    return ClaudeCodeAgent().command(task(runner, environ={**environ, "HOME": "/nonexistent"}))


def test_the_prompt_goes_through_standard_input() -> None:
    asked = _command()

    assert asked.stdin == b"Say ready."
    assert asked.argv[:4] == ("claude", "-p", "--output-format", "stream-json")
    assert "Say ready." not in asked.argv


def test_model_arguments_and_program_come_from_the_runner() -> None:
    asked = _command({"command": "/opt/claude", "args": ["--max-turns", "3"]}, model="claude-x")

    assert asked.argv[0] == "/opt/claude"
    assert asked.argv[-4:] == ("--model", "claude-x", "--max-turns", "3")


def test_it_gets_a_home_of_its_own_and_the_credentials_and_little_else() -> None:
    env = _command({"env": {"DISABLE_TELEMETRY": "0"}}).env

    assert (env["HOME"], env["CLAUDE_CONFIG_DIR"]) == ("/tmp/ws/home", "/tmp/ws/home/.claude")
    assert (env["ANTHROPIC_API_KEY"], env["ANTHROPIC_BASE_URL"]) == ("sk-1", "http://127.0.0.1:1")
    assert (env["IS_SANDBOX"], env["DISABLE_AUTOUPDATER"]) == ("1", "1")
    assert env["DISABLE_TELEMETRY"] == "0"
    assert "OTHER" not in env


def test_a_runner_may_use_the_home_of_the_user() -> None:
    env = _command({"inherit_home": True}).env

    assert env["HOME"] == "/nonexistent"
    assert "CLAUDE_CONFIG_DIR" not in env


def test_login_and_skills_are_put_where_it_looks(tmp_path: Path) -> None:
    login = tmp_path / ".claude" / ".credentials.json"
    login.parent.mkdir()
    login.write_text("{}")
    runner = Runner(id="r", agent="claude-code", skills=(Path("/skills/greeting"),))

    asked = ClaudeCodeAgent().command(task(runner, environ={"HOME": str(tmp_path)}))

    assert asked.home_copies == {
        ".claude/.credentials.json": login,
        ".claude/skills/greeting": Path("/skills/greeting"),
    }
