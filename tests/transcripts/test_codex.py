"""Codex: every recording of the real program is read into the right events and the right ending."""

from __future__ import annotations

import json
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from reading import Read, read_output, read_recording, task

from whet.agents.codex import CodexAgent
from whet.agents.contract import AgentCommand
from whet.model.events import CommandRun, FinalOutput, Message, ToolCall, ToolResult, Trouble
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
    "rate_limit_then_ok": "ok",
    "resume/turn1": "ok",
    "resume/turn2": "ok",
    "server_error_500": "provider",
    "skill": "ok",
    "skill_read": "ok",
    "tools": "ok",
    "tools_codemode": "ok",
    "unknown_model_404": "model-rejected",
}


def _read(name: str) -> Read:
    return read_recording(CodexAgent(), f"codex/{name}")


def _say(*records: dict[str, Any], exit_code: int = 0) -> Read:
    return read_output(CodexAgent(), b"\n".join(json.dumps(record).encode() for record in records), exit_code)


def _done(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "item.completed", "item": {"id": "item_0", "type": kind, **fields}}


def _failed(message: str) -> Read:
    return _say({"type": "turn.failed", "error": {"message": message}}, exit_code=1)


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
        ("unknown_model_404", "model-rejected", 404),
    ],
)
def test_an_error_of_the_provider_has_its_kind_and_status(name: str, kind: str, status: int) -> None:
    read = _read(name)

    assert (read.of(Trouble)[-1].kind, read.of(Trouble)[-1].status) == (kind, status)
    assert read.session.steps == 0


def test_the_answer_of_the_provider_is_told_without_its_wrapping() -> None:
    read = _read("bad_model_400")

    assert read.of(Trouble)[-1].message == "The 'no-such-model' model is not supported."


def test_trouble_that_was_overcome_is_told_and_does_not_count() -> None:
    read = _read("rate_limit_then_ok")

    assert [(trouble.kind, trouble.status) for trouble in read.of(Trouble)] == [("rate-limit", 429)]
    assert read.observer.trouble is None


@pytest.mark.parametrize("name", ["tools", "tools_codemode"])
def test_tools_become_commands_reads_and_edits(name: str) -> None:
    session = _read(name).session

    assert session.commands() == ("echo hi > out.txt && ls", "cat notes.txt")
    assert session.file_reads() == ("notes.txt",)
    assert session.file_edits() == ("report.md",)
    assert [call.tool for call in session.tool_calls()] == ["shell", "shell", "apply_patch"]
    assert (session.steps, session.final_output) == (4, "skillgym ready")


def test_a_session_is_told_in_order() -> None:
    read = _read("tools")

    assert [event.type for event in read.events] == [
        "session_started",
        *("message", "message", "tool_call", "command", "tool_result"),
        *("tool_call", "command", "file_read", "tool_result"),
        *("tool_call", "file_edit", "tool_result"),
        *("message", "final_output", "usage", "session_ended"),
    ]
    assert [(said.phase, said.text) for said in read.of(Message)] == [
        ("thinking", "I should look at the workspace first."),
        ("commentary", "Looking around."),
        ("final", "skillgym ready"),
    ]


def test_results_name_their_call_and_commands_their_exit_code() -> None:
    read = _read("tools")

    assert [(result.id, result.tool) for result in read.of(ToolResult)] == [
        (call.id, call.tool) for call in read.of(ToolCall)
    ]
    assert [command.exit_code for command in read.of(CommandRun)] == [0, 0]
    assert read.of(ToolResult)[1].output == "alpha\nbeta\n"


@pytest.mark.parametrize("name", ["skill", "skill_read"])
def test_a_skill_that_was_read_is_strong(name: str) -> None:
    session = _read(name).session

    assert [(skill.skill, skill.confidence) for skill in session.detected_skills] == [("greeting", "strong")]


