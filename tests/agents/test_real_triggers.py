"""Real agents with a skill under test among competing ones, and without it."""

from __future__ import annotations

from stage import Stage

READY = {"say": "All is ready."}
SKILL = """
---
name: tidy-up
description: How to tidy up a folder.
---
TIDY-UP-BODY: remove what nobody needs.
"""
QUERY = {
    "case_kind": "trigger_query",
    "query": "Tidy up this folder.",
    "expectation": "should_trigger",
    "competing_skills": ["polish: How to make things shine."],
}


def test_a_real_agent_is_offered_the_skill_among_its_competitors_and_is_seen_to_load_it(stage: Stage) -> None:
    stage.project.write("skills/tidy-up/SKILL.md", SKILL.lstrip())
    path = (stage.program.skill_path or "").format(skill="tidy-up")
    loads = {"load_skill": "tidy-up", **({"path": path} if path else {})}

    played = stage.play_evals([loads, READY], QUERY, "--skill", "skills/tidy-up")

    assert played.verdict == ("passed", None), played.story
    assert "How to tidy up a folder." in played.turns[0].text
    assert "How to make things shine." in played.turns[0].text
    assert played.trial["grades"][0]["reason"].startswith("by running the agent: tidy-up was loaded")


def test_a_real_agent_that_loads_nothing_has_not_triggered(stage: Stage) -> None:
    stage.project.write("skills/tidy-up/SKILL.md", SKILL.lstrip())

    played = stage.play_evals([READY], QUERY, "--skill", "skills/tidy-up")

    assert played.verdict == ("failed", "assertion"), played.story
    assert "tidy-up was not loaded" in played.trial["failure"]["message"]


def test_without_the_skill_a_real_agent_never_hears_of_it(stage: Stage) -> None:
    stage.project.write("skills/tidy-up/SKILL.md", SKILL.lstrip())
    stage.runner = 'skills = ["./skills/tidy-up"]'
    case = {"case_kind": "exact_match", "instruction": "Do it.", "expected": "All is ready."}

    played = stage.play_evals([READY], case, "--skill", "skills/tidy-up", "--arm", "no_skill")

    assert played.verdict == ("passed", None), played.story
    assert not any("tidy-up" in request.text for request in played.requests)
