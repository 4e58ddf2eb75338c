"""Cursor's agent: records written by hand, after the documented form, are read into the right events and endings."""

from __future__ import annotations

from pathlib import Path

import pytest
from reading import RECORDINGS, Read, read_output, read_recording, task

from whet.agents.cursor import CursorAgent
from whet.model.events import CommandRun, Message, SessionEnded, ToolCall, ToolResult, Trouble
from whet.model.run import Runner
from whet.model.suite import Case

VERDICTS = {
    "command_failed": "ok",
    "error_with_exit_0": "agent-not-started",
    "function": "ok",
    "killed_stream": "agent-crashed",
    "killed_tool": "agent-crashed",
    "no_login": "agent-not-started",
    "permission_denied": "ok",
    "plain": "ok",
    "skill": "ok",
    "skill_failed": "ok",
    "skill_read": "ok",
    "tools": "ok",
}


def _read(name: str) -> Read:
    return read_recording(CursorAgent(), f"cursor/{name}")


@pytest.mark.parametrize(("name", "verdict"), VERDICTS.items())
def test_every_ending_gets_the_right_verdict(name: str, verdict: str) -> None:
    read = _read(name)

    assert read.verdict == verdict


def test_an_error_with_exit_code_0_says_why() -> None:
    read = _read("error_with_exit_0")

    assert [(ended.ok, ended.reason) for ended in read.of(SessionEnded)] == [
        (False, "the model provider is unavailable")
    ]
    assert read.session.final_output == ""


def test_a_session_with_tools_is_seen_with_all_that_it_did() -> None:
    read = _read("tools")

    session = read.session
    assert session.commands() == ("echo hi > out.txt && ls",)
    assert read.of(CommandRun)[0].exit_code == 0
    assert session.file_reads() == ("notes.txt",)
    assert session.file_edits() == ("report.md",)
    assert session.steps == 4
    assert session.model == "Auto"
    assert [(call.tool, call.id) for call in read.of(ToolCall)] == [
        ("shell", "t1"),
        ("read", "t2"),
        ("edit", "t3"),
        ("update-todos", "t4"),
    ]
    assert [(result.id, result.ok) for result in read.of(ToolResult)] == [
        ("t2", True),
        ("t1", True),
        ("t3", True),
        ("t4", True),
    ]


def test_the_answer_is_what_was_said_last_and_not_all_of_it() -> None:
    read = _read("tools")

    assert [(message.phase, message.text) for message in read.of(Message)][1:] == [
        ("thinking", "I should look at the workspace first."),
        ("commentary", "Looking around."),
        ("final", "skillgym ready"),
    ]
    assert read.session.final_output == "skillgym ready"


def test_input_tokens_include_those_of_the_cache() -> None:
    usage = _read("tools").session.usage

    assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens) == (6608, 3000, 97)
    assert usage.reasoning_tokens is None


def test_a_failing_command_has_its_exit_code_and_read_nothing() -> None:
    read = _read("command_failed")

    assert [(command.command, command.exit_code) for command in read.of(CommandRun)] == [
        ("cat notes.txt missing.txt", 1)
    ]
    assert [result.ok for result in read.of(ToolResult)] == [False]
    assert read.session.file_reads() == ()


def test_paths_are_those_of_the_folder_that_a_command_ran_in() -> None:
    output = (RECORDINGS / "cursor/command_failed/stdout.jsonl").read_bytes()

    read = read_output(CursorAgent(), output.replace(b'"exitCode":1', b'"exitCode":0'))

    assert read.session.file_reads() == ("sub/notes.txt", "sub/missing.txt")


@pytest.mark.parametrize(
    ("name", "confidence"), [("skill", "explicit"), ("skill_read", "strong"), ("skill_failed", "weak")]
)
def test_a_skill_is_seen_and_a_failed_load_is_no_explicit_one(name: str, confidence: str) -> None:
    read = _read(name)

    assert [(found.skill, found.confidence) for found in read.session.detected_skills] == [("greeting", confidence)]


def test_a_rejected_command_did_not_run() -> None:
    read = _read("permission_denied")

    assert read.session.commands() == ()
    assert [(trouble.kind, trouble.message) for trouble in read.of(Trouble)] == [("permission", "not allowed")]


def test_a_tool_without_a_field_of_its_own_has_its_name() -> None:
    read = _read("function")

    assert [(call.tool, call.args) for call in read.of(ToolCall)] == [("lookup", {"word": "whet"})]


def test_a_command_that_was_cut_off_is_still_seen() -> None:
    read = _read("killed_tool")

    assert read.session.commands() == ("python3 -c 'import time; time.sleep(71)'",)


def test_a_prompt_that_looks_like_an_option_is_none() -> None:
    runner = Runner(id="r", agent="cursor-agent", model="large", options={"args": ["--approve-mcps"]})

    asked = CursorAgent().command(task(runner, prompt="--help"))

    mode = ("-p", "--output-format", "stream-json", "--trust", "--force", "--workspace", "/tmp/ws/demo")
    assert asked.argv == ("cursor-agent", *mode, "--model", "large", "--approve-mcps", "--", "--help")
    assert asked.announces_end


def test_credentials_and_skills_come_along() -> None:
    runner = Runner(id="r", agent="cursor-agent", options={"command": "agent"}, skills=(Path("/suite/greeting"),))

    asked = CursorAgent().command(task(runner, environ={"CURSOR_API_KEY": "key", "OTHER": "x"}))

    assert asked.argv[0] == "agent"
    assert asked.env["CURSOR_API_KEY"] == "key"
    assert "OTHER" not in asked.env
    assert asked.home_copies == {".cursor/skills/greeting": Path("/suite/greeting")}


def test_a_prompt_that_does_not_fit_into_an_argument_is_found_before_anything_starts() -> None:
    cases = [Case(id="short", prompt="Go.", checks=()), Case(id="long", prompt="x" * 128 * 1024, checks=())]

    problems = list(CursorAgent().problems(Runner(id="r", agent="cursor-agent"), cases))

    assert problems == ["case long: its prompt is longer than the 128 KiB that an argument may have"]
