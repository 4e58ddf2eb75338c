"""Real agents in conversations: each turn goes on with the session before it, and is charged with its own tokens."""

from __future__ import annotations

import json

from stage import Stage

TURNS = ["Write seven into made.txt.", "What did you write?", "Thank you."]
STEPS = [
    {"run": "echo seven > made.txt", "usage": {"input": 1100, "output": 21}},
    {"say": "All is ready.", "usage": {"input": 1200, "output": 10}},
    {"run": "cat made.txt", "usage": {"input": 1300, "cached": 500, "output": 11}},
    {"say": "Seven.", "usage": {"input": 1400, "output": 12}},
    {"say": "You are welcome.", "usage": {"input": 1500, "output": 13}},
]
CHECK = f"""
    assert [turn.prompt for turn in report.turns] == {TURNS!r}
    assert [turn.final_output for turn in report.turns] == ["All is ready.", "Seven.", "You are welcome."]
    assert report.final_output == "You are welcome."
    assert [len(turn.commands()) for turn in report.turns] == [1, 1, 0]
    assert len({{turn.session_id for turn in report.turns}}) == 1
    assert [(turn.usage.input_tokens, turn.usage.output_tokens) for turn in report.turns] == [
        (2300, 31), (2700, 23), (1500, 13)
    ]
    assert (report.usage.input_tokens, report.usage.output_tokens, report.steps) == (6500, 67, 5)
    assert ctx.changes().created == ("made.txt",)
"""


def test_an_agent_goes_on_with_its_session_turn_by_turn_and_remembers_what_was_said(boxed: Stage) -> None:
    played = boxed.play(STEPS, check=CHECK, prompt=None, turns=TURNS)

    assert played.verdict == ("passed", None), played.story
    assert played.trial["turns"] == 3
    for heard in (*TURNS, "All is ready.", "Seven."):
        assert heard in played.turns[4].text
    assert [event["turn"] for event in played.events if event["type"] == "turn_started"] == [1, 2, 3]
    folders = [played.outcome.artifact("a", f"turns/{number}") for number in (1, 2, 3)]
    assert all((folder / "transcript.jsonl").is_file() for folder in folders)
    assert json.loads((folders[1] / "session.json").read_bytes())["final_output"] == "Seven."


def test_a_provider_that_fails_in_the_second_turn_makes_the_trial_errored(stage: Stage) -> None:
    played = stage.play([*STEPS[:2], {"fail": "auth", "always": True}], prompt=None, turns=TURNS)

    assert played.verdict == ("errored", "provider"), played.story
    assert played.trial["failure"]["message"].startswith("turn 2: ")
    assert played.trial["turns"] == 2
    assert played.trial["usage"]["input_tokens"] >= 2300


def test_a_question_about_a_conversation_is_asked_in_its_session(stage: Stage) -> None:
    check = 'expect.output.includes(report, "yes", explain="Why not?")'
    first = stage.play(STEPS, check=check, prompt=None, turns=TURNS)
    assert first.verdict == ("failed", "assertion"), first.story

    asked = stage.explain([{"say": "Nobody asked."}])

    assert asked.outcome.code == 0, asked.outcome.stdout + asked.outcome.stderr
    for heard in (*TURNS, "You are welcome.", "Why not?"):
        assert heard in asked.turns[0].text
