"""Real agents do what a scripted model tells them, and a check sees it."""

from __future__ import annotations

from datetime import datetime, timedelta

from stage import SKILL, Stage

READY = {"say": "All is ready.", "usage": {"input": 1100, "cached": 300, "output": 21}}


def test_an_agent_answers_and_tells_who_it_is_and_what_it_took(boxed: Stage) -> None:
    check = 'assert report.final_output == ctx.final_output() == "All is ready."'

    played = boxed.play([READY], check=check)

    assert played.verdict == ("passed", None), played.story
    session = played.outcome.session("a")
    assert (session["complete"], session["exit_code"], session["steps"]) == (True, 0, 1)
    assert session["session_id"]
    assert (session["usage"]["input_tokens"], session["usage"]["output_tokens"]) == (1100, 21)
    assert session["usage"]["cached_tokens"] == 300
    assert len(played.turns) == 1
    assert boxed.project.left_after_a_while() == []


def test_what_an_agent_runs_reads_and_writes_is_seen_by_the_check(boxed: Stage) -> None:
    boxed.project.write("template/notes.txt", "alpha\nbeta\n")
    check = """
    assert "echo hi > out.txt && ls" in ctx.get_commands(), ctx.get_commands()
    assert [p for p in ctx.get_file_reads() if p.endswith("notes.txt")], ctx.get_file_reads()
    assert [p for p in report.file_edits() if p.endswith("report.md")], report.file_edits()
    assert set(ctx.changes().created) == {"out.txt", "report.md"}, ctx.changes()
    assert ctx.read("report.md").strip() == "# Report"
    assert ctx.final_output() == "All is ready."
    """
    steps = [
        {"think": "I look first.", "say": "Looking.", "run": "echo hi > out.txt && ls"},
        {"read": "notes.txt"},
        {"write": "report.md", "text": "# Report\n"},
        READY,
    ]

    played = boxed.play(steps, check=check)

    assert played.verdict == ("passed", None), played.story
    assert played.outcome.session("a")["steps"] == 4
    assert "alpha" in played.turns[2].text


def test_every_event_has_a_time_and_a_call_takes_as_long_as_its_command(stage: Stage) -> None:
    played = stage.play([{"run": "sleep 2"}, READY])

    assert played.verdict == ("passed", None), played.story
    at = {event["type"]: datetime.fromisoformat(event["at"]) for event in played.events}
    assert at["tool_result"] - at["tool_call"] > timedelta(seconds=1)


def test_a_failing_command_is_seen_with_its_exit_code_and_the_session_goes_on(stage: Stage) -> None:
    played = stage.play([{"run": "echo no; exit 3"}, READY])

    assert played.verdict == ("passed", None), played.story
    commands = [event for event in played.events if event["type"] == "command"]
    assert [event["command"] for event in commands] == ["echo no; exit 3"]
    assert commands[0]["exit_code"] == 3


def test_a_skill_under_test_is_offered_loaded_and_detected(boxed: Stage) -> None:
    played = boxed.play_skill()

    assert played.verdict == ("passed", None), played.story
    assert "How to tidy up a folder." in played.turns[0].text
    assert "TIDY-UP-BODY" in played.turns[1].text
    assert "TIDY-UP-BODY" not in played.turns[0].text


def test_what_speaks_for_a_skill_is_in_the_results_with_what_it_is_worth(stage: Stage) -> None:
    stage.project.write("skills/tidy-up/SKILL.md", SKILL)
    stage.project.write("skills/tidy-up/references/more.md", "Dust as well.\n")
    stage.project.write("skills/tidy-up/sweep.sh", "echo swept\n")
    stage.project.write("skills/unused/SKILL.md", SKILL.replace("tidy-up", "unused"))
    stage.runner = 'skills = ["./skills/tidy-up", "./skills/unused"]'
    folder = f"$HOME/{stage.program.skills}/tidy-up"
    steps = [
        {"say": "I could use the tidy-up skill.", "run": f"ls {folder}"},
        {"run": f"cat {folder}/references/more.md"},
        {"run": f"sh {folder}/sweep.sh"},
        READY,
    ]

    played = stage.play(steps, prompt="Use the unused skill.")

    assert played.verdict == ("passed", None), played.story
    (found,) = played.trial["detected_skills"]
    assert (found["skill"], found["confidence"]) == ("tidy-up", "medium"), played.story
    assert [(each["confidence"], each["why"]) for each in found["evidence"]] == [
        ("medium", f"read {folder}/references/more.md"),
        ("medium", f"ran sh {folder}/sweep.sh"),
        ("weak", 'said "tidy-up skill"'),
        ("weak", f"named its folder in ls {folder}"),
    ]
    assert "swept" in played.turns[3].text


def test_an_agent_is_stopped_when_it_begins_a_step_too_many(stage: Stage) -> None:
    steps = [{"run": f"echo {number}"} for number in range(6)]

    played = stage.play([*steps, READY], "--max-steps", "2")

    assert played.verdict == ("failed", "max-steps"), played.story
    assert played.trial["steps"] == 3
    assert len(played.turns) < 7
    assert stage.project.left_after_a_while() == []


def test_a_budget_is_held_as_soon_as_an_agent_tells_what_it_took(stage: Stage) -> None:
    wait = "python3 -c 'import time; time.sleep(2)'"
    steps = [{"run": wait, "usage": {"input": 20_000, "output": 5}}, {"run": wait}, {"run": wait}, READY]

    played = stage.play(steps, budget_usd=0.01)

    # A cost that nobody knows is not held to anything.
    expected = ("failed", "budget") if stage.program.has_price else ("passed", None)
    assert played.verdict == expected, played.story
    if stage.program.agent == "claude-code":
        assert len(played.turns) < len(steps)


def test_a_prompt_that_looks_like_a_flag_arrives_as_it_is(stage: Stage) -> None:
    prompt = "--version is what\nI ask -- about, {prompt} $HOME `id`"

    played = stage.play([READY], prompt=prompt)

    assert played.verdict == ("passed", None), played.story
    assert "--version is what\\nI ask -- about, {prompt} $HOME `id`" in played.turns[0].text


def test_a_prompt_of_200_kilobytes_arrives_whole(boxed: Stage) -> None:
    prompt = "0123456789" * 20_000

    played = boxed.play([READY], prompt=prompt)

    assert played.verdict == ("passed", None), played.story
    assert prompt in played.turns[0].text
