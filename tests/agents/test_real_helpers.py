"""Real agents with sub-agents, commands of unknown end, and skills that the prompt itself invokes."""

from __future__ import annotations

from typing import Any

import pytest
from programs import ALWAYS, CLAUDE_CODE, CODEX, GEMINI, OPENCODE, Program
from stage import SKILL, Stage

READY = {"say": "All is ready.", "usage": {"input": 3000, "output": 30}}
# How each of them asks for a sub-agent, and how that one ends.
HELPERS: dict[str, dict[str, Any]] = {
    "claude-code": {"call": "Task", "args": {"description": "look", "prompt": "Look.", "subagent_type": "Explore"}},
    "opencode": {"call": "task", "args": {"description": "look", "prompt": "Look.", "subagent_type": "general"}},
    "gemini": {"call": "invoke_agent", "args": {"agent_name": "generalist", "prompt": "Look."}},
}
DONE: dict[str, Any] = {"say": "It says alpha.", "usage": {"input": 2000, "output": 500}}
DONES = {
    "gemini": {"call": "complete_task", "args": {"result": {"response": "It says alpha."}}, "usage": DONE["usage"]}
}
# How a prompt invokes a skill, where a program has a form for it.
FORMS = {"claude-code": "/tidy-up for 2.0", "codex": "Please $tidy-up for 2.0"}


def by(*programs: Program) -> pytest.MarkDecorator:
    """Only for those programs that can do what a test is about."""
    marks = {program: () if program in ALWAYS else pytest.mark.more_agents for program in programs}
    params = [pytest.param(program, id=program.agent, marks=marks[program]) for program in programs]
    return pytest.mark.parametrize("program", params, indirect=True)


def helped(stage: Stage) -> list[dict[str, Any]]:
    """A sub-agent's work between two rounds of the agent: in all 11,000 tokens in and 1,160 out."""
    agent = stage.program.agent
    return [
        {**HELPERS[agent], "usage": {"input": 1000, "output": 10}},
        {"run": "cat notes.txt", "usage": {"input": 2000, "output": 500}},
        {"run": "cat missing.txt", "usage": {"input": 2000, "output": 100}},
        {"read": "notes.txt", "usage": {"input": 1000, "output": 20}},
        DONES.get(agent, DONE),
        READY,
    ]


@by(CLAUDE_CODE, OPENCODE, GEMINI)
def test_what_a_sub_agent_takes_runs_and_reads_is_that_of_the_session(boxed: Stage) -> None:
    boxed.project.write("template/notes.txt", "alpha\nbeta\n")

    played = boxed.play(helped(boxed))

    assert played.verdict == ("passed", None), played.story
    session = played.outcome.session("a")
    assert session["final_output"] == "All is ready."
    assert (session["usage"]["input_tokens"], session["usage"]["output_tokens"]) == (11_000, 1_160), played.story
    commands = [event for event in played.events if event["type"] == "command"]
    # Claude does not tell the code of a sub-agent's command that worked.
    worked = None if boxed.program.agent == "claude-code" else 0
    assert [(event["command"], event["exit_code"]) for event in commands] == [
        ("cat notes.txt", worked),
        ("cat missing.txt", 1),
    ]
    assert [event["path"] for event in played.events if event["type"] == "file_read"] == ["notes.txt", "notes.txt"]
    # In their places: before the sub-agent gave its answer, and before the agent did.
    kinds = [event["type"] for event in played.events]
    assert kinds.index("command") < kinds.index("final_output")


def test_a_read_that_failed_speaks_for_no_skill(stage: Stage) -> None:
    ghost = f"{stage.program.skills}/ghost/SKILL.md"

    played = stage.play([{"run": f"cat $HOME/{ghost}"}, READY])

    assert played.verdict == ("passed", None), played.story
    (command,) = [event for event in played.events if event["type"] == "command"]
    assert command["exit_code"] == 1, played.story
    assert [event for event in played.events if event["type"] == "file_read"] == []
    (found,) = played.trial["detected_skills"]
    assert (found["skill"], found["confidence"]) == ("ghost", "weak")


