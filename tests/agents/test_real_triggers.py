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


def test_a_real_agent_asks_its_model_nothing_more_once_the_skill_is_loaded(stage: Stage) -> None:
    stage.project.write("skills/tidy-up/SKILL.md", SKILL)
    path = (stage.program.skill_path or "").format(skill="tidy-up")
    loads = {"load_skill": "tidy-up", **({"path": path} if path else {})}

    played = stage.play_evals([loads, *[{"run": "ls"}] * 5, READY], QUERY, "--skill", "skills/tidy-up")

    assert played.verdict == ("passed", None), played.story
    assert played.trial["ended_early"] == {"why": "loaded", "rounds": 1}, played.story
    session = played.outcome.session("a")
    if session["requests"] is not None:
        # Through the gateway, all that was asked was answered, so what it took is known.
        assert len(played.turns) == 1, played.story
        assert played.trial["usage"]["total_tokens"] is not None


def test_a_real_agent_is_ended_after_three_rounds_without_the_skill_unless_you_say_so(stage: Stage) -> None:
    stage.project.write("skills/tidy-up/SKILL.md", SKILL)
    query = {**QUERY, "expectation": "should_not_trigger"}
    steps = [*[{"run": "ls"}] * 5, READY]

    played = stage.play_evals(steps, query, "--skill", "skills/tidy-up")
    verdict, end, story, asked = played.verdict, played.trial["ended_early"], played.story, len(played.turns)
    whole = stage.play_evals(steps, query, "--skill", "skills/tidy-up", "--run-to-end")

    assert verdict == ("passed", None), story
    assert end == {"why": "rounds", "rounds": 3}, story
    assert asked < len(whole.turns), story
    assert whole.verdict == ("passed", None), whole.story
    assert (whole.trial["ended_early"], whole.trial["steps"]) == (None, 6), whole.story


def test_a_real_agent_that_answers_ends_by_itself(stage: Stage) -> None:
    stage.project.write("skills/tidy-up/SKILL.md", SKILL)
    query = {**QUERY, "expectation": "should_not_trigger"}

    played = stage.play_evals([{"run": "ls"}, READY], query, "--skill", "skills/tidy-up")

    assert played.verdict == ("passed", None), played.story
    assert (played.trial["ended_early"], played.trial["final_output"]) == (None, "All is ready."), played.story


def test_a_session_that_was_ended_early_is_played_from_its_cassette_without_a_miss(stage: Stage) -> None:
    stage.project.write("skills/tidy-up/SKILL.md", SKILL)
    path = (stage.program.skill_path or "").format(skill="tidy-up")
    loads = {"load_skill": "tidy-up", **({"path": path} if path else {})}
    tapes = stage.project.root / "tapes"

    recorded = stage.play_evals([loads, READY], QUERY, "--skill", "skills/tidy-up", "--record-to", str(tapes))
    verdict, end, story = recorded.verdict, recorded.trial["ended_early"], recorded.story
    played = stage.play_evals([], QUERY, "--skill", "skills/tidy-up", "--cassette", str(tapes))

    assert (verdict, end) == (("passed", None), {"why": "loaded", "rounds": 1}), story
    assert (played.verdict, played.trial["ended_early"]) == (verdict, end), played.story
    assert played.turns == ()


def test_calls_side_by_side_are_one_round_of_a_real_agent(stage: Stage) -> None:
    stage.project.write("skills/tidy-up/SKILL.md", SKILL)
    path = (stage.program.skill_path or "").format(skill="tidy-up")
    loads = {"load_skill": "tidy-up", **({"path": path} if path else {})}
    side_by_side = {"say": "I look at all of it.", "tools": [{"run": "ls"}, {"run": "pwd"}, loads]}

    played = stage.play_evals([side_by_side, READY], QUERY, "--skill", "skills/tidy-up")

    assert played.verdict == ("passed", None), played.story
    assert played.trial["ended_early"] == {"why": "loaded", "rounds": 1}, played.story


def test_a_spent_budget_counts_more_than_what_was_loaded(stage: Stage) -> None:
    stage.project.write("skills/tidy-up/SKILL.md", SKILL)
    stage.defaults = "budget_usd = 0"

    played = stage.play_evals([READY], QUERY, "--skill", "skills/tidy-up")

    assert played.trial["failure"]["code"] == "budget", played.story
    assert played.trial["ended_early"] is None
