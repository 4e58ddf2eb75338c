"""Real agents with a skill under test among competing ones, and without it."""

from __future__ import annotations

from stage import SKILL, Stage

READY = {"say": "All is ready."}
EXACT = {"case_kind": "exact_match", "instruction": "Do it.", "expected": "All is ready."}
QUERY = {
    "case_kind": "trigger_query",
    "query": "Tidy up this folder.",
    "expectation": "should_trigger",
    "competing_skills": ["polish: How to make things shine."],
}


def test_a_real_agent_is_offered_the_skill_among_its_competitors_and_is_seen_to_load_it(stage: Stage) -> None:
    stage.project.write("skills/tidy-up/SKILL.md", SKILL)
    path = (stage.program.skill_path or "").format(skill="tidy-up")
    loads = {"load_skill": "tidy-up", **({"path": path} if path else {})}

    played = stage.play_evals([loads, READY], QUERY, "--skill", "skills/tidy-up")

    assert played.verdict == ("passed", None), played.story
    assert "How to tidy up a folder." in played.turns[0].text
    assert "How to make things shine." in played.turns[0].text
    assert played.trial["grades"][0]["reason"].startswith("by running the agent: tidy-up was loaded")


def test_a_real_agent_that_loads_nothing_has_not_triggered(stage: Stage) -> None:
    stage.project.write("skills/tidy-up/SKILL.md", SKILL)

    played = stage.play_evals([READY], QUERY, "--skill", "skills/tidy-up")

    assert played.verdict == ("failed", "assertion"), played.story
    assert "tidy-up was not loaded" in played.trial["failure"]["message"]


def test_a_session_of_a_real_agent_that_loads_the_skill_counts_as_one_that_did(stage: Stage) -> None:
    stage.project.write("skills/tidy-up/SKILL.md", SKILL)
    path = (stage.program.skill_path or "").format(skill="tidy-up")
    loads = {"load_skill": "tidy-up", **({"path": path} if path else {})}

    played = stage.play_evals([loads, READY], EXACT, "--skill", "skills/tidy-up", "--arm", "skill")

    assert played.verdict == ("passed", None), played.story
    (found,) = played.outcome.results["skill_loads"]
    assert (found["arm"], found["loaded"], found["told"], found["sessions"]) == ("skill", 1, 1, 1)
    assert "real  skill  loaded in 1 of 1 session" in played.outcome.stdout
    assert "never loaded" not in played.outcome.stdout + played.outcome.stderr


def test_sessions_of_a_real_agent_that_never_load_the_skill_are_counted_and_warned_of(stage: Stage) -> None:
    stage.project.write("skills/tidy-up/SKILL.md", SKILL)

    played = stage.play_evals([READY] * 2, EXACT, "--skill", "skills/tidy-up", "--arm", "skill", "--trials", "2")

    assert played.verdict == ("passed", None), played.story
    (found,) = played.outcome.results["skill_loads"]
    assert (found["loaded"], found["told"], found["sessions"]) == (0, 2, 2)
    said = played.outcome.stdout + played.outcome.stderr
    assert "real  skill  loaded in 0 of 2 sessions" in said
    assert said.count('the skill of the arm "skill" was never loaded by real (0 of 2 sessions)') == 1


def test_without_the_skill_a_real_agent_never_hears_of_it(stage: Stage) -> None:
    stage.project.write("skills/tidy-up/SKILL.md", SKILL)
    stage.runner = 'skills = ["./skills/tidy-up"]'

    played = stage.play_evals([READY], EXACT, "--skill", "skills/tidy-up", "--arm", "no_skill")

    assert played.verdict == ("passed", None), played.story
    assert not any("tidy-up" in request.text for request in played.requests)


def test_a_real_agent_that_finds_the_copy_of_another_arm_is_contaminated(stage: Stage) -> None:
    stage.project.write("skills/tidy-up/SKILL.md", SKILL)
    own, left = f"$HOME/{stage.program.skills}/tidy-up", stage.project.outside / "left"
    step = {"run": f'if [ -d "{own}" ]; then cp -r "{own}/." {left}; else cat {left}/SKILL.md; fi; true'}

    # One after the other: by its second trial, the arm without the skill finds what the other one left.
    played = stage.play_evals(
        [step, READY] * 4, EXACT, "--skill", "skills/tidy-up", "--trials", "2", "--schedule", "serial"
    )

    found = {each["arm"]: each["trials"] for each in played.outcome.results["cases"][0]["executions"]}
    assert [trial["status"] for trial in found["skill"]] == ["passed", "passed"], played.story
    assert found["no_skill"][1]["failure"]["code"] == "contaminated", played.story
    assert "events.jsonl shows" in found["no_skill"][1]["failure"]["message"]
    assert all(trial["skill_shown"] for trial in found["skill"])
    (word,) = played.outcome.asked["watermarks"].values()
    assert f"revision: {word}" in (left / "SKILL.md").read_text()
    # Whoever is offered the skill is not told the word.
    assert word not in played.turns[0].text
    assert word not in found["skill"][0]["final_output"]
