"""Eval suites by the real command: every kind of case, with the skill and without, and what the skill adds."""

from __future__ import annotations

import io
import json
import re
import tarfile
from importlib.resources import files
from typing import Any

import jsonschema
import pytest
from project import EVENTS, SHELL, Outcome, Project

from whet.grade.judge.questions import TOOL
from whet.testing.scripted_model.server import ScriptedModel

SKILL = "---\nname: deploy\ndescription: Ships the site.\n---\n\nRun ship.sh.\n"
# A program that is started as Claude Code is, and uses what lies in its home: it says which skills it finds there.
FAKE_CLAUDE = r"""#!/usr/bin/env python3
import json, os, sys
prompt = sys.stdin.read()
folder = os.path.join(os.environ["CLAUDE_CONFIG_DIR"], "skills")
found = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
def say(record): print(json.dumps(record), flush=True)
say({"type": "system", "subtype": "init", "session_id": "s", "skills": found})
for name in found:
    if name in prompt:
        say({"type": "assistant", "message": {"id": "m", "role": "assistant", "content": [
            {"type": "tool_use", "id": "t", "name": "Skill", "input": {"skill": name}}]}})
        say({"type": "user", "message": {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t", "content": "Launching skill: " + name}]}})
answer = " ".join(found) or "none"
say({"type": "assistant", "message": {"id": "n", "role": "assistant", "content": [{"type": "text", "text": answer}]}})
say({"type": "result", "subtype": "success", "is_error": False, "result": answer, "session_id": "s"})
"""


@pytest.fixture
def skilled(project: Project) -> Project:
    """A project with a skill, and agents that take their prompts for programs."""
    project.write("deploy/SKILL.md", SKILL)
    project.settings(SHELL)
    return project


def claude(project: Project) -> None:
    project.write("claude.py", FAKE_CLAUDE, mode=0o755)
    project.settings('[runners.claude.agent]\ntype = "claude-code"\ncommand = "./claude.py"\n')


def suite(project: Project, *cases: dict[str, Any], name: str = "suite.json", **fields: Any) -> None:
    document = {
        "name": "s",
        "source_kind": "manual",
        "verifier_kind": "deterministic",
        "cases_json": [{"task_id": f"c{number}", **case} for number, case in enumerate(cases, 1)],
        **fields,
    }
    project.write(name, json.dumps(document))


def run(project: Project, *args: str, env: dict[str, str] | None = None) -> Outcome:
    return project.whet("run", "suite.json", *args, env=env)


def exact(instruction: str, expected: Any, **fields: Any) -> dict[str, Any]:
    return {"case_kind": "exact_match", "instruction": instruction, "expected": expected, **fields}


def asserted(instruction: str, *assertions: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"case_kind": "boolean_assertion", "instruction": instruction, "assertions": list(assertions), **fields}


def trigger(query: str, expectation: str = "should_trigger", **fields: Any) -> dict[str, Any]:
    return {"case_kind": "trigger_query", "query": query, "expectation": expectation, **fields}


def rubric(instruction: str, *items: Any, **fields: Any) -> dict[str, Any]:
    return {"case_kind": "llm_rubric", "instruction": instruction, "rubric": list(items), **fields}


def by_arm(done: Outcome) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (case["id"], execution["arm"]): execution for case in done.results["cases"] for execution in case["executions"]
    }


def verdict(rating: float, rationale: str = "Because.") -> dict[str, Any]:
    return {"call": TOOL, "args": {"rating": rating, "rationale": rationale, "manipulation": False}}


def judged_by(project: Project, model: ScriptedModel, settings: str = "", votes: int = 1) -> dict[str, str]:
    judge = f'url = "{model.url}/v1"\nmodel = "gpt-4o"\nvotes = {votes}\nretries = 0\nmax_parallel = 1\n'
    project.settings(f"{settings}\n[judge]\n{judge}")
    return {"EVAL_SKILLS_LLM_KEY": "key-of-the-judge"}


@pytest.mark.parametrize(
    ("case", "status"),
    [
        (exact("echo ' 42 '", "42"), "passed"),
        (exact("echo ' 42 '", "42", trim=False), "failed"),
        (exact("echo YES", "yes", case_sensitive=False), "passed"),
        (exact("echo 41.9999", 42, numeric_tolerance=0.001), "passed"),
        (exact("""echo '```json\n{"a": {"b~/": [1, 2]}}\n```'""", 2, path="/a/b~0~1/1"), "passed"),
        (exact("""echo '{"a": 1}'""", 2, path="/b"), "failed"),
        (exact("echo true", 1), "failed"),
        ({"case_kind": "json_schema", "instruction": "echo '[1]'", "schema": {"type": "array"}}, "passed"),
        ({"case_kind": "json_schema", "instruction": "echo 'so: [1]'", "schema": {"type": "array"}}, "failed"),
        (
            {
                "case_kind": "json_schema",
                "instruction": "echo 'so: [1]'",
                "schema": {"items": {"type": "string"}},
                "extract": "first_json_block",
            },
            "failed",
        ),
        (asserted("echo done > a.txt", {"op": "file_contains", "target": "a.txt", "value": "done"}), "passed"),
        (asserted("echo a > a.txt", {"op": "file_exists", "value": "a.txt", "negate": True}), "failed"),
        (
            asserted("echo one", {"op": "contains", "value": "two"}, {"op": "regex", "value": "^on"}, match="any"),
            "passed",
        ),
        (asserted("echo one", {"op": "contains", "value": "two"}, {"op": "regex", "value": "^on"}), "failed"),
        (asserted("ln -s / out", {"op": "file_exists", "value": "out/etc"}), "failed"),
    ],
)
def test_an_answer_that_code_can_decide_about_is_decided(skilled: Project, case: dict[str, Any], status: str) -> None:
    suite(skilled, case)

    done = run(skilled)

    assert done.statuses == {"c1": status}, done.stdout
    assert done.code == (0 if status == "passed" else 1)


