"""Conversations: prompts one after the other in one session, each with checks, and what can go wrong on the way."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest
from benching import run, write
from project import EVENTS, SHELL, Outcome, Project, wait_for

from whet.grade.judge.questions import TOOL as JUDGE_TOOL
from whet.testing.scripted_model.server import ScriptedModel

# The prompt is the program, and each of them is started again for the next prompt.
TALKING = SHELL + "resume = []\n"
TALKING_EVENTS = EVENTS + "resume = []\n"
BOTH = 'turns=["echo one > a; echo first", "cat a; echo two > b"]'


def told(outcome: Outcome, case: str = "a") -> list[tuple[str, int | None, bool]]:
    return [(grade["check"], grade["turn"], grade["passed"]) for grade in outcome.trial(case)["grades"]]


def test_the_turns_of_a_case_share_workspace_and_home_and_checks_see_all_of_them(boxed: Project) -> None:
    boxed.settings(TALKING)
    boxed.suite("""
        def first(session, ctx):
            assert (session.final_output, len(session.turns)) == ("first", 1)
            assert ctx.changes().created == ("a",)
        def whole(session, ctx):
            assert session.final_output == "one\\nwas here\\n2"
            assert session.prompt == session.turns[0].prompt
            assert [turn.final_output for turn in session.turns] == ["first", session.final_output]
            assert [event.text for event in session.turns[0].events] == ["first"]
            assert ctx.changes().created == ("a", "b")
        suite = [Case(id="a", check=whole, turns=[
            Turn("echo was here > $HOME/note; echo one > a; echo first", check=first),
            "cat a $HOME/note; echo two > b; echo $WHET_TURN",
        ])]
    """)

    outcome = boxed.run()

    assert outcome.code == 0, outcome.stdout + outcome.stderr
    assert told(outcome) == [("check", 1, True), ("check", None, True)]
    assert outcome.trial("a")["turns"] == 2
    assert outcome.session("a")["turns"][0]["final_output"] == "first"
    assert outcome.artifact("a", "turns/1/transcript.txt").read_text() == "first\n"
    assert boxed.whet("verify", "latest").code == 0


def test_a_run_shows_the_turns_of_a_conversation_and_what_its_checks_printed(project: Project) -> None:
    project.settings(TALKING)
    project.suite("""
        def prints(session, ctx):
            print("look here")
            assert False
        suite = [Case(id="a", check=ok, turns=[Turn("echo 1", check=prints), "echo 2"])]
    """)

    outcome = project.run(
        "--verbose", "--reporter", "terminal", "--reporter", "junit=out.xml", "--reporter", "markdown=out.md"
    )

    assert "turn 1: echo 1" in outcome.stdout
    assert "look here" in outcome.stdout
    for name in ("out.xml", "out.md"):
        assert "turn 1: " in (project.root / name).read_text()
    assert "note: a conversation of 1 turn" in (project.root / "out.xml").read_text()


def test_a_turn_whose_check_fails_ends_the_conversation_unless_it_is_soft(project: Project) -> None:
    project.settings(TALKING)
    project.suite("""
        suite = [
            Case(id="hard", check=ok, turns=[Turn("echo 1", check=no), "echo 2 > {outside}/hard", "echo 3"]),
            Case(id="soft", check=ok, turns=[Turn("echo 1", check=no, soft=True), "echo 2 > {outside}/soft"]),
        ]
    """)

    outcome = project.run()

    assert outcome.statuses == {"hard": "failed", "soft": "failed"}
    assert told(outcome, "hard") == [("check", 1, False)]
    assert told(outcome, "soft") == [("check", 1, False), ("check", None, True)]
    assert (project.outside / "soft").exists()
    assert not (project.outside / "hard").exists()
    assert outcome.message("hard") == "turn 1: it is not so"
    assert "turns 2 to 3 were not taken, because a check of turn 1 did not hold" in outcome.trial("hard")["notes"]
    assert "turn 1: it is not so" in outcome.stdout


def test_usage_and_steps_are_those_of_all_turns_together(project: Project) -> None:
    project.settings(TALKING_EVENTS)
    says = """echo '{"type": "message", "role": "assistant", "text": "hi"}'"""
    spends = """echo '{"type": "usage", "input_tokens": 100, "output_tokens": 20, "cost_usd": 0.25}'"""
    project.suite(f"""
        def whole(session, ctx):
            assert [turn.usage.input_tokens for turn in session.turns] == [100, 200]
            assert [turn.steps for turn in session.turns] == [1, 1]
            assert session.usage.cost_usd == 0.75
        suite = [Case(id="a", check=whole, turns=[{says + ";" + spends!r}, {says + ";" + spends + ";" + spends!r}])]
    """)

    outcome = project.run()

    assert outcome.code == 0, outcome.stdout
    assert outcome.trial("a")["usage"]["input_tokens"] == 300
    assert outcome.trial("a")["steps"] == 2


@pytest.mark.parametrize(
    ("limit", "code", "said"),
    [
        ("timeout_ms=1500", "timeout", "was still running after 1.5 s, in turn 2, and was stopped"),
        ("max_steps=1", "max-steps", "had taken 1 steps before turn 2, and may take 1"),
        ("budget_usd=0.3", "budget", "has spent $0.5 of a budget of $0.3, in turn 2"),
    ],
)
def test_a_limit_is_one_of_the_whole_conversation(project: Project, limit: str, code: str, said: str) -> None:
    project.settings(TALKING_EVENTS)
    says = """echo '{"type": "message", "role": "assistant", "text": "hi"}'"""
    spends = """echo '{"type": "usage", "cost_usd": 0.25}'"""
    waits = "sleep 60" if code == "timeout" else "true"
    project.suite(
        f"suite = [Case(id='a', check=ok, {limit}, turns=[{says + ';' + spends!r}, {spends + ';' + waits!r}])]"
    )

    outcome = project.run()

    assert outcome.codes == {"a": code}
    assert outcome.message("a") == said
    assert project.left_after_a_while() == []


@pytest.mark.parametrize(
    ("second", "code", "said"),
    [
        ("exit 7", "agent-crashed", "turn 2: ended with exit code 7"),
        ("echo no event", "normalization", "turn 2: line 1 of its output is not a session event"),
        (
            """echo '{"type": "session_started", "session_id": "other"}'""",
            "session-lost",
            "turn 2: did not go on with its session mine, and began a new one in turn 2: other",
        ),
    ],
)
def test_an_agent_that_ends_badly_in_its_second_turn_fails(project: Project, second: str, code: str, said: str) -> None:
    project.settings(TALKING_EVENTS)
    first = """echo '{"type": "session_started", "session_id": "mine"}'"""
    project.suite(f"suite = [Case(id='a', check=ok, turns=[{first!r}, {second!r}, 'touch {{outside}}/third'])]")

    outcome = project.run()

    assert outcome.codes == {"a": code}
    assert outcome.statuses == {"a": "failed"}
    assert outcome.message("a").startswith(said)
    assert not (project.outside / "third").exists()
    assert outcome.artifact("a", "turns/2").is_dir()


def test_an_agent_that_removes_its_workspace_cannot_go_on_and_has_failed(project: Project) -> None:
    project.settings(TALKING)
    project.suite("suite = [Case(id='a', check=ok, turns=['mv $PWD {outside}/gone', 'echo 2'])]")

    outcome = project.run()

    assert (outcome.statuses, outcome.codes) == ({"a": "failed"}, {"a": "workspace-spoiled"}), outcome.stdout
    assert outcome.message("a") == "had removed its workspace before turn 2"


def test_an_agent_that_gives_no_id_of_its_session_cannot_go_on_with_it(project: Project) -> None:
    says = '{"type": "result", "subtype": "success", "is_error": false, "result": "hi"}'
    program = project.write("claude", f"#!/bin/sh\necho '{says}'\n", mode=0o755)
    project.settings(
        f'[runners.real.agent]\ntype = "claude-code"\ncommand = "{program}"\nenv.ANTHROPIC_API_KEY = "k"\n'
    )
    project.suite("suite = [Case(id='a', check=ok, turns=['x', 'y'])]")

    outcome = project.run()

    assert outcome.codes == {"a": "session-lost"}, outcome.stdout + outcome.stderr
    assert outcome.message("a") == "gave no id of its session in turn 1, so it cannot go on with it"


def test_an_agent_that_prints_nothing_has_turns_with_empty_answers(project: Project) -> None:
    project.settings(TALKING)
    project.suite("""
        def silent(session, ctx): assert [turn.final_output for turn in session.turns] == ["", "", ""]
        suite = [Case(id="a", check=silent, turns=["true", "true", "true"])]
    """)

    outcome = project.run()

    assert outcome.code == 0, outcome.stdout


def test_an_event_of_an_agent_cannot_pass_for_the_beginning_of_another_turn(project: Project) -> None:
    project.settings(TALKING_EVENTS)
    project.suite("""
        LIES = '''echo '{"type": "turn_started", "turn": 2, "prompt": "no"}'
        echo '{"type": "final_output", "text": "first"}' '''
        def whole(session, ctx):
            assert [len(turn.events) for turn in session.turns] == [1, 1]
        suite = [Case(id="a", check=whole, turns=[LIES, LIES])]
    """)

    outcome = project.run()

    assert outcome.code == 0, outcome.stdout


def test_an_agent_that_takes_one_prompt_only_is_refused_before_anything_starts(project: Project) -> None:
    project.settings(SHELL)
    project.suite(f"suite = [Case(id='a', check=ok, {BOTH}), Case(id='b', check=ok, prompt='true')]")

    outcome = project.run()

    assert outcome.code == 2
    assert "runners.sh: a is a conversation, and the agent command takes one prompt only; set its" in outcome.stderr
    assert "`agent.resume`" in outcome.stderr
    assert not project.output_dir.exists()
    assert project.run("--case", "b").code == 0


def test_a_command_that_goes_on_gets_its_own_arguments_and_the_id_of_its_session(project: Project) -> None:
    program = """
        import json, os, sys
        print(json.dumps({"type": "session_started", "session_id": "s-1"}))
        print(json.dumps({"type": "final_output", "text": " ".join([*sys.argv[1:], os.environ.get("WHET_TURN", "-")])}))
    """
    place = project.write("agent.py", program)
    project.settings(f"""
        [runners.py.agent]
        type = "command"
        command = "python3"
        args = ["{place}", "new", "{{prompt}}"]
        resume = ["{place}", "again", "{{session}}", "{{prompt}}"]
        output = "events"
    """)
    project.suite("""
        def whole(session, ctx):
            assert [turn.final_output for turn in session.turns] == ["new x -", "again s-1 y 2"]
        suite = [Case(id="a", check=whole, turns=["x", "y"])]
    """)

    outcome = project.run()

    assert outcome.code == 0, outcome.stdout + outcome.stderr


SCRIPTED = """
    [runners.demo.agent]
    type = "scripted"
    script = "steps.toml"
