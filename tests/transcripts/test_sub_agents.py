"""Sub-agents in recordings of the real programs: what they did and took is in its place, and counted once."""

from __future__ import annotations

import json

import pytest
from reading import RECORDINGS, Read, read_output, read_recording, task
from test_every_agent import AGENTS

from whet import plugins
from whet.agents.claude_code import ClaudeCodeAgent
from whet.agents.contract import Agent
from whet.agents.gemini import Chats
from whet.model.events import CommandRun, FileRead, ToolCall, ToolResult
from whet.testing.agent import check_agent

PROGRAMS = ("claude", "gemini", "opencode")


def _agent(program: str) -> Agent:
    found: Agent = plugins.find("agents", AGENTS[program])()
    return found


def _read(program: str) -> Read:
    return read_recording(_agent(program), f"{program}/sub_agent")


@pytest.mark.parametrize("program", PROGRAMS)
def test_commands_and_reads_of_a_sub_agent_are_told_with_their_codes(program: str) -> None:
    read = _read(program)

    # Claude does not tell the code of a sub-agent's command that worked.
    first = None if program == "claude" else 0
    assert [(ran.command, ran.exit_code) for ran in read.of(CommandRun)] == [
        ("cat notes.txt", first),
        ("cat missing.txt", 1),
    ]
    assert read.of(FileRead) == [FileRead(path="notes.txt", at=each.at) for each in read.of(FileRead)]
    assert len(read.of(FileRead)) == 2
    assert read.session.final_output == "All is ready."


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_a_sub_agent_took_is_counted_once(program: str) -> None:
    usage = _read(program).session.usage

    assert (usage.input_tokens, usage.output_tokens) == (11_000, 1_160)


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_a_sub_agent_did_stands_between_the_call_and_its_result(program: str) -> None:
    events = _read(program).events

    call = next(index for index, event in enumerate(events) if isinstance(event, ToolCall))
    asked = events[call]
    assert isinstance(asked, ToolCall)
    result = next(i for i, event in enumerate(events) if isinstance(event, ToolResult) and event.id == asked.id)
    inside = [type(event) for event in events[call + 1 : result]]
    assert inside.count(CommandRun) == 2
    assert inside.count(ToolCall) == inside.count(ToolResult) >= 3


@pytest.mark.parametrize("program", ["gemini", "opencode"])
def test_without_the_files_of_the_home_the_rest_is_read(program: str) -> None:
    output = (RECORDINGS / program / "sub_agent" / "stdout.jsonl").read_bytes()

    read = read_output(_agent(program), output)

    assert read.session.final_output == "All is ready."
    assert read.of(CommandRun) == []


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_contract_of_agents_holds_with_the_files_of_the_home(program: str) -> None:
    checked = check_agent(plugins.find("agents", AGENTS[program]), RECORDINGS / program / "sub_agent")

    assert checked.session.final_output == "All is ready."


def _shell(output: str, shown: str, **more: str) -> bytes:
    answer = [{"functionResponse": {"response": {"output": output}}}]
    call = {"id": "c1", "name": "run_shell_command", "status": "success", "result": answer, "resultDisplay": shown}
    return json.dumps({"id": "m1", "type": "gemini", "toolCalls": [call | more]}).encode()


@pytest.mark.parametrize(
    ("output", "shown", "code"),
    [
        ("Output: alpha\nProcess Group PGID: 7", "alpha", 0),
        ("<untrusted_context>\nOutput: no\nExit Code: 3\nProcess Group PGID: 7\n</untrusted_context>", "no", 3),
        ("Output: (empty)\nExit Code: 1", "Command exited with code: 1", 1),
        # What a command prints is not what the program says of it.
        ("Output: a\nExit Code: 9\nProcess Group PGID: 7", "a\nExit Code: 9", 0),
        ("Output: (empty)\nSignal: 9", "", None),
        ("Command moved to background (PID: 7).", "", None),
    ],
)
def test_the_exit_code_of_a_command_of_gemini_is_what_the_model_was_told(
    output: str, shown: str, code: int | None
) -> None:
    assert Chats({"a.jsonl": _shell(output, shown)}).exit_code("c1") == code


def test_a_call_that_failed_or_that_nobody_knows_has_no_exit_code() -> None:
    chats = Chats({"a.jsonl": _shell("Output: a", "a", status="error")})

    assert chats.exit_code("c1") is None
    assert chats.exit_code("c2") is None


def test_blocks_of_two_sub_agents_that_work_at_once_are_counted_once_each() -> None:
    agent = ClaudeCodeAgent()
    agent.command(task())
    usage = {"input_tokens": 1000, "output_tokens": 1}
    lines = [
        {"type": "assistant", "parent_tool_use_id": author, "message": {"id": reply, "usage": usage, "content": []}}
        for author, reply in (("a", "1"), ("b", "2"), ("a", "1"), ("b", "2"))
    ]

    read = read_output(agent, "\n".join(map(json.dumps, lines)).encode())

    assert read.observer.usage().input_tokens == 2000