def test_assertions_look_at_tools_commands_and_skills_as_events_and_not_as_text(project: Project) -> None:
    project.settings(EVENTS)
    events = [
        {"type": "tool_call", "tool": "Read"},
        {"type": "command", "command": "npm ci", "exit_code": 0},
        {"type": "skill_signal", "skill": "deploy", "signal": "tool:skill"},
        {"type": "message", "role": "assistant", "text": "I called Bash and ran make"},
        {"type": "final_output", "text": "I called Bash"},
    ]
    said = f"cat <<'EOF'\n{chr(10).join(map(json.dumps, events))}\nEOF\n"
    suite(
        project,
        asserted(said, {"op": "tool_called", "value": "Read"}, {"op": "command_run", "value": "npm"}),
        asserted(said, {"op": "tool_called", "value": "Bash"}),
        asserted(
            said, {"op": "tool_not_called", "value": "Bash"}, {"op": "command_run", "value": "make", "negate": True}
        ),
        asserted(said, {"op": "skill_triggered", "value": "deploy"}),
    )

    done = run(project)

    assert done.statuses == {"c1": "passed", "c2": "failed", "c3": "passed", "c4": "passed"}, done.stdout
    assert "Bash was not called" in done.message("c2")


def test_a_pattern_that_never_ends_in_an_answer_has_failed_and_ends(skilled: Project) -> None:
    skilled.settings(f"{SHELL}\n[defaults]\ncheck_timeout_ms = 500\n")
    suite(skilled, asserted(f"echo {'a' * 40}b", {"op": "regex", "value": "^(a+)+$"}))

    done = run(skilled)

    assert (done.code, done.codes) == (1, {"c1": "undecidable"})
    assert "nested repetitions" in done.message("c1")


def test_the_skill_is_there_among_its_competitors_and_is_seen_to_be_loaded(skilled: Project) -> None:
    claude(skilled)
    skilled.write("other/lint/SKILL.md", "---\nname: lint\ndescription: Looks at style.\n---\n")
    suite(
        skilled,
        trigger("please deploy", competing_skills=["notes: Writes release notes.", "other/lint"]),
        trigger("please lint", competing_skills=["other/lint"]),
        trigger("please lint", "should_not_trigger", competing_skills=["other/lint"]),
        verifier_kind="llm_judge",
    )

    done = run(skilled, "--skill", "deploy")

    assert done.statuses == {"c1": "passed", "c2": "failed", "c3": "passed"}, done.stdout
    assert done.trial("c1")["final_output"] == "deploy lint notes"
    grade = done.trial("c1")["grades"][0]
    assert grade["reason"].startswith("by running the agent: deploy was loaded")
    assert json.loads(grade["evidence"])["mode"] == "agent"
    assert "loaded instead: lint" in done.message("c2")


def test_a_trigger_query_has_as_many_trials_as_it_asks_for(skilled: Project) -> None:
    claude(skilled)
    suite(skilled, trigger("deploy", runs=3))

    done = run(skilled, "--skill", "deploy")

    assert len(done.trials) == 3


def test_without_a_runner_a_judge_says_whether_the_skill_would_be_loaded_and_the_grade_says_so(
    skilled: Project,
) -> None:
    suite(skilled, trigger("ship it", runs=3, competing_skills=["lint: Looks at style."]), trigger("ship it", runs=1))
    with ScriptedModel([verdict(9), verdict(8, "It ships."), verdict(1), verdict(2)]) as model:
        env = judged_by(skilled, model)

        done = run(skilled, "--skill", "deploy", "--max-parallel", "1", env=env)
        asked = json.dumps([request.body for request in model.requests])

    assert done.statuses == {"c1": "passed", "c2": "failed"}, done.stderr
    assert len(done.trials) == 2
    grade = done.trial("c1")["grades"][0]
    assert grade["reason"] == "by a judge: 2 of 3 votes say that deploy would be loaded: Because."
    assert json.loads(grade["evidence"])["mode"] == "judge"
    assert "Ships the site." in asked
    assert "Looks at style." in asked
    assert "key-of-the-judge" not in "".join(path.read_text() for path in done.folder.rglob("*.json*"))