@by(CLAUDE_CODE)
def test_a_script_is_found_where_the_command_before_went(stage: Stage) -> None:
    folder = ".claude/skills/tidy-up"
    stage.project.write(f"template/{folder}/SKILL.md", SKILL)
    stage.project.write(f"template/{folder}/scripts/sweep.sh", "echo swept\n")
    steps = [
        {"run": f"cd {folder}"},
        {"run": "sh scripts/sweep.sh"},
        {"run": "cd /"},
        {"run": f"sh {folder}/scripts/sweep.sh"},
        {"run": "cat SKILL.md; true"},
        READY,
    ]

    played = stage.play(steps)

    commands = [event for event in played.events if event["type"] == "command"]
    assert [event["cwd"] for event in commands] == [None, folder, folder, None, None], played.story
    (found,) = played.trial["detected_skills"]
    assert [(each["confidence"], each["why"]) for each in found["evidence"]] == [
        ("medium", "ran sh scripts/sweep.sh"),
        ("medium", f"ran sh {folder}/scripts/sweep.sh"),
        ("weak", f"named its folder in cd {folder}"),
    ]


@by(CLAUDE_CODE)
def test_a_command_in_the_background_has_no_exit_code(stage: Stage) -> None:
    command = {"command": "cat notes.txt", "description": "Look.", "run_in_background": True}

    # It says once more that it is ready when it hears that the command has ended.
    played = stage.play([{"call": "Bash", "args": command}, {**READY, "always": True}])

    assert played.verdict == ("passed", None), played.story
    (ran,) = [event for event in played.events if event["type"] == "command"]
    assert ran["exit_code"] is None


def test_a_skill_that_the_prompt_invokes_is_explicit(boxed: Stage) -> None:
    boxed.project.write("skills/tidy-up/SKILL.md", SKILL)
    boxed.runner = 'skills = ["./skills/tidy-up"]'
    prompt = FORMS.get(boxed.program.agent, "/tidy-up for 2.0")

    played = boxed.play([READY], prompt=prompt)

    assert played.verdict == ("passed", None), played.story
    found = {each["skill"]: each["confidence"] for each in played.trial["detected_skills"]}
    # What counts is what the program itself does with such a prompt.
    invoked = "TIDY-UP-BODY" in played.turns[0].text
    assert invoked == (boxed.program.agent in FORMS)
    assert found == ({"tidy-up": "explicit"} if invoked else {})


@pytest.mark.parametrize(
    "prompt", ["/usr is where $HOME is not", "/no-such-skill for 2.0", "$no-such-skill for 2.0", "see /tidy-up/notes"]
)
def test_a_prompt_that_mentions_a_path_or_a_skill_that_is_not_there_invokes_none(stage: Stage, prompt: str) -> None:
    stage.project.write("skills/tidy-up/SKILL.md", SKILL)
    stage.runner = 'skills = ["./skills/tidy-up"]'

    played = stage.play([READY], prompt=prompt)

    assert played.trial["detected_skills"] == [], played.story
    assert not any("TIDY-UP-BODY" in request.text for request in played.turns)


@by(CLAUDE_CODE, CODEX)
def test_a_skill_of_the_workspace_that_the_prompt_invokes_is_explicit(stage: Stage) -> None:
    folder = stage.program.skills.split("/")[0]
    stage.project.write(f"template/{folder}/skills/tidy-up/SKILL.md", SKILL)

    played = stage.play([READY], prompt=FORMS[stage.program.agent])

    assert "TIDY-UP-BODY" in played.turns[0].text
    found = {each["skill"]: each["confidence"] for each in played.trial["detected_skills"]}
    assert found == {"tidy-up": "explicit"}, played.story


@by(CLAUDE_CODE, CODEX)
def test_a_trigger_is_seen_where_the_prompt_invokes_the_skill(stage: Stage) -> None:
    stage.project.write("skills/tidy-up/SKILL.md", SKILL)
    query = {"case_kind": "trigger_query", "query": FORMS[stage.program.agent], "expectation": "should_trigger"}

    played = stage.play_evals([READY], query, "--skill", "skills/tidy-up")

    assert played.verdict == ("passed", None), played.story
