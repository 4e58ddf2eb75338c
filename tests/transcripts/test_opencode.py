"""OpenCode: every recording of the real program is read into the right events and the right ending."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reading import Read, read_output, read_recording, task

from whet.agents.opencode import OpencodeAgent
from whet.model.events import CommandRun, FinalOutput, Message, SessionEnded, ToolCall, ToolResult, Trouble
from whet.model.run import Runner
from whet.model.session import Usage

VERDICTS = {
    "auth_401": "provider",
    "bad_model_400": "provider",
    "killed_stream": "agent-crashed",
    "killed_stream_group": "agent-crashed",
    "killed_tool": "agent-crashed",
    "killed_tool_group": "agent-crashed",
    "permission_denied": "unfinished",
    "plain": "ok",
    "rate_limit_then_ok": "ok",
    "resume/turn1": "ok",
    "resume/turn2": "ok",
    "server_error_500": "provider",
    "skill": "ok",
    "skill_no_ripgrep": "ok",
    "skill_read": "ok",
    "tools": "ok",
    "unknown_model_404": "model-rejected",
}
STEP = '{"type":"step_start","part":{"type":"step-start"}}'


def _read(name: str) -> Read:
    return read_recording(OpencodeAgent(), f"opencode/{name}")


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
def test_trouble_has_the_status_that_the_provider_answered_with(name: str, kind: str, status: int) -> None:
    read = _read(name)

    (trouble,) = read.of(Trouble)
    assert (trouble.kind, trouble.status) == (kind, status)
    assert read.session.usage == Usage()


def test_a_session_with_tools_is_seen_with_all_that_it_did() -> None:
    read = _read("tools")

    session = read.session
    assert read.of(CommandRun)[0].exit_code == 0
    assert session.commands() == ("echo hi > out.txt && ls",)
    assert session.file_reads() == ("notes.txt",)
    assert session.file_edits() == ("report.md",)
    assert session.final_output == "skillgym ready"
    assert session.steps == 4
    assert session.session_id == "ses_e1f83a2f5ffenGhdw5co5DQ8Sh"
    assert [(call.tool, call.id) for call in read.of(ToolCall)] == [
        ("bash", "call_stub000104"),
        ("read", "call_stub000106"),
        ("write", "call_stub000108"),
    ]
    assert [(result.id, result.ok) for result in read.of(ToolResult)] == [
        ("call_stub000104", True),
        ("call_stub000106", True),
        ("call_stub000108", True),
    ]


def test_messages_come_in_order_with_their_phases() -> None:
    read = _read("tools")

    assert [(message.phase, message.text) for message in read.of(Message)] == [
        ("thinking", "I should look at the workspace first."),
        ("commentary", "Looking around."),
        ("final", "skillgym ready"),
    ]
    assert read.of(Message)[0].at == "2026-11-15T18:33:30.468+00:00"


def test_tokens_are_gross_and_money_is_what_the_program_says() -> None:
    usage = _read("tools").session.usage

    assert (usage.input_tokens, usage.cached_tokens) == (8000, 3000)
    assert (usage.output_tokens, usage.reasoning_tokens) == (97, 7)
    assert usage.cost_usd == pytest.approx(0.005494)


def test_a_price_of_0_is_an_unknown_price() -> None:
    step = '{"type":"step_finish","part":{"reason":"stop","cost":0,"tokens":{"input":1,"output":2}}}'

    read = read_output(OpencodeAgent(), f"{STEP}\n{step}\n".encode())

    usage = read.session.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cost_usd, usage.cost_source) == (1, 2, None, None)


@pytest.mark.parametrize(
    ("name", "confidence"), [("skill", "explicit"), ("skill_read", "strong"), ("skill_no_ripgrep", "medium")]
)
def test_a_skill_is_seen_and_a_failed_load_is_no_explicit_one(name: str, confidence: str) -> None:
    read = _read(name)

    assert [(found.skill, found.confidence) for found in read.session.detected_skills] == [("greeting", confidence)]
    assert read.session.final_output == "Good morning, Ada."


def test_a_refused_command_did_not_run_and_leaves_the_session_unfinished() -> None:
    read = _read("permission_denied")

    assert read.session.commands() == ()
    assert [result.ok for result in read.of(ToolResult)] == [False]
    assert "rejected permission" in read.of(SessionEnded)[0].reason
    assert read.session.final_output == ""


def test_tools_called_side_by_side_are_one_step() -> None:
    state = '{"status":"completed","input":{"command":"ls"}}'
    tool = '{"type":"tool_use","part":{"tool":"bash","callID":"%d","state":' + state + "}}"
    finish = '{"type":"step_finish","part":{"reason":"%s"}}'
    said = '{"type":"text","part":{"text":"done"}}'
    lines = [STEP, tool % 1, tool % 2, finish % "tool-calls", STEP, said, finish % "stop"]

    read = read_output(OpencodeAgent(), "\n".join(lines).encode())

    assert read.session.steps == 2
    assert read.session.commands() == ("ls", "ls")


def test_an_error_after_a_finished_step_is_not_a_good_end() -> None:
    finish = '{"type":"step_finish","part":{"reason":"stop"}}'
    error = '{"type":"error","error":{"name":"APIError","data":{"message":"gone","statusCode":503}}}'

    read = read_output(OpencodeAgent(), f"{STEP}\n{finish}\n{error}\n".encode())

    assert read.verdict == "provider"


@pytest.mark.parametrize(
    ("name", "verdict"),
    [("APIError", "provider"), ("ProviderAuthError", "provider"), ("UnknownError", "agent-not-started")],
)
def test_an_error_without_a_status_is_told_by_its_name(name: str, verdict: str) -> None:
    error = json.dumps({"type": "error", "error": {"name": name, "data": {"message": "Cannot connect to API"}}})

    read = read_output(OpencodeAgent(), error.encode(), exit_code=1)

    assert read.verdict == verdict


def test_words_of_a_provider_in_an_answer_are_only_words() -> None:
    said = json.dumps({"type": "text", "part": {"text": '{"type":"error","error":{"data":{"statusCode":404}}}'}})
    finish = '{"type":"step_finish","part":{"reason":"stop"}}'

    read = read_output(OpencodeAgent(), f"{STEP}\n{said}\n{finish}\n".encode())

    assert read.verdict == "ok"
    assert read.of(Trouble) == []


def test_the_prompt_goes_through_standard_input_and_arguments_to_run() -> None:
    runner = Runner(id="r", agent="opencode", model="anthropic/large", options={"args": ["--agent", "build"]})

    asked = OpencodeAgent().command(task(runner, prompt="--help"))

    run = ("opencode", "run", "--format", "json", "--auto", "--thinking", "--print-logs", "--log-level", "INFO")
    assert asked.argv == (*run, "--model", "anthropic/large", "--agent", "build")
    assert asked.stdin == b"--help"
    assert asked.announces_end


def test_a_server_of_ones_own_is_set_up_without_writing_its_key_down() -> None:
    environ = {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "OPENAI_API_KEY": "sk-secret", "HOME": "/nonexistent"}
    runner = Runner(id="r", agent="opencode", model="stub/stub-model", options={"command": "/opt/opencode"})

    asked = OpencodeAgent().command(task(runner, environ=environ))

    config = json.loads(asked.home_files["opencode.json"])
    assert config["provider"]["stub"]["models"] == {"stub-model": {}}
    assert config["provider"]["stub"]["options"]["baseURL"] == "{env:OPENAI_BASE_URL}"
    assert b"sk-secret" not in asked.home_files["opencode.json"]
    assert asked.env["OPENCODE_CONFIG"] == "/tmp/ws/home/opencode.json"
    assert asked.env["OPENAI_API_KEY"] == "sk-secret"
    assert asked.argv[0] == "/opt/opencode"


def test_its_home_has_the_login_and_the_skills_and_nothing_else(tmp_path: Path) -> None:
    login = tmp_path / ".local/share/opencode/auth.json"
    login.parent.mkdir(parents=True)
    login.write_text("{}")
    runner = Runner(id="r", agent="opencode", skills=(Path("/suite/skills/greeting"),))

    asked = OpencodeAgent().command(task(runner, environ={"HOME": str(tmp_path), "AWS_SECRET": "no"}))

    assert asked.home_copies == {
        ".local/share/opencode/auth.json": login,
        ".config/opencode/skills/greeting": Path("/suite/skills/greeting"),
    }
    assert asked.env["HOME"] == "/tmp/ws/home"
    assert asked.env["OPENCODE_DISABLE_AUTOUPDATE"] == "1"
    assert "AWS_SECRET" not in asked.env


LOGGED = "timestamp=2026-11-16T13:04:07.9Z level={level} run=0ddd8d95 message={message}"
FOR_MODEL = "providerID=p modelID=m session.id=ses_1 small={small} agent=build mode=primary"


@pytest.mark.parametrize(
    ("level", "message", "meaning"),
    [
        ("INFO", f"stream {FOR_MODEL.format(small='false')}", "asked"),
        ("INFO", f"stream {FOR_MODEL.format(small='true')}", None),
        ("INFO", 'evaluated permission=bash pattern="echo hi"', "tool"),
        ("INFO", "loop session.id=ses_1 step=1", None),
    ],
)
def test_its_log_tells_when_the_model_is_asked_and_a_tool_begins(level: str, message: str, meaning: str | None) -> None:
    signs = OpencodeAgent().command(task()).log_signs
    assert signs is not None

    found = signs.line.match(f"{LOGGED.format(level=level, message=message)}\n".encode())

    assert found is not None
    assert signs.means.get(found["what"] or b"") == meaning


def test_its_log_tells_of_a_provider_that_fails() -> None:
    signs = OpencodeAgent().command(task()).log_signs
    assert signs is not None
    line = LOGGED.format(level="ERROR", message=f'"stream error" {FOR_MODEL.format(small="false")}')

    found = signs.line.match(f'{line} error.error="AI_APICallError: Overloaded."\n'.encode())

    assert found is not None
    assert (signs.means[found["what"]], found["said"]) == ("trouble", b"AI_APICallError: Overloaded.")


@pytest.mark.parametrize("line", ["timestamp=x level=ERROR run=1 message=fatal", "Error: cannot find module", "ok"])
def test_what_else_it_says_on_standard_error_is_kept(line: str) -> None:
    signs = OpencodeAgent().command(task()).log_signs

    assert signs is not None
    assert signs.line.match(f"{line}\n".encode()) is None


OVERFLOW = '{"type":"error","error":{"name":"ContextOverflowError","data":{"message":"too long","statusCode":400}}}'
SUMMARY = '{"type":"text","part":{"text":"A summary."}}'
GO_ON = '{"type":"text","part":{"text":"Go on.","synthetic":true,"metadata":{"compaction_continue":true}}}'
STOP = '{"type":"step_finish","part":{"reason":"stop"}}'


def test_a_summary_of_the_session_is_not_the_answer() -> None:
    output = [OVERFLOW, STEP, SUMMARY, STOP, GO_ON, OVERFLOW]

    read = read_output(OpencodeAgent(), "\n".join(output).encode(), exit_code=1)

    assert read.verdict == "prompt-too-long"
    assert read.of(FinalOutput) == []
    assert read.session.final_output == ""
    assert [(event.phase, event.text) for event in read.of(Message)] == [("thinking", "A summary.")]


def test_an_answer_after_a_summary_is_the_answer() -> None:
    answer = '{"type":"text","part":{"text":"Done."}}'
    output = [STEP, SUMMARY, STOP, GO_ON, STEP, answer, STOP]

    read = read_output(OpencodeAgent(), "\n".join(output).encode())

    assert read.verdict == "ok"
    assert read.session.final_output == "Done."
    assert [event.text for event in read.of(FinalOutput)] == ["Done."]