"""
STEPS = """
    [[steps]]
    turn = 1
    write = "a"
    text = "1"
    [[steps]]
    turn = 1
    write = "both"
    text = "1"
    [[steps]]
    turn = 2
    delete = "a"
    [[steps]]
    turn = 2
    write = "given"
    text = "old"
    [[steps]]
    turn = 1
    write = "given"
    text = "new"
    [[steps]]
    answer = "heard {prompt}"
"""
CHANGING = """
    def first(session, ctx):
        assert session.final_output == "heard x"
        assert (ctx.workspace / "a").read_text() == "1"
        assert (ctx.workspace / "given").read_text() == "new"
        assert ctx.changes().created == ("a", "both"), ctx.changes()
    def whole(session, ctx):
        assert session.final_output == "heard y"
        assert not (ctx.workspace / "a").exists()
        assert (ctx.workspace / "given").read_text() == "old"
        assert ctx.changes().created == ("both",)
        assert ctx.changes().modified == ()
    workspace = Workspace(mode="isolated", template_dir="template")
    suite = [Case(id="a", check=whole, turns=[Turn("x", check=first), "y"])]
"""


@pytest.fixture
def changing(project: Project) -> Project:
    """A scripted conversation whose second turn undoes a part of the first."""
    project.write("template/given", "old")
    project.write("steps.toml", STEPS)
    project.settings(SCRIPTED)
    project.suite(CHANGING)
    return project


def test_a_recorded_conversation_is_replayed_turn_by_turn_with_its_files(changing: Project) -> None:
    recorded = changing.run()
    assert recorded.code == 0, recorded.stdout
    shutil.copytree(recorded.folder, changing.root / "recording", symlinks=True)
    changing.settings('[runners.demo.agent]\ntype = "replay"\nscript = "recording"\n')

    outcome = changing.run()

    assert outcome.code == 0, outcome.stdout + outcome.stderr
    assert outcome.trial("a")["turns"] == 2
    changing.suite(CHANGING.replace('"y"]', '"y", "z"]'))
    longer = changing.run()
    assert longer.statuses == {"a": "errored"}
    assert "has 2 turns, and no turn 3" in longer.message("a")


def test_a_recorded_conversation_is_regraded_by_what_there_was_after_each_turn(changing: Project) -> None:
    changing.run()
    changing.suite(CHANGING.replace('== "heard x"', '== "heard z"'))

    failed = changing.whet("regrade", "latest")

    assert failed.statuses == {"a": "failed"}, failed.stdout + failed.stderr
    assert told(failed) == [("check", 1, False)]
    changing.suite(CHANGING)
    back = changing.whet("regrade", "latest")
    assert back.statuses == {"a": "passed"}, back.stdout
    assert told(back) == [("check", 1, True), ("check", None, True)]


def test_what_a_conversation_did_not_come_to_cannot_be_regraded(project: Project) -> None:
    project.settings(TALKING)
    suite = "suite = [Case(id='a', check=ok, turns=[Turn('echo 1', check={check}), 'echo 2'])]"
    project.suite(suite.format(check="no"))
    project.run()
    project.suite(suite.format(check="ok"))

    outcome = project.whet("regrade", "latest")

    assert outcome.statuses == {"a": "errored"}
    assert outcome.message("a") == "it ended after turn 1 of 2, so the rest is not known"


def test_a_check_of_a_turn_that_changes_the_workspace_is_noted(project: Project) -> None:
    project.settings(TALKING)
    project.suite("""
        def messy(session, ctx): ctx.run("touch mess")
        suite = [Case(id="a", check=ok, turns=[Turn("echo 1", check=messy), "ls"])]
    """)

    outcome = project.run()

    assert outcome.session("a")["final_output"] == "mess"
    noted = "the workspace changed during the checks of turn 1, and the agent went on in it"
    assert noted in outcome.trial("a")["notes"]


def test_the_prompt_of_an_arm_comes_before_the_first_prompt_only(project: Project) -> None:
    project.settings(TALKING)
    project.write("extra.md", "echo more")
    project.suite("""
        def whole(session, ctx):
            assert [turn.final_output for turn in session.turns] == ["more\\n1 new", "2 new"]
        suite = [Case(id="a", check=whole, turns=["echo 1 $WHET_ARM", "echo 2 $WHET_ARM"])]
    """)

    outcome = project.run("--arm", "old=env:X=1", "--arm", "new=prompt:extra.md")

    old, new = outcome.results["cases"][0]["executions"]
    assert new["trials"][0]["status"] == "passed", outcome.stdout
    assert old["trials"][0]["status"] != "passed"


def test_an_interrupted_run_of_conversations_goes_on_where_it_was(project: Project) -> None:
    project.settings(TALKING)
    hangs = "test -e {outside}/go || { touch {outside}/there; sleep 600; }"
    project.suite(f"suite = [Case(id='a', check=ok, {BOTH}), Case(id='b', check=ok, turns=['echo 1', {hangs!r}])]")
    process = project.start("suite.py", "--schedule", "serial")
    wait_for(project.outside / "there")
    process.terminate()
    stopped = project.outcome(process)
    (project.outside / "go").write_text("")

    outcome = project.whet("run", "--resume", "latest")

    assert [line["key"]["case"] for line in project.journal()] == ["a", "b"], stopped.stdout + stopped.stderr
    assert outcome.code == 0, outcome.stdout + outcome.stderr
    assert outcome.statuses == {"a": "passed", "b": "passed"}
    assert project.whet("verify", "latest").code == 0


def test_what_is_wrong_with_a_conversation_is_said_with_its_place_before_anything_starts(project: Project) -> None:
    project.settings(TALKING)
    project.suite("""
        suite = [
            Case(id="both", prompt="x", turns=["y"], check=ok),
            Case(id="none", turns=[], check=ok),
            Case(id="blank", turns=["x", "  ", Turn(""), Turn("y", chekc=ok), Turn(), 3], check=ok),
            Case(id="user", turns=["x"], user=User(goal="y"), check=ok),
            Case(id="opener", user=User(goal="y", max_turns=0, fact=[]), check=ok),
            Case(id="unchecked", turns=["x", Turn("y")]),
        ]
    """)

    outcome = project.whet("validate", "suite.py")

    assert outcome.code == 2
    said = [line.partition("suite.py: ")[2] for line in outcome.stderr.splitlines() if "suite.py: " in line]
    for place, message in (
        ("both", "turns: cannot be used together with prompt: make that the first turn"),
        ("none", "turns: is empty: there is nothing to ask"),
        ("blank", "turns[1]: must not be empty"),
        ("blank", "turns[2].prompt: must not be empty"),
        ("blank", "turns[3].chekc: is not a known field"),
        ("blank", "turns[4].prompt: is missing"),
        ("blank", "turns[5]: must be a text or a Turn, not 3"),
        ("user", "user: cannot be used together with turns"),
        ("opener", "prompt: is missing"),
        ("opener", "user.max_turns: must be an integer of at least 1"),
        ("opener", "user.fact: is not a known field"),
        ("unchecked", "check: is missing"),
    ):
        assert any(line.startswith(place) and message in line for line in said), (place, message, outcome.stderr)


def test_a_bench_suite_has_turns_with_expectations_of_their_own(bench: Project) -> None:
    bench.settings(TALKING_EVENTS)
    write(
        bench,
        {
            "id": "good",
            "turns": [{"prompt": "echo 1 > made", "expect": ["file:made created", "no-file:later"]}, "touch later"],
            "expect": ["file:later created"],
        },
        {"id": "bad", "turns": [{"prompt": "true", "expect": ["file:made created"]}, "echo 1 > made"]},
    )

    ended, _ = run(bench)

    assert ended.statuses == {"good": "passed", "bad": "failed"}, ended.stderr
    assert told(ended, "good") == [
        ("file:made created", 1, True),
        ("no-file:later", 1, True),
        ("file:later created", None, True),
    ]
    assert told(ended, "bad") == [("file:made created", 1, False)]
    plan = bench.whet("bench", "bench/suite.json", "--dry-run").stdout
    assert "2 turns" in plan
    assert 'turn 1: {"' in plan


def eval_suite(*cases: dict[str, Any]) -> str:
    head = {"name": "s", "source_kind": "manual", "verifier_kind": "deterministic"}
    return json.dumps({**head, "cases_json": cases})


def test_an_eval_suite_has_turns_with_assertions_of_their_own(project: Project) -> None:
    project.settings(TALKING)
    first = {"instruction": "echo one", "assertions": [{"op": "contains", "value": "one"}]}
    lost = {**first, "instruction": "echo three", "soft": True}
    exact = {"case_kind": "exact_match", "expected": "two"}
    project.write(
        "suite.json",
        eval_suite(
            {**exact, "task_id": "good", "turns": [first, "echo two"]},
            {**exact, "task_id": "soft", "turns": [lost, {"prompt": "echo two"}]},
        ),
    )

    outcome = project.whet("run", "suite.json")

    assert outcome.statuses == {"good": "passed", "soft": "failed"}, outcome.stdout + outcome.stderr
    assert told(outcome, "soft") == [("boolean_assertion", 1, False), ("exact_match", None, True)]
    project.write(
        "suite.json", eval_suite({**exact, "instruction": "x", "turns": ["y"], "user": {"goal": "z", "who": 1}})
    )
    wrong = project.whet("validate", "suite.json")
    assert wrong.code == 2
    assert "turns (line 1): cannot be used together with instruction" in wrong.stderr
    assert "user (line 1): cannot be used together with turns" in wrong.stderr
    assert "user.who (line 1): is not a known field" in wrong.stderr


def test_a_rubric_is_held_against_the_whole_conversation(project: Project) -> None:
    case = {
        "case_kind": "llm_rubric",
        "task_id": "a",
        "turns": ["echo first answer", "echo second answer"],
        "rubric": "Good?",
    }
    head = {"name": "s", "source_kind": "manual", "verifier_kind": "llm_judge"}
    project.write("suite.json", json.dumps({**head, "cases_json": [case]}))
    verdict = {"call": JUDGE_TOOL, "args": {"rating": 9, "rationale": "Good.", "manipulation": False}}

    with ScriptedModel([verdict]) as model:
        project.settings(f'{TALKING}[judge]\nurl = "{model.url}/v1"\nretries = 0\n')
        outcome = project.whet("run", "suite.json", env={"EVAL_SKILLS_LLM_KEY": "key-of-the-judge"})
        asked = model.requests[0].body["messages"][1]["content"]

    assert outcome.code == 0, outcome.stdout + outcome.stderr
    assert "[Prompt 1]\necho first answer" in asked
    assert "[Answer 2]\nsecond answer" in asked
