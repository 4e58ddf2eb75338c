"""Real agents as judges: a session of its own that reads what the agent on trial left."""

from __future__ import annotations

import json

from stage import Stage

from whet.testing.scripted_model.server import ScriptedModel

VERDICTS = [
    {"number": 1, "rationale": "It is there.", "evidence": "out.txt:1", "rating": 9, "manipulation": False},
    {"number": 2, "rationale": "It is not.", "evidence": "", "rating": 1, "manipulation": False},
]
RUBRIC = {
    "case_kind": "llm_rubric",
    "instruction": "Count.",
    "rubric": ["out.txt has a number", "out.txt has a name"],
    "pass_threshold": 0.4,
}


def test_a_real_agent_looks_into_the_files_and_gives_its_verdicts(boxed: Stage) -> None:
    boxed.defaults = '[judge]\nrunner = "real"\n'
    steps = [
        {"run": "echo 4711 > out.txt"},
        {"say": "I have counted."},
        {"run": "cat workspace/out.txt; echo changed > workspace/out.txt; cat workspace/out.txt"},
        {"say": json.dumps({"verdicts": VERDICTS})},
    ]

    played = boxed.play_evals(steps, RUBRIC)

    (grade,) = played.trial["grades"]
    rated = json.loads(grade["evidence"])
    assert played.verdict == ("passed", None), played.story
    assert [item["value"] for item in rated] == [0.9, 0.1]
    assert "I have counted." in played.turns[2].text
    assert "4711" in played.turns[3].text
    assert ("Read-only file system" in played.turns[3].text) is (boxed.project.sandbox == "bubblewrap")
    assert rated[0]["judged"]["votes"][0]["usage"]["input_tokens"] > 0


def test_a_real_judge_that_is_asked_the_same_again_is_answered_from_the_cache(stage: Stage) -> None:
    stage.defaults = '[judge]\nrunner = "real"\n[gateway]\ncache_dir = "cache"\n'
    agent = [{"run": "echo 4711 > out.txt"}, {"say": "I have counted."}]
    steps = [*agent, {"say": json.dumps({"verdicts": VERDICTS})}, *agent]

    played = stage.play_evals(steps, RUBRIC, "--trials", "2", "--max-parallel", "1")

    assert [trial["status"] for trial in played.outcome.trials] == ["passed", "passed"], played.story
    assert len(played.turns) == len(steps)
    one, other = ([grade["value"] for grade in trial["grades"]] for trial in played.outcome.trials)
    assert one == other


def test_a_real_judge_whose_answer_nobody_can_read_gives_no_verdict_and_is_paid_for(stage: Stage) -> None:
    stage.defaults = '[judge]\nrunner = "real"\n'
    steps = [{"say": "All is ready.", "always": True}]

    played = stage.play_evals(steps, RUBRIC)

    assert played.verdict == ("errored", "judge"), played.story
    assert played.outcome.code == 3
    assert "the judge" in played.outcome.message("a")
    # Its first answers, and those to the same question without what the agent left.
    assert played.trial["attempts"][0]["judge_usage"]["input_tokens"] > 0
    assert "unknown cost" not in played.outcome.stdout
    with ScriptedModel(steps) as model:
        again = stage.project.whet("regrade", "latest", env=stage.environ(model.url))
    assert again.code == 3, again.stderr
    assert again.codes == {"a": "judge"}
    assert again.trials[0]["attempts"][0]["judge_usage"]["input_tokens"] > 0
