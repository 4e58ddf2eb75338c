"""The contract kit: it reads what a good agent reads, and finds what a careless one does."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from whet.agents.contract import AgentCommand, AgentDefaults, Task
from whet.model.events import Event, FinalOutput, Message, SessionEnded, ToolCall, ToolResult, UsageSeen
from whet.testing.agent import ContractBroken, check_agent, garbled

LINES = [
    {"type": "call", "id": "1"},
    {"type": "result", "id": "1", "output": "x"},
    {"type": "usage", "tokens": 5},
    {"type": "end", "text": "done"},
]


class Careful(AgentDefaults):
    """Does everything right."""

    def command(self, task: Task) -> AgentCommand:
        return AgentCommand(argv=("careful",), env={}, announces_end=True, collect=("state/usage.json",))

    def events(self, record: bytes) -> Iterable[Event]:
        try:
            seen = json.loads(record)
        except (ValueError, RecursionError):
            return
        match seen:
            case {"type": "call", "id": str(name)}:
                yield ToolCall(id=name, tool="shell")
            case {"type": "result", "id": str(name), "output": str(output)}:
                yield ToolResult(id=name, output=output)
            case {"type": "usage", "tokens": int(tokens)}:
                yield UsageSeen(input_tokens=tokens)
            case {"type": "end", "text": str(text)}:
                yield from (FinalOutput(text=text), SessionEnded(ok=True))

    def ending(self, collected: Any) -> Iterable[Event]:
        data = collected.get("state/usage.json", b"")
        if data.isdigit():
            yield UsageSeen(output_tokens=int(data))


class Crashing(Careful):
    """Trusts that a text is a text."""

    def events(self, record: bytes) -> Iterable[Event]:
        yield from super().events(record)
        if b'"text"' in record:
            yield Message(role="assistant", text=json.loads(record)["text"].strip())


class Unchecked(Careful):
    """Passes on whatever it finds."""

    def events(self, record: bytes) -> Iterable[Event]:
        yield from super().events(record)
        try:
            seen = json.loads(record)
        except (ValueError, RecursionError):
            return
        if isinstance(seen, dict) and seen.get("type") == "end":
            yield Message(role="assistant", text=seen.get("text"))


class Forgetful(Careful):
    """Is another command each time."""

    count = 0

    def command(self, task: Task) -> AgentCommand:
        Forgetful.count += 1
        return AgentCommand(argv=("forgetful", str(Forgetful.count)), env={})


class Reaching(Careful):
    """Wants files that are not its own."""

    def command(self, task: Task) -> AgentCommand:
        return AgentCommand(argv=("reaching",), env={}, home_files={"../theirs": b""})


class Trusting(Careful):
    """Believes that its file is as it left it."""

    def ending(self, collected: Any) -> Iterable[Event]:
        return [UsageSeen(output_tokens=json.loads(data)) for data in collected.values()]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    write(tmp_path, LINES)
    (tmp_path / "usage.json").write_bytes(b"7")
    return tmp_path


def write(folder: Path, lines: list[dict[str, Any]]) -> None:
    (folder / "stdout.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_recording_is_read_into_a_session_with_what_was_collected(recording: Path) -> None:
    session, events = check_agent(Careful, recording)

    assert (session.final_output, session.complete, session.steps) == ("done", True, 1)
    assert (session.usage.input_tokens, session.usage.output_tokens) == (5, 7)
    assert [event.type for event in events][:2] == ["tool_call", "tool_result"]


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        (Crashing, "makes it raise"),
        (Unchecked, "an event is not valid"),
        (Forgetful, "another command each time"),
        (Reaching, "not a path below the home"),
        (Trusting, "a collected file"),
    ],
)
def test_an_agent_that_breaks_its_contract_is_told_how(agent: type[Careful], said: str, recording: Path) -> None:
    with pytest.raises(ContractBroken, match=said):
        check_agent(agent, recording)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([LINES[1], LINES[3]], "no call before it has"),
        ([LINES[0], LINES[0], LINES[3]], "two tool calls"),
        ([{"type": "usage", "tokens": -1}, LINES[3]], "input_tokens is -1"),
        (LINES[:3], "announces its end"),
    ],
)
def test_a_reading_that_cannot_be_true_is_told(lines: list[dict[str, Any]], said: str, tmp_path: Path) -> None:
    write(tmp_path, lines)

    with pytest.raises(ContractBroken, match=said):
        check_agent(Careful, tmp_path)


def test_a_session_that_was_stopped_has_no_end(tmp_path: Path) -> None:
    write(tmp_path, LINES[:1])

    session, _ = check_agent(Careful, tmp_path, complete=False)

    assert not session.complete


def test_a_folder_without_a_recording_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"stdout\.jsonl"):
        check_agent(Careful, tmp_path)


def test_only_a_few_records_of_a_kind_are_spoiled_so_that_a_long_recording_is_checked_in_time() -> None:
    lines = [json.dumps({"type": "usage", "tokens": number}).encode() for number in range(100)]

    few, many = ([*garbled(lines[:count])] for count in (10, 100))

    assert len(few) == len(many)