def test_the_items_of_a_rubric_count_by_their_weight_and_a_required_one_alone_can_fail_it(skilled: Project) -> None:
    heavy = {"id": "a", "description": "It is true.", "weight": 3}
    needed = {"id": "b", "description": "It is short.", "required": True}
    suite(
        skilled,
        rubric("echo a", heavy, "It rhymes."),
        rubric("echo b", heavy, needed),
        rubric("echo c", heavy, needed, pass_threshold=0.2),
        verifier_kind="llm_judge",
    )
    with ScriptedModel([*[verdict(10), verdict(0)] * 2, verdict(10), verdict(3)]) as model:
        env = judged_by(skilled, model, SHELL)

        done = run(skilled, "--max-parallel", "1", env=env)

    values = {case: done.trial(case)["grades"][0]["value"] for case in ("c1", "c2", "c3")}
    assert values == {"c1": 0.75, "c2": 0.75, "c3": pytest.approx(0.825)}
    assert done.statuses == {"c1": "passed", "c2": "failed", "c3": "passed"}, done.stdout
    assert '"It is short." is required and missing' in done.message("c2")


def test_the_judge_of_a_rubric_is_shown_what_the_agent_changed_in_its_files(skilled: Project) -> None:
    agent = "echo done; echo 'a line that only the diff shows' > notes.txt"
    suite(skilled, rubric(agent, "There are notes."), verifier_kind="llm_judge")
    with ScriptedModel([verdict(10)]) as model:
        env = judged_by(skilled, model, SHELL)

        done = run(skilled, env=env)
        asked = model.requests[0].body["messages"][-1]["content"]

    answer = asked.partition("# The answer to rate")[2]
    assert done.statuses == {"c1": "passed"}, done.stdout
    assert "[What the program changed in its files:]" in answer
    assert "+++ b/notes.txt" in answer
    assert "+a line that only the diff shows" in answer


def test_the_key_of_the_judge_is_masked_whatever_its_variable_is_called(skilled: Project) -> None:
    suite(skilled, rubric("echo the-judge-pays-with-this; exit 1", "It is true."), verifier_kind="llm_judge")
    with ScriptedModel([verdict(10)]) as model:
        judged_by(skilled, model, SHELL)
        skilled.settings((skilled.root / "whet.toml").read_text() + 'key_variable = "MINE"\n')

        done = run(skilled, env={"MINE": "the-judge-pays-with-this"})

    assert done.statuses == {"c1": "failed"}, done.stdout + done.stderr
    assert done.artifact("c1", "transcript.txt").read_text() == "***\n"


def test_an_answer_that_keeps_the_judge_from_a_verdict_has_failed(skilled: Project) -> None:
    suite(skilled, rubric("echo a", "It is true."), verifier_kind="llm_judge")
    with ScriptedModel([{"say": "I would rather not."}, verdict(3), {"say": "No."}]) as model:
        env = judged_by(skilled, model, SHELL)

        done = run(skilled, env=env)

    assert (done.code, done.codes) == (1, {"c1": "undecidable"}), done.stdout
    assert "the judge gave no rating" in done.message("c1")


def test_a_judge_that_gives_no_verdict_on_anything_says_nothing_about_the_agent(skilled: Project) -> None:
    suite(skilled, rubric("echo a", "It is true."), verifier_kind="llm_judge")
    with ScriptedModel([{"say": "I would rather not."}, {"say": "Nor this."}]) as model:
        env = judged_by(skilled, model, SHELL)

        done = run(skilled, env=env)

    assert (done.code, done.codes) == (3, {"c1": "judge"}), done.stdout


def test_an_answer_without_end_is_one_failed_trial(skilled: Project) -> None:
    nested = "python3 -c 'print(\"[\" * 200000)'"
    at = {"op": "json_path", "target": "/a"}
    suite(skilled, asserted(nested, at), exact(nested, [1]))
    skilled.settings(SHELL)

    done = run(skilled)

    assert done.statuses == {"c1": "failed", "c2": "failed"}, done.codes


def test_a_judge_that_cannot_be_reached_makes_a_case_errored(skilled: Project) -> None:
    suite(skilled, rubric("echo a", "It is true."), verifier_kind="llm_judge")
    with ScriptedModel() as model:
        env = judged_by(skilled, model, SHELL)
    # By now, nobody listens there.

    done = run(skilled, env=env)

    assert (done.code, done.codes) == (3, {"c1": "judge"}), done.stdout


@pytest.mark.parametrize(
    ("case", "settings", "message"),
    [
        (exact("echo a", "a"), "", "no runners are configured"),
        (rubric("echo a", "It is true."), SHELL, "the judge has no model"),
        (rubric("echo a", "It is true."), f'{SHELL}[judge]\nmodel = "gpt-5.5"\n', "there is no key for it"),
        (trigger("deploy"), "", "the judge has no model"),
    ],
)
def test_what_nobody_could_decide_is_told_before_anything_starts(
    skilled: Project, case: dict[str, Any], settings: str, message: str
) -> None:
    skilled.settings(settings)
    suite(skilled, case)

    done = run(skilled, "--skill", "deploy")

    assert done.code == 2
    assert message in done.stderr
    assert not skilled.output_dir.exists()


