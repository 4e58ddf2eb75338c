"""Real agents over the Agent Client Protocol: what they do, what they ask for, and what becomes of an outage."""

from __future__ import annotations

import json
from typing import Any

import pytest
from programs import CLAUDE_ACP, CODEX_ACP, COPILOT_ACP, GEMINI_ACP, OPENCODE_ACP, OVER_ACP
from stage import Played, Stage
from test_real_conversations import STEPS, TURNS
from test_real_sessions import READY

pytestmark = [
    pytest.mark.more_agents,
    pytest.mark.parametrize("program", [pytest.param(each, id=each.agent) for each in OVER_ACP], indirect=True),
]
_TOOLS = [
    {"think": "I look first.", "say": "Looking.", "run": "echo hi > out.txt && ls"},
    {"read": "notes.txt"},
    {"write": "report.md", "text": "# Report\n"},
    {"run": "echo no; exit 3"},
    READY,
]


def _of(played: Played, kind: str) -> list[dict[str, Any]]:
    return [event for event in played.events if event["type"] == kind]


def test_an_agent_answers_and_tells_who_it_is(boxed: Stage) -> None:
    check = 'assert report.final_output == ctx.final_output() == "All is ready."'

    played = boxed.play([READY], check=check)

    assert played.verdict == ("passed", None), played.story
    session = played.outcome.session("a")
    assert (session["complete"], session["steps"]) == (True, 1), played.story
    assert session["session_id"]
    assert session["version"] == boxed.program.version
    assert boxed.program.model.rpartition("/")[2] in played.turns[0].path + played.turns[0].text
    assert boxed.project.left_after_a_while() == []


def test_what_an_agent_does_is_seen_by_the_check_with_thoughts_and_exit_codes(boxed: Stage) -> None:
    boxed.project.write("template/notes.txt", "alpha\nbeta\n")
    check = """
    assert "echo hi > out.txt && ls" in ctx.get_commands(), ctx.get_commands()
    assert [p for p in ctx.get_file_reads() if p.endswith("notes.txt")], ctx.get_file_reads()
    assert [p for p in report.file_edits() if p.endswith("report.md")], report.file_edits()
    assert set(ctx.changes().created) == {"out.txt", "report.md"}, ctx.changes()
    assert ctx.final_output() == "All is ready."
    """

    played = boxed.play(_TOOLS, check=check)

    assert played.verdict == ("passed", None), played.story
    assert played.outcome.session("a")["steps"] == 5
    thoughts = [event["text"] for event in _of(played, "message") if event.get("phase") == "thinking"]
    assert "I look first." in "".join(thoughts)
    codes = {event["command"]: event["exit_code"] for event in _of(played, "command")}
    # Gemini tells none.
    assert codes["echo no; exit 3"] == (None if boxed.program is GEMINI_ACP else 3), codes
    sent = played.outcome.artifact("a", "sent.jsonl").read_text().splitlines()
    assert [json.loads(line).get("method") for line in sent[:2]] == ["initialize", "session/new"]


def test_tokens_are_those_of_the_session_or_unknown_but_never_wrong(stage: Stage) -> None:
    steps = [{"run": "true", "usage": {"input": 500, "output": 9}}, READY]

    played = stage.play(steps)

    usage = played.outcome.session("a")["usage"]
    told = {name: usage[name] for name, source in usage["sources"].items() if source != "chars" and name in usage}
    whole = {"input_tokens": 1600, "cached_tokens": 300, "output_tokens": 30}
    expected = {
        CLAUDE_ACP.agent: {**whole, "cache_write_tokens": 0},
        COPILOT_ACP.agent: {**whole, "cache_write_tokens": 0, "reasoning_tokens": 0},
        # It leaves out what was thought, and does not say how much that was.
        GEMINI_ACP.agent: {"input_tokens": 1600},
    }
    assert told == expected.get(stage.program.agent, {}), played.story


def test_what_an_agent_asks_for_is_refused_by_the_policy(stage: Stage) -> None:
    stage.agent = 'permissions = "deny"'
    check = 'assert "out.txt" not in ctx.changes().created, ctx.changes()'

    played = stage.play([{"run": "touch out.txt"}, READY], check=check)

    asked = _of(played, "permission")
    if stage.program in (OPENCODE_ACP, CODEX_ACP):
        # OpenCode does not ask, and Codex refuses by itself in its read-only mode.
        assert asked == [], played.story
        return
    assert [(event["allowed"], event["policy"]) for event in asked] == [(False, "deny")], played.story
    assert _of(played, "command") == []
    assert not [event for event in _of(played, "tool_result") if event["ok"]], played.story


def test_a_skill_is_offered_loaded_and_detected(stage: Stage) -> None:
    played = stage.play_skill()

    assert played.verdict == ("passed", None), played.story
    assert "TIDY-UP-BODY" in played.turns[1].text


@pytest.mark.parametrize("fail", ["server", "auth", "rate-limit", "overloaded"])
def test_an_outage_is_errored(stage: Stage, fail: str) -> None:
    played = stage.play([{"fail": fail, "always": True, "retry_after": 0}], timeout_ms=120_000)

    assert played.verdict == ("errored", "provider"), played.story


def test_an_unknown_model_is_errored(stage: Stage) -> None:
    played = stage.play([{"fail": "model-rejected", "always": True}])

    assert played.verdict[0] == "errored", played.story


def test_at_its_time_limit_an_agent_is_told_to_stop_and_nothing_of_it_is_left(stage: Stage) -> None:
    wait = f"python3 -c 'import time; time.sleep(600)' {stage.project.token}"

    played = stage.play([{"run": wait}, READY], timeout_ms=min(stage.program.start_ms, 40_000))

    assert played.verdict == ("failed", "timeout"), played.story
    assert "session/cancel" in played.outcome.artifact("a", "sent.jsonl").read_text()
    assert stage.project.left_after_a_while() == []


def test_one_session_takes_all_turns_of_a_conversation_and_remembers_what_was_said(boxed: Stage) -> None:
    check = f"""
    assert [turn.prompt for turn in report.turns] == {TURNS!r}
    assert [turn.final_output for turn in report.turns] == ["All is ready.", "Seven.", "You are welcome."]
    assert [len(turn.commands()) for turn in report.turns] == [1, 1, 0]
    assert len({{turn.session_id for turn in report.turns}}) == 1
    assert (report.steps, ctx.changes().created) == (5, ("made.txt",))
    """

    played = boxed.play(STEPS, check=check, prompt=None, turns=TURNS)

    assert played.verdict == ("passed", None), played.story
    for heard in (*TURNS, "All is ready.", "Seven."):
        assert heard in played.turns[4].text
    sent = [played.outcome.artifact("a", f"turns/{number}/sent.jsonl").read_text() for number in (1, 2, 3)]
    assert [text.count('"session/new"') for text in sent] == [1, 0, 0]
    usage = [turn["usage"] for turn in played.outcome.session("a")["turns"]]
    read = [each["input_tokens"] for each in usage if each["sources"].get("input_tokens") not in (None, "chars")]
    # Those that report tokens report them for each turn.
    assert read in ([], [2300, 2700, 1500]), played.story
    assert boxed.project.left_after_a_while() == []
