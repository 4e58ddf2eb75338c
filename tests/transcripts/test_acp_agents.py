"""What five real agents say over the Agent Client Protocol is read as one kind of session, and nothing breaks it."""

from __future__ import annotations

import pytest
from reading import RECORDINGS, task

from whet.agents.acp.agent import AcpAgent
from whet.model import codec
from whet.model.events import CommandRun, Permission
from whet.model.run import Runner
from whet.testing.agent import check_agent, garbled

COMMANDS = {
    "claude": "claude-agent-acp",
    "codex": "codex-acp",
    "copilot": "copilot",
    "gemini": "gemini",
    "opencode": "opencode",
}


def runner(folder: str) -> Runner:
    return Runner(id="r", agent="acp", options={"command": COMMANDS[folder]})


@pytest.mark.parametrize("folder", COMMANDS)
def test_five_agents_that_do_the_same_are_seen_to_do_the_same(folder: str) -> None:
    session, events = check_agent(AcpAgent, RECORDINGS / "acp" / folder, runner=runner(folder))

    assert session.final_output == "All is ready."
    codes = {event.command: event.exit_code for event in events if isinstance(event, CommandRun)}
    assert "echo no; exit 3" in codes
    assert codes["echo no; exit 3"] == (None if folder == "gemini" else 3)
    assert [path for path in session.file_reads() if path.endswith("notes.txt")]
    assert [path for path in session.file_edits() if path.endswith("report.md")]
    # Its first command was refused in its read-only mode, and left no trace.
    assert ("echo hi > out.txt && ls" in codes) == (folder != "codex")
    asked = [event.tool for event in events if isinstance(event, Permission)]
    assert bool(asked) == (folder != "opencode")


@pytest.mark.parametrize("folder", COMMANDS)
def test_no_message_breaks_the_dialogue_or_its_reading(folder: str) -> None:
    lines = (RECORDINGS / "acp" / folder / "stdout.jsonl").read_bytes().splitlines()
    agent = AcpAgent()
    agent.command(task(runner(folder)))
    assert agent.dialogue is not None
    list(agent.dialogue.ask("Go."))
    opening = [line for line in lines if b'"method"' not in line][:3]

    seen = 0
    for line in (*opening, *garbled(lines)):
        for event in agent.events(line):
            seen += 1
            codec.decode_event(codec.encode(event))
        for said in agent.dialogue.hear(line):
            assert said.endswith(b"\n")

    list(agent.ending({}))
    assert seen > len(opening)


@pytest.mark.parametrize(
    ("usage", "read", "written"),
    [
        # The input leaves the cache out, or does not; the output leaves out what was thought, or does not.
        ({"inputTokens": 80, "outputTokens": 7, "cachedReadTokens": 20, "totalTokens": 107}, 100, 7),
        ({"inputTokens": 100, "outputTokens": 7, "cachedReadTokens": 20, "totalTokens": 107}, 100, 7),
        ({"inputTokens": 100, "outputTokens": 7, "thoughtTokens": 3, "totalTokens": 110}, 100, 10),
        (
            {"inputTokens": 80, "outputTokens": 7, "cachedReadTokens": 20, "thoughtTokens": 3, "totalTokens": 110},
            100,
            10,
        ),
        ({"inputTokens": 100, "outputTokens": 7}, 100, 7),
        ({"inputTokens": "many", "totalTokens": -1}, None, None),
    ],
)
def test_tokens_are_counted_as_those_of_other_agents(
    usage: dict[str, object], read: int | None, written: int | None
) -> None:
    from whet.agents.acp._events import read_tokens

    figures = read_tokens(usage)

    assert (figures["input_tokens"], figures["output_tokens"]) == (read, written)