def test_cases_that_need_an_agent_and_have_none_are_all_named_at_once(skilled: Project) -> None:
    skilled.settings("")
    package(skilled, "exit 0")
    suite(skilled, exact("echo a", "a"), packaged(), exact("echo b", "b"))

    done = run(skilled, "--skill", "deploy")

    assert done.code == 2
    assert 'only an agent can answer "c1", "c3": configure a runner' in done.stderr


def package(project: Project, verifier: str, name: str = "package") -> None:
    project.write(f"{name}/tests/test.sh", f"#!/bin/sh\n{verifier}\n", mode=0o755)


def packaged(**fields: Any) -> dict[str, Any]:
    return {"case_kind": "task_package", "environment_ref": "package", "instruction": "true", **fields}


def test_without_the_skill_it_is_neither_in_the_home_nor_in_the_workspace(skilled: Project) -> None:
    claude(skilled)
    settings = (skilled.root / "whet.toml").read_text()
    skilled.settings(
        settings.replace("[runners.claude.agent]", '[runners.claude]\nskills = ["deploy"]\n[runners.claude.agent]')
    )
    package(skilled, 'test "$EVAL_ARM" = skill && test -f skill-under-test/SKILL.md')
    skilled.write("package/skill-under-test/SKILL.md", "baked in")
    suite(skilled, exact("which?", "none"), packaged(instruction="which?"), supports_no_skill=True)

    done = run(skilled, "--skill", "deploy")

    found = by_arm(done)
    assert {key: execution["trials"][0]["final_output"] for key, execution in found.items()} == {
        ("c1", "skill"): "deploy",
        ("c1", "no_skill"): "none",
        ("c2", "skill"): "deploy",
        ("c2", "no_skill"): "none",
    }, done.stdout
    assert found["c2", "skill"]["status"] == "passed"
    assert found["c2", "no_skill"]["status"] == "expected-failed"
    kept = done.folder / found["c2", "no_skill"]["trials"][0]["workspace_dir"]
    assert not (kept / "skill-under-test").exists()


def test_a_package_that_brings_the_skill_along_elsewhere_is_without_it_too(skilled: Project) -> None:
    skilled.settings(SHELL)
    package(skilled, "true")
    for place in ("skills/deploy", ".claude/skills/deploy", "skills/other"):
        skilled.write(f"package/{place}/SKILL.md", "baked in")
    skilled.write("package/deploy/main.py", "no skill")
    suite(skilled, packaged(instruction="find . -type f | sort"), supports_no_skill=True)

    done = run(skilled, "--skill", "deploy")

    found = by_arm(done)
    assert found["c1", "no_skill"]["trials"][0]["final_output"].split() == [
        "./deploy/main.py",
        "./skills/other/SKILL.md",
    ]
    assert "./skill-under-test/SKILL.md" in found["c1", "skill"]["trials"][0]["final_output"]


def test_a_suite_that_lies_in_the_skill_is_not_given_to_the_agent_with_it(project: Project) -> None:
    project.write("SKILL.md", SKILL)
    project.write("scripts/ship.sh", "true")
    project.write("evals/claude.py", FAKE_CLAUDE, mode=0o755)
    project.write("evals/whet.toml", '[runners.claude.agent]\ntype = "claude-code"\ncommand = "./claude.py"\n')
    package(project, 'cd skill-under-test && find . -type f | sort | tr "\\n" " "; true', name="evals/package")
    suite(project, packaged(instruction="which?"), trigger("project"), name="evals/suite.json")

    done = project.whet("run", "evals/suite.json", "--skill", ".", "--output-dir", ".whet/runs")
    again = project.whet("run", "--resume", "latest", "--output-dir", ".whet/runs")

    assert done.statuses == {"c1": "passed", "c2": "passed"}, done.stdout + done.stderr
    given = done.artifact("c1", "verifier.log").read_text().split()
    # With the file whose name is the watermark.
    words = [f"./{word}" for word in done.asked["watermarks"].values()]
    assert sorted(given) == sorted(["./SKILL.md", "./scripts/ship.sh", *words])
    assert done.trial("c1")["changed_files"] == 0
    # The record of the first run lies in the folder too, and is no part of the skill.
    assert again.code == 0, again.stderr


@pytest.mark.parametrize("step", ["read = '{manifest}'", "run = 'cat {manifest}'", "load_skill = 'deploy'"])
def test_a_session_that_came_upon_the_skill_all_the_same_says_nothing_about_being_without(
    skilled: Project, step: str
) -> None:
    steps = [step.format(manifest=f"{skilled.root}/deploy/SKILL.md"), "answer = 'ok'"]
    skilled.write("steps.toml", "".join(f"[[steps]]\n{each}\n" for each in steps))
    skilled.settings('[runners.sc.agent]\ntype = "scripted"\nscript = "steps.toml"\n')
    suite(skilled, exact("go", "ok"), supports_no_skill=True)

    done = run(skilled, "--skill", "deploy")

    found = by_arm(done)
    assert found["c1", "skill"]["status"] == "passed", done.stdout
    assert found["c1", "no_skill"]["status"] == "errored"
    assert found["c1", "no_skill"]["trials"][0]["failure"]["code"] == "contaminated"
    assert (done.code, done.results["lift"]) == (3, [])