def test_the_same_session_goes_on_under_its_id() -> None:
    first, second = _read("resume/turn1").session, _read("resume/turn2").session

    assert first.session_id == second.session_id == "01a1e07c-33c9-7961-ab38-41a6c96add8d"


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("plain", (1100, 0, 21, 0)),
        ("tools", (8000, 3000, 97, 7)),
        ("skill", (5100, 1500, 66, 0)),
        ("permission_denied", (2800, 500, 43, 0)),
        # Totals of the whole session: the program does not tell them apart.
        ("resume/turn2", (2800, 500, 43, 0)),
        ("killed_tool", (None, None, None, None)),
        ("auth_401", (None, None, None, None)),
    ],
)
def test_tokens_count_cached_ones_as_input_and_reasoning_as_output(name: str, usage: tuple[int | None, ...]) -> None:
    told = _read(name).session.usage

    assert (told.input_tokens, told.cached_tokens, told.output_tokens, told.reasoning_tokens) == usage


def test_totals_of_a_session_are_not_counted_twice() -> None:
    def turn(tokens: int) -> dict[str, Any]:
        return {"type": "turn.completed", "usage": {"input_tokens": tokens, "output_tokens": tokens}}

    read = _say(_done("agent_message", text="One."), turn(10), _done("agent_message", text="Two."), turn(25))

    assert (read.session.usage.input_tokens, read.session.usage.output_tokens) == (25, 25)
    assert read.session.final_output == "Two."


def test_a_command_that_was_cut_off_was_run() -> None:
    read = _read("killed_tool")

    assert read.of(CommandRun) == [CommandRun(command="python3 -c 'import time; time.sleep(71)'")]


def test_a_command_that_failed_has_its_exit_code_and_read_nothing() -> None:
    fields = {"aggregated_output": "no such file\n", "exit_code": 1, "status": "failed"}

    read = _say(_done("command_execution", command="/bin/bash -lc 'cat missing.txt'", **fields))

    assert read.of(CommandRun) == [CommandRun(command="cat missing.txt", exit_code=1)]
    assert (read.session.file_reads(), read.of(ToolResult)[0].ok) == ((), False)


def test_a_change_that_failed_or_was_declined_changed_nothing() -> None:
    changes = [{"path": "/tmp/ws/demo/a.py", "kind": "update"}]

    reads = [
        _say(_done("file_change", changes=changes, status=status)) for status in ("failed", "declined", "completed")
    ]

    assert [read.session.file_edits() for read in reads] == [(), (), ("a.py",)]


def test_a_tool_of_a_server_has_its_name_and_result() -> None:
    fields = {"server": "docs", "tool": "search", "arguments": {"q": "x"}, "status": "completed"}

    read = _say(_done("mcp_tool_call", **fields, result={"content": [{"type": "text", "text": "found"}]}))

    assert [(call.tool, call.args) for call in read.of(ToolCall)] == [("mcp__docs__search", {"q": "x"})]
    assert read.of(ToolResult)[0].output == "found"


def test_a_warning_is_no_trouble() -> None:
    read = _say(_done("error", message="unexpected status 401 Unauthorized"))

    assert read.events == ()


@pytest.mark.parametrize(
    ("message", "kind", "status"),
    [
        ("Selected model is at capacity. Please try a different model.", "overloaded", 503),
        ("exceeded retry limit, last status: 429 Too Many Requests", "rate-limit", 429),
        ("stream disconnected before completion: eof", "network", None),
        ("unexpected status 403 Forbidden: no", "auth", 403),
        ('{"error": {"message": "no", "code": "model_not_found"}}', "model-rejected", 400),
        # Only what stands in front counts: the rest may quote anything.
        ("cannot do it: unexpected status 401, The model `x` does not exist", "other", None),
    ],
)
def test_an_error_is_judged_by_how_it_begins(message: str, kind: str, status: int | None) -> None:
    read = _failed(message)

    assert [(trouble.kind, trouble.status) for trouble in read.of(Trouble)] == [(kind, status)]


def test_the_words_of_the_model_are_no_error() -> None:
    words = "unexpected status 401 Unauthorized: The model `x` does not exist"

    read = _say(_done("agent_message", text=words), {"type": "turn.completed", "usage": {}})

    assert (read.verdict, read.of(Trouble), read.session.final_output) == ("ok", [], words)


