"""Real agents, asked in their own sessions: they remember what they did, and the record stays as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from programs import KEY
from stage import Played, Stage

WHY = "Why did you write no tests?"
CHECK = f"""
    expect.soft.commands.includes(report, "pytest", explain={WHY!r})
    expect.soft.output.includes(report, "tested", explain="What would help you?")
"""
WORK = [
    {"run": "echo seven > made.txt", "usage": {"input": 1100, "output": 21}},
    {"say": "All is ready.", "usage": {"input": 1200, "output": 10}},
]
BECAUSE = {"say": "Nobody asked me to.", "usage": {"input": 1700, "cached": 500, "output": 22}}


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def explained(played: Played) -> list[dict[str, Any]]:
    file = played.outcome.artifact("a", "explanations.json")
    found: list[dict[str, Any]] = json.loads(file.read_bytes())["explanations"]
    return found


def test_kept_questions_are_answered_in_the_session_of_the_agent_each_with_its_own_artifacts(boxed: Stage) -> None:
    first = boxed.play(WORK, check=CHECK)
    assert first.verdict == ("failed", "assertion"), first.story

    asked = boxed.explain([BECAUSE, {"say": "A hint in the prompt."}])

    assert asked.outcome.code == 0, asked.outcome.stdout + asked.outcome.stderr
    assert "Nobody asked me to." in asked.outcome.stdout
    answers = explained(asked)
    assert [(each["status"], each["question"], each["answer"]) for each in answers] == [
        ("answered", WHY, "Nobody asked me to."),
        ("answered", "What would help you?", "A hint in the prompt."),
    ]
    session = asked.outcome.session("a")["session_id"]
    for number, each in enumerate(answers, 1):
        folder = asked.outcome.artifact("a", each["artifact_dir"])
        assert folder.name == str(number)
        assert each["answer"] in (folder / "events.jsonl").read_text()
        assert (folder / "transcript.jsonl").is_file()
        assert each["session_id"] == session
    assert answers[0]["expectation"].startswith('expected a command matching "pytest"')
    assert answers[0]["location"]["line"] > 0


def test_the_agent_remembers_its_task_and_no_question_hears_of_another(stage: Stage) -> None:
    stage.play(WORK, check=CHECK)

    asked = stage.explain([BECAUSE, {"say": "A hint."}])

    assert "Do it." in asked.turns[0].text
    assert "All is ready." in asked.turns[0].text
    assert "echo seven > made.txt" in asked.turns[0].text
    assert WHY in asked.turns[0].text
    assert WHY not in asked.turns[1].text


def test_an_answer_is_charged_with_its_own_tokens_and_not_with_those_of_the_whole_session(stage: Stage) -> None:
    stage.play(WORK, check=CHECK)

    asked = stage.explain([BECAUSE], "--ask", WHY)

    usage = explained(asked)[0]["usage"]
    assert (usage["input_tokens"], usage["cached_tokens"], usage["output_tokens"]) == (1700, 500, 22)
    assert not stage.program.has_price or usage["cost_usd"] > 0


def test_asking_changes_nothing_of_the_record_and_the_agent_finds_its_files(boxed: Stage) -> None:
    first = boxed.play(WORK, check=CHECK)
    before = everything(first.outcome.folder)
    steps = [{"run": "cat made.txt; echo eight > made.txt"}, BECAUSE]

    asked = boxed.explain(steps, "--ask", "What did you write?")

    assert asked.outcome.code == 0, asked.outcome.stdout + asked.outcome.stderr
    assert "seven" in asked.turns[1].text.split("What did you write?")[1]
    after = everything(first.outcome.folder)
    assert {name: after[name] for name in before} == before
    added = after.keys() - before.keys()
    # What answers cost is with the run, so that its history knows of it.
    assert {name for name in added if "explanations" not in name} == {"spent.jsonl"}
    assert any("explanations" in name for name in added)


def test_neither_key_nor_login_gets_into_what_is_kept_of_a_session(boxed: Stage) -> None:
    login = {"token": "login-of-the-user-000000"}
    for name in (".claude/.credentials.json", ".codex/auth.json", ".gemini/oauth_creds.json"):
        boxed.project.write(f"../home/{name}", json.dumps(login))
    boxed.project.write(
        "../home/.local/share/opencode/auth.json", json.dumps({"x": {"type": "api", "key": login["token"]}})
    )
    steps = [{"run": "env | sort; cat $HOME/.*/*.json $HOME/.local/share/opencode/*.json"}, WORK[1]]

    first = boxed.play(steps, check=CHECK)
    asked = boxed.explain([{"run": "env | sort"}, BECAUSE], "--ask", WHY)

    assert asked.outcome.code == 0, first.story + asked.outcome.stdout + asked.outcome.stderr
    kept = everything(first.outcome.folder)
    assert any("/state/" in name for name in kept)
    assert [name for name, data in kept.items() if KEY.encode() in data] == []
    assert [name for name, data in kept.items() if "/state/" in name and login["token"].encode() in data] == []


def test_a_question_after_a_timeout_finds_the_session_as_far_as_it_came(stage: Stage) -> None:
    # More than once: one of them asks its model again while a command still runs.
    steps = [{"run": "echo seven > made.txt"}, *[{"run": "sleep 300 & wait"}] * 20]
    first = stage.play(steps, "--timeout-ms", str(stage.program.start_ms), check="pass")
    assert first.verdict == ("failed", "timeout"), first.story

    asked = stage.explain([BECAUSE], "--ask", WHY, "--timeout-ms", "120000")

    if stage.program.agent == "copilot":
        assert "ended before its agent gave the id of its session" in asked.outcome.stderr
    else:
        assert asked.outcome.code == 0, first.story + asked.outcome.stdout + asked.outcome.stderr
        assert "echo seven > made.txt" in asked.turns[0].text


def test_a_provider_that_refuses_is_told_and_ends_the_asking(stage: Stage) -> None:
    stage.play(WORK, check=CHECK)

    asked = stage.explain([{"fail": "auth", "always": True}])

    assert asked.outcome.code == 3, asked.outcome.stdout + asked.outcome.stderr
    assert [(each["status"], each["failure"]["code"]) for each in explained(asked)] == [("errored", "key-refused")]
    assert "1 not asked" in asked.outcome.stdout