@pytest.mark.parametrize(
    "claim",
    [
        {"type": "skill_signal", "skill": "deploy"},
        {"type": "file_read", "path": "{root}/deploy/SKILL.md"},
        {"type": "command", "command": "cat {root}/deploy/SKILL.md", "exit_code": 0},
    ],
    ids=lambda claim: claim["type"],
)
def test_a_program_under_trial_does_not_leave_the_rate_by_saying_that_it_came_upon_the_skill(
    skilled: Project, claim: dict[str, Any]
) -> None:
    skilled.settings(EVENTS)
    claimed = json.dumps(claim).replace("{root}", str(skilled.root))
    answer = json.dumps({"type": "final_output", "text": "wrong"})
    suite(skilled, exact(f"echo '{claimed}'; echo '{answer}'", "right"), supports_no_skill=True)

    done = run(skilled, "--skill", "deploy")

    without = by_arm(done)["c1", "no_skill"]
    assert without["status"] == "expected-failed", done.stdout
    assert [lift["no_skill"] for lift in done.results["lift"]] == [0.0]
    (note,) = without["trials"][0]["notes"]
    assert "the agent says that it found it" in note


@pytest.mark.parametrize(
    "command",
    [
        "echo 'done; .claude/skills/deploy/run.py was not needed'",
        "git commit -m 'note (.claude/skills/deploy/x) y'",
        "grep 'x|.claude/skills/deploy/run.sh' f",
        "echo {root}/deploy/SKILL.md",
    ],
)
def test_a_session_whose_commands_only_mention_the_skill_was_without_it(skilled: Project, command: str) -> None:
    skilled.settings(EVENTS)
    ran = {"type": "command", "command": command.format(root=skilled.root), "exit_code": 0}
    skilled.write("said.jsonl", f"{json.dumps(ran)}\n{json.dumps({'type': 'final_output', 'text': 'ok'})}\n")
    query = f"cat {skilled.root}/said.jsonl"
    unasked = {"case_kind": "trigger_query", "query": query, "expectation": "should_not_trigger"}
    suite(skilled, exact(query, "ok"), unasked, supports_no_skill=True)

    done = run(skilled, "--skill", "deploy")

    found = by_arm(done)
    assert found["c1", "no_skill"]["status"] == "passed", done.stdout
    assert found["c2", "skill"]["status"] == "passed", done.stdout


@pytest.mark.bubblewrap
def test_in_a_sandbox_the_skill_cannot_be_read_by_who_should_be_without_it(skilled: Project) -> None:
    skilled.sandbox = "bubblewrap"
    skilled.settings(f'{SHELL}\n[run]\nmounts = ["deploy"]\n')
    second_line = f"cat {skilled.root}/deploy/SKILL.md | head -n 2 | tail -n 1"
    suite(skilled, exact(second_line, "name: deploy"), supports_no_skill=True)

    done = run(skilled, "--skill", "deploy")

    assert {key: found["trials"][0]["final_output"].strip() for key, found in by_arm(done).items()} == {
        ("c1", "skill"): "name: deploy",
        ("c1", "no_skill"): "",
    }


def test_the_lift_is_paired_by_case_counts_weights_and_stands_in_every_report(skilled: Project) -> None:
    claude(skilled)
    cases = [exact("which?", "deploy", weight=3), exact("which?", "none"), exact("which?", "deploy")]
    suite(skilled, *cases, supports_no_skill=True)

    done = run(skilled, "--skill", "deploy", "--reporter", "terminal", "--reporter", "markdown=report.md")

    (lift,) = done.results["lift"]
    assert skilled.whet("verify", "latest").code == 0
    assert (lift["runner"], lift["skill"], lift["no_skill"], lift["value"]) == ("claude", 0.8, 0.2, pytest.approx(0.6))
    assert lift["low"] <= lift["value"] <= lift["high"]
    assert (lift["better"], lift["worse"], lift["same"]) == (2, 1, 0)
    assert [case["value"] for case in lift["cases"]] == [1, -1, 1]
    assert [(arm["arm"], arm["score"], arm["cases"]) for arm in done.results["scores"]] == [
        ("skill", 0.8, 3),
        ("no_skill", 0.2, 3),
    ]
    assert "claude  +0.60 (" in done.stdout
    assert "| c2 | 0.00 | 1.00 | -1.00 | 1 |" in (skilled.root / "report.md").read_text()
    schema = json.loads(files("whet.record").joinpath("results.schema.json").read_text())
    jsonschema.validate(done.results, schema)


def test_what_fails_only_without_the_skill_is_no_failure_of_the_run(skilled: Project) -> None:
    claude(skilled)
    suite(skilled, exact("which?", "deploy"), supports_no_skill=True)

    done = run(skilled, "--skill", "deploy")

    assert done.code == 0, done.stdout
    assert done.results["passed"] is True


def test_without_the_skill_there_are_as_many_attempts_as_with_it(skilled: Project) -> None:
    suite(skilled, exact("echo no", "yes"), supports_no_skill=True)

    done = run(skilled, "--skill", "deploy", "--retries", "1")

    assert [len(trial["attempts"]) for trial in done.trials] == [2, 2]