def test_a_failed_turn_has_no_answer() -> None:
    read = _say(_done("agent_message", text="So far."), {"type": "turn.failed", "error": {"message": "no"}})

    assert read.of(FinalOutput) == []
    assert (read.verdict, read.of(Message)[0].phase) == ("unfinished", "commentary")


def _command(options: dict[str, Any] | None = None, environ: dict[str, str] | None = None, **given: Any) -> Any:
    runner = Runner(id="r", agent="codex", options=options or {}, **given)
    return CodexAgent().command(task(runner, environ={"PATH": "/bin", "HOME": "/nonexistent", **(environ or {})}))


def test_the_prompt_goes_through_standard_input() -> None:
    asked = _command()

    assert asked.stdin == b"Say ready."
    assert asked.argv[:3] == ("codex", "exec", "--json")
    assert "Say ready." not in asked.argv


def test_model_arguments_and_program_come_from_the_runner() -> None:
    asked = _command({"command": "/opt/codex", "args": ["-c", "model_verbosity=low"]}, model="gpt-x")

    assert asked.argv[:2] == ("/opt/codex", "exec")
    assert asked.argv[-4:] == ("--model", "gpt-x", "-c", "model_verbosity=low")


def test_it_gets_a_home_of_its_own_and_a_key_that_it_takes() -> None:
    env = _command(environ={"OPENAI_API_KEY": "sk-1", "OTHER": "no"}).env

    assert (env["HOME"], env["CODEX_HOME"]) == ("/tmp/ws/home", "/tmp/ws/home/.codex")
    assert (env["OPENAI_API_KEY"], env["CODEX_API_KEY"]) == ("sk-1", "sk-1")
    assert "OTHER" not in env


def _settings(asked: AgentCommand) -> dict[str, Any]:
    """What it is told by `-c`, read as it reads them."""
    given = [value for flag, value in pairwise(asked.argv) if flag == "-c"]
    return tomllib.loads("\n".join(given))


def test_its_settings_turn_off_what_calls_home() -> None:
    settings = _settings(_command())

    assert settings["features"] == {"plugins": False}
    assert settings["analytics"] == {"enabled": False}
    assert "model_provider" not in settings


def test_an_address_in_the_environment_becomes_a_provider() -> None:
    asked = _command({"env": {"OPENAI_BASE_URL": 'http://127.0.0.1:1/"v1'}}, {"OPENAI_API_KEY": "sk-1"})

    settings = _settings(asked)
    provider = settings["model_providers"][settings["model_provider"]]
    assert (provider["base_url"], provider["wire_api"]) == ('http://127.0.0.1:1/"v1', "responses")
    assert asked.env[provider["env_key"]] == "sk-1"


def test_without_a_key_the_provider_takes_the_login_of_the_home() -> None:
    settings = _settings(_command({"env": {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}}))

    provider = settings["model_providers"][settings["model_provider"]]
    assert provider["requires_openai_auth"] is True
    assert "env_key" not in provider


def test_a_runner_may_use_the_home_of_the_user() -> None:
    env = _command({"inherit_home": True}).env

    assert env["HOME"] == "/nonexistent"
    assert "CODEX_HOME" not in env


def test_its_settings_count_in_the_home_of_the_user_and_nothing_is_written_there() -> None:
    asked = _command({"inherit_home": True, "env": {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}})

    assert _settings(asked)["model_provider"] == "whet"
    assert asked.home_files == asked.home_copies == {}


def test_login_and_skills_are_put_where_it_looks(tmp_path: Path) -> None:
    login = tmp_path / ".codex" / "auth.json"
    login.parent.mkdir()
    login.write_text("{}")

    asked = _command(environ={"HOME": str(tmp_path)}, skills=(Path("/skills/greeting"),))

    assert asked.home_copies == {".codex/auth.json": login, ".agents/skills/greeting": Path("/skills/greeting")}