@pytest.mark.parametrize(
    ("fields", "args", "arms"),
    [
        ({}, ["--skill", "deploy"], ["skill"]),
        ({"supports_no_skill": True}, ["--skill", "deploy"], ["skill", "no_skill"]),
        ({"supports_no_skill": True}, ["--skill", "deploy", "--arm", "no_skill"], ["no_skill"]),
        ({}, [], ["no_skill"]),
        ({"supports_no_skill": True}, [], ["no_skill"]),
    ],
)
def test_the_arms_are_those_that_suite_and_skill_allow(
    skilled: Project, fields: dict[str, Any], args: list[str], arms: list[str]
) -> None:
    suite(skilled, exact("echo a", "a"), **fields)

    done = run(skilled, *args)

    assert [arm for _, arm in by_arm(done)] == arms


@pytest.mark.parametrize(
    ("args", "hint"),
    [(("--arm", "skill"), "--skill"), (("--arm", "no_skill", "--skill", "deploy"), "supports_no_skill")],
)
def test_a_arm_that_there_could_be_is_told_with_what_it_lacks(
    skilled: Project, args: tuple[str, ...], hint: str
) -> None:
    skilled.settings(SHELL)
    suite(skilled, exact("echo a", "a"))

    done = run(skilled, *args)

    assert done.code == 2
    assert hint in done.stderr


def test_one_arm_alone_is_held_to_its_cases(skilled: Project) -> None:
    suite(skilled, exact("echo a", "b"), supports_no_skill=True)

    done = run(skilled, "--skill", "deploy", "--arm", "no_skill")

    assert (done.code, done.statuses) == (1, {"c1": "failed"})


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--skill", "nowhere"], "nowhere is not a skill: there is no such file or folder"),
        (["--skill", "package"], "package is not a skill: it has no SKILL.md"),
        (["--skill", "deploy", "--arm", "with"], 'no arm is called "with"'),
        ([], 'there is no skill to load, which is what "c2" is about'),
    ],
)
def test_a_skill_that_is_none_or_is_missing_is_told_before_anything_starts(
    skilled: Project, args: list[str], message: str
) -> None:
    package(skilled, "true")
    suite(skilled, exact("echo a", "a"), trigger("deploy"))

    done = run(skilled, *args)

    assert done.code == 2
    assert message in done.stderr


def test_any_suite_runs_with_a_skill_and_without_it(skilled: Project) -> None:
    case = {"id": "a", "prompt": "touch made.txt", "expect": ["file:made.txt created"]}
    skilled.write("suite.json", json.dumps({"name": "s", "cases": [case]}))

    done = run(skilled, "--skill", "deploy")

    assert [each["arm"] for each in done.results["cases"][0]["executions"]] == ["skill", "no_skill"]


def archive(project: Project, name: str, *members: tuple[str, str]) -> None:
    with tarfile.open(project.root / name, "w:gz") as packed:
        for path, text in members:
            entry = tarfile.TarInfo(path)
            entry.size = len(text)
            packed.addfile(entry, io.BytesIO(text.encode()))


@pytest.mark.parametrize("member", ["SKILL.md", "deploy/SKILL.md"])
def test_a_skill_may_come_as_an_archive_of_itself_or_of_its_folder(skilled: Project, member: str) -> None:
    claude(skilled)
    archive(skilled, "bundle.tar.gz", (member, SKILL))
    suite(skilled, trigger("deploy now"))

    first, again = (run(skilled, "--skill", "bundle.tar.gz") for _ in range(2))

    assert first.statuses == again.statuses == {"c1": "passed"}, first.stderr
    assert first.trial("c1")["final_output"] == "deploy"


@pytest.mark.bubblewrap
def test_an_archive_and_what_was_unpacked_of_earlier_ones_is_hidden_from_who_should_be_without(
    skilled: Project,
) -> None:
    skilled.sandbox = "bubblewrap"
    skilled.settings(f'{SHELL}\nmounts = ["."]\n')
    archive(skilled, "bundle.tar.gz", ("deploy/SKILL.md", f"{SKILL}of old"))
    suite(skilled, exact("true", ""))
    run(skilled, "--skill", "bundle.tar.gz")
    store = skilled.output_dir.parent / "skills"
    look = f"cat {skilled.root}/bundle.tar.gz {store}/*/deploy/SKILL.md 2>/dev/null | wc -c"
    archive(skilled, "bundle.tar.gz", ("deploy/SKILL.md", SKILL))
    suite(skilled, exact(look, "0"), supports_no_skill=True)

    done = run(skilled, "--skill", "bundle.tar.gz")

    assert len(list(store.glob("*/deploy/SKILL.md"))) == 2
    assert {key[1]: found["trials"][0]["status"] for key, found in by_arm(done).items()} == {
        "skill": "failed",
        "no_skill": "passed",
    }, done.stdout


def test_an_archive_that_would_write_elsewhere_is_refused(skilled: Project) -> None:
    archive(skilled, "bundle.tar.gz", ("SKILL.md", SKILL), ("../../out.txt", "x"))
    suite(skilled, exact("echo a", "a"))

    done = run(skilled, "--skill", "bundle.tar.gz")

    assert done.code == 2
    assert "bundle.tar.gz" in done.stderr
    assert not list(skilled.root.parent.rglob("out.txt"))


def test_a_run_goes_on_with_the_same_skill_and_with_no_other(skilled: Project) -> None:
    suite(skilled, exact("echo a", "a"), exact("echo b", "b"), supports_no_skill=True)
    done = run(skilled, "--skill", "deploy")
    journal = done.folder / "journal.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:1]))
    journal.with_name("results.json").unlink()

    again = skilled.whet("run", "--resume", done.folder.name)
    skilled.write("deploy/SKILL.md", SKILL + "More.\n")
    changed = skilled.whet("run", "--resume", done.folder.name)

    assert again.code == 0, again.stderr
    assert len(again.trials) == 4
    assert changed.code == 2
    assert "the skill has changed" in changed.stderr


def test_what_failed_is_run_again_with_the_skill_of_that_run(skilled: Project) -> None:
    suite(skilled, exact("echo a", "a"), exact("echo b", "c"))
    run(skilled, "--skill", "deploy")

    again = run(skilled, "--last-failed")

    assert list(by_arm(again)) == [("c2", "skill")]


def test_a_run_can_be_regraded_by_the_suite_as_it_is_now(skilled: Project) -> None:
    claude(skilled)
    suite(skilled, trigger("deploy"), exact("which?", "lint"), supports_no_skill=True)
    run(skilled, "--skill", "deploy")
    suite(skilled, trigger("deploy", "should_not_trigger"), exact("which?", "deploy"), supports_no_skill=True)

    done = skilled.whet("regrade", "latest")

    found = {key: execution["status"] for key, execution in by_arm(done).items()}
    assert found == {("c1", "skill"): "failed", ("c2", "skill"): "passed", ("c2", "no_skill"): "expected-failed"}


def test_an_import_manifest_runs_as_it_is(skilled: Project) -> None:
    skilled.settings("")
    package(skilled, 'test "$TASK_INSTRUCTION" = "Do it." && test -f "$SKILL_DIR/SKILL.md"')
    case = {"task_id": "one", "instruction": "Do it.", "environment_ref": "package", "verifier_ref": "tests/test.sh"}
    skilled.write("suite.json", json.dumps({"name": "m", "supports_no_skill": True, "cases": [case]}))

    done = run(skilled, "--skill", "deploy")

    assert done.code == 0, done.stdout + done.stderr
    assert done.results["lift"][0]["value"] == 1


def test_a_suite_runs_as_a_service_wraps_it_and_as_yaml(skilled: Project) -> None:
    skilled.write(
        "suite.yaml",
        """
        suite:
          id: 6f9619ff-8b86-d011-b42d-00cf4fc964ff
          name: s
          source_kind: manual
          verifier_kind: deterministic
          runnable: true
          cases_json:
            - {case_kind: exact_match, instruction: echo a, expected: a}
        """,
    )

    done = skilled.whet("run", "suite.yaml")

    assert done.statuses == {"exact_match-1": "passed"}, done.stderr


def test_every_problem_is_told_with_its_path_and_line(skilled: Project) -> None:
    skilled.write(
        "suite.json",
        """\
        {"name": "s", "source_kind": "manual", "verifier_kind": "determinstic",
         "cases_json": [
           {"case_kind": "task_package"},
           {"case_kind": "exact_match", "instruction": "a", "expected": 1,
            "wieght": 2}
        ]}
        """,
    )

    done = skilled.whet("validate", "suite.json")

    assert done.code == 2
    lines = done.stderr
    assert "verifier_kind (line 1): must be one of llm_judge, deterministic, structured_rubric" in lines
    assert "cases_json[0].environment_ref (line 3): is missing" in lines
    assert "cases_json[1].wieght (line 5): is not a known field" in lines
    assert 'did you mean "weight"?' in lines


@pytest.mark.parametrize("runner", ["command", "scripted"])
def test_an_agent_without_a_place_for_skills_is_told_where_the_skill_is(
    skilled: Project, sandbox_name: str, runner: str
) -> None:
    skilled.sandbox = sandbox_name
    look = 'echo "$WHET_ARM" $(head -2 "$WHET_SKILL/SKILL.md" 2>/dev/null | tail -1)'
    if runner == "scripted":
        steps = f"[[steps]]\nrun = {json.dumps(f'({look}) > seen.txt; cat seen.txt')}\n[[steps]]\nsay = 'done'\n"
        skilled.write("steps.toml", steps)
        skilled.settings('[runners.sc.agent]\ntype = "scripted"\nscript = "steps.toml"\n')
        seen = [{"op": "file_contains", "target": "seen.txt", "value": "name: deploy"}]
    else:
        seen = [{"op": "contains", "value": "name: deploy"}]
    suite(skilled, asserted(look, *seen), supports_no_skill=True)

    done = run(skilled, "--skill", "deploy")

    arms = by_arm(done)
    assert {arm: each["status"] for (_, arm), each in arms.items()} == {
        "skill": "passed",
        "no_skill": "expected-failed",
    }
    if runner == "command":
        assert {arm: each["trials"][0]["final_output"].strip() for (_, arm), each in arms.items()} == {
            "skill": "skill name: deploy",
            "no_skill": "no_skill",
        }


def test_skills_of_a_runner_are_there_for_a_command(skilled: Project) -> None:
    skilled.settings('[runners.sh]\nskills = ["deploy"]\n[runners.sh.agent]\ntype = "command"\ncommand = "sh"\n')
    suite(skilled, exact("head -2 ~/.agents/skills/deploy/SKILL.md | tail -1", "name: deploy"), supports_no_skill=True)

    done = run(skilled)

    assert done.statuses == {"c1": "passed"}, done.stdout


FOREIGN = """
from whet.agents.contract import AgentCommand, AgentDefaults, environment
class Parrot(AgentDefaults):
    def command(self, task):
        return AgentCommand(argv=("sh",), env=environment(task), stdin=task.prompt.encode(), output="text")
"""


def test_an_agent_of_somebody_elses_that_takes_no_skills_is_refused_but_for_packages(skilled: Project) -> None:
    skilled.write("lib/parrot.py", FOREIGN)
    skilled.write("lib/parrot-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: parrot\nVersion: 1\n")
    skilled.write("lib/parrot-1.dist-info/entry_points.txt", "[whet.agents]\nparrot = parrot:Parrot\n")
    skilled.settings('[runners.p.agent]\ntype = "parrot"\n')
    skilled.write("package/tests/test.sh", "#!/bin/sh\ngrep -q deploy skill-under-test/SKILL.md\n", mode=0o755)
    env = {"PYTHONPATH": str(skilled.root / "lib")}
    suite(skilled, exact("echo hi", "hi"))
    refused = run(skilled, "--skill", "deploy", env=env)
    suite(skilled, {"case_kind": "task_package", "environment_ref": "package", "instruction": "echo hi"})

    taken = run(skilled, "--skill", "deploy", env=env)

    assert refused.code == 2
    assert "the agent parrot does not take skills" in refused.stderr
    assert taken.statuses == {"c1": "passed"}, taken.stdout + taken.stderr


def test_whether_the_skill_was_triggered_counts_in_the_verdict_and_not_in_the_lift(skilled: Project) -> None:
    claude(skilled)
    triggered = {"op": "skill_triggered"}
    suite(
        skilled,
        asserted("please deploy", triggered, {"op": "contains", "value": "e"}),
        asserted("please deploy", triggered),
        asserted("please deploy", triggered, {"op": "contains", "value": "never"}, match="any"),
        supports_no_skill=True,
    )

    done = run(skilled, "--skill", "deploy")

    (lift,) = done.results["lift"]
    assert {arm: each["status"] for (case, arm), each in by_arm(done).items() if case == "c1"} == {
        "skill": "passed",
        "no_skill": "expected-failed",
    }
    assert [(case["case"], case["value"]) for case in lift["cases"]] == [("c1", 0.0)]
    assert lift["unpaired"] == ["c2", "c3"]
    assert (lift["triggered"], lift["asked"]) == (3, 3)
    assert "trigger checks: 3 of 3 held, not counted" in done.stdout
    assert "loaded in 3 of 3 sessions" in done.stdout


def test_the_rate_without_the_skill_counts_what_really_passed(skilled: Project) -> None:
    suite(skilled, exact('test -n "$WHET_SKILL" && echo done', "done"), supports_no_skill=True)

    done = run(skilled, "--skill", "deploy", "--trials", "3", "--reporter", "terminal", "--reporter", "junit=j.xml")

    rates = {arm: (each["rate"]["passed"], each["rate"]["total"]) for (_, arm), each in by_arm(done).items()}
    assert rates == {"skill": (3, 3), "no_skill": (0, 3)}
    # A trial of the baseline that failed counts neither against the run nor as a success, and says why.
    assert re.search(r"^    c1 +0/3 +3/3 +\+100 ", done.stdout, re.MULTILINE)
    assert re.search(r"✗ c1 / no_skill .*failed: \S", done.stdout)
    assert "3 of 6 trials passed" in done.stdout
    assert 'name="as expected" value="6 of 6"' in (skilled.root / "j.xml").read_text()


def test_a_rate_is_the_share_that_passes_and_a_score_is_the_mean(skilled: Project):
    """Each trial gets three quarters of its points, so that none passes."""
    parts = ({"op": "contains", "value": word} for word in ("a", "b", "c", "d"))
    case = asserted("echo a b c", *parts)
    suite(skilled, *([case] * 12))
    run(skilled, "--skill", "deploy", "--arm", "only=skill:none", "--trials", "5")

    rate, score, both = (
        skilled.whet("gate", *words)
        for words in (
            ("--min-rate", "40"),
            ("--min-score", "0.4"),
            ("--min-rate", "40", "--min-score", "0.4"),
        )
    )

    assert (rate.code, score.code, both.code) == (1, 0, 1)
    assert "only on sh: 0 % of trials pass (0 to " in rate.stdout
    assert "only on sh: the mean score is 0.75 (0." in score.stdout
    assert both.stdout.count("only on sh: ") == 2
