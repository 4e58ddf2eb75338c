"""Trials that only ask whether a skill loads: they end when that is known, and are graded as any other."""

from __future__ import annotations

import json
from typing import Any

import pytest
from project import Outcome, Project

SKILL = "---\nname: deploy\ndescription: Ships the site.\n---\n\nRun ship.sh.\n"
# Prints the events of its prompt, line by line, and does not end before `STAYS` says so.
AGENT = """
import json, pathlib, signal, sys, time
if pathlib.Path(__file__).with_name("deaf").exists():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for line in sys.stdin.read().splitlines():
    if line == "STAY":
        time.sleep(600)
    if line == "GO ON":
        number = 0
        while True:
            number += 1
            for event in ({"type": "tool_call", "tool": "Bash", "id": f"n{number}"},
                          {"type": "command", "command": "ls", "exit_code": 0},
                          {"type": "tool_result", "id": f"n{number}"}):
                print(json.dumps(event), flush=True)
            time.sleep(0.05)
    print(line, flush=True)
"""
LISTS = '{"type":"session_started","skills":["deploy","lint"]}'
SAYS = '{"type":"message","role":"assistant","text":"Let me see."}'
ANSWERS = '{"type":"final_output","text":"Done."}'
STAYS, GOES_ON = "STAY", "GO ON"


def loads(skill: str, call: str = "c") -> str:
    return "\n".join(
        json.dumps(event)
        for event in (
            {"type": "tool_call", "tool": "Skill", "id": call},
            {"type": "skill_signal", "skill": skill},
            {"type": "tool_result", "id": call},
        )
    )


@pytest.fixture
def skilled(project: Project) -> Project:
    """A project with a skill, and an agent that prints what its prompt says."""
    project.write("deploy/SKILL.md", SKILL)
    project.write("agent.py", AGENT)
    project.settings(
        '[runners.one.agent]\ntype = "command"\ncommand = "python3"\nargs = ["./agent.py"]\noutput = "events"\n'
        "[run]\nmax_parallel = 2\n[defaults]\ntimeout_ms = 20000\n"
    )
    return project


def ask(skilled: Project, *lines: str, must_load: bool = True, flags: tuple[str, ...] = ()) -> Outcome:
    """Run one trigger query, whose agent prints these lines."""
    query = {"query": "\n".join((LISTS, *lines)), "should_trigger": must_load}
    skilled.write("deploy/evals/triggers.json", json.dumps([query]))
    return skilled.whet("run", "deploy/evals/triggers.json", *flags)


def early(done: Outcome) -> tuple[str, dict[str, Any] | None]:
    """How the only trial went, and how it was ended."""
    (trial,) = done.trials
    return trial["status"], trial["ended_early"]


@pytest.mark.parametrize(("must_load", "status"), [(True, "passed"), (False, "failed")])
def test_a_trial_ends_as_soon_as_the_skill_is_loaded(skilled: Project, must_load: bool, status: str) -> None:
    done = ask(skilled, SAYS, loads("deploy"), STAYS, must_load=must_load)

    assert early(done) == (status, {"why": "loaded", "rounds": 1}), done.stdout + done.stderr
    assert done.trials[0]["skill_loaded"] is True
    assert done.session("query-1")["complete"] is True
    assert skilled.whet("verify", "latest").code == 0


@pytest.mark.parametrize(("must_load", "status"), [(True, "failed"), (False, "passed")])
def test_a_trial_ends_after_three_rounds_without_the_skill(skilled: Project, must_load: bool, status: str) -> None:
    done = ask(skilled, GOES_ON, must_load=must_load)

    (trial,) = done.trials
    assert (trial["status"], trial["ended_early"]["why"]) == (status, "rounds"), done.stdout + done.stderr
    assert trial["ended_early"]["rounds"] >= 3
    assert trial["skill_loaded"] is False


def test_another_skill_that_is_loaded_does_not_end_a_trial_and_is_told(skilled: Project) -> None:
    done = ask(skilled, loads("lint"), ANSWERS)

    assert early(done) == ("failed", None), done.stdout + done.stderr
    assert "loaded instead: lint" in done.trials[0]["failure"]["message"]


def test_a_trial_whose_agent_ends_by_itself_was_not_ended(skilled: Project) -> None:
    done = ask(skilled, SAYS, ANSWERS)

    assert early(done) == ("failed", None), done.stdout + done.stderr


@pytest.mark.parametrize("more", [(STAYS,), ('{"type":"message","role":"user","text":"Go on."}', STAYS)])
def test_an_agent_that_lingers_after_its_answer_without_the_skill_is_ended(
    skilled: Project, more: tuple[str, ...]
) -> None:
    done = ask(skilled, SAYS, ANSWERS, *more, must_load=False)

    assert early(done) == ("passed", {"why": "answered", "rounds": 1}), done.stdout + done.stderr


def test_what_is_loaded_in_the_round_of_an_answer_or_twice_counts_once(skilled: Project) -> None:
    done = ask(skilled, SAYS, loads("lint", "a"), loads("deploy", "b"), loads("deploy", "c"), ANSWERS, STAYS)

    status, end = early(done)
    assert (status, end and end["why"]) == ("passed", "loaded"), done.stdout + done.stderr
    assert {found["skill"] for found in done.trials[0]["detected_skills"]} == {"deploy", "lint"}


def test_calls_side_by_side_are_one_round(skilled: Project) -> None:
    calls = [json.dumps({"type": "tool_call", "tool": "Bash", "id": f"{number}"}) for number in range(6)]
    results = [json.dumps({"type": "tool_result", "id": f"{number}"}) for number in range(6)]
    done = ask(skilled, *calls, *results, loads("deploy"), STAYS)

    assert early(done) == ("passed", {"why": "loaded", "rounds": 2}), done.stdout + done.stderr


def test_an_agent_that_ignores_its_end_is_ended_all_the_same(skilled: Project) -> None:
    skilled.write("deaf", "")
    done = ask(skilled, loads("deploy"), GOES_ON)

    assert early(done)[0] == "passed", done.stdout + done.stderr
    assert early(done)[1] is not None


def test_half_a_line_of_an_agent_that_was_ended_is_no_mistake_of_it(skilled: Project) -> None:
    skilled.write(
        "agent.py", AGENT.replace('if line == "STAY":', 'if line == "STAY":\n        print("{", end="", flush=True)')
    )
    done = ask(skilled, loads("deploy"), STAYS)

    assert early(done)[0] == "passed", done.stdout + done.stderr


def test_trials_run_to_their_end_if_you_say_so(skilled: Project) -> None:
    done = ask(skilled, loads("lint"), *[loads("lint")] * 4, loads("deploy"), ANSWERS, flags=("--run-to-end",))

    assert early(done) == ("passed", None), done.stdout + done.stderr
    assert done.trials[0]["steps"] == 6


def test_what_does_not_tell_which_skills_it_loads_runs_to_its_end(skilled: Project) -> None:
    call = '{"type":"tool_call","tool":"Bash","id":"%d"}\n{"type":"tool_result","id":"%d"}'
    query = {"query": "\n".join((*(call % (n, n) for n in range(6)), ANSWERS)), "should_trigger": False}
    skilled.write("deploy/evals/triggers.json", json.dumps([query]))
    done = skilled.whet("run", "deploy/evals/triggers.json")

    assert early(done) == ("passed", None), done.stdout + done.stderr
    assert (done.trials[0]["steps"], done.trials[0]["skill_loaded"]) == (6, None)


def _mixed(skilled: Project, prompt: str, *assertions: dict[str, Any]) -> Outcome:
    case = {"case_kind": "boolean_assertion", "task_id": "a", "instruction": prompt, "assertions": list(assertions)}
    suite = {"name": "s", "source_kind": "manual", "verifier_kind": "deterministic", "cases_json": [case]}
    skilled.write("suite.json", json.dumps(suite))
    return skilled.whet("run", "suite.json", "--skill", "deploy")


def test_a_case_with_other_checks_runs_to_its_end(skilled: Project) -> None:
    prompt = "\n".join((LISTS, loads("deploy"), *[loads("lint")] * 4, ANSWERS))
    triggered = {"op": "skill_triggered"}
    done = _mixed(skilled, prompt, triggered, {"op": "contains", "value": "Done"})
    whole = early(done)
    alone = _mixed(skilled, f"{prompt}\n{STAYS}", triggered)

    assert whole == ("passed", None), done.stdout + done.stderr
    assert early(alone)[0] == "passed", alone.stdout + alone.stderr
    assert early(alone)[1] is not None


def test_a_case_about_two_skills_ends_when_both_are_loaded(skilled: Project) -> None:
    both = ({"op": "skill_triggered", "value": "deploy"}, {"op": "skill_triggered", "value": "lint"})
    done = _mixed(skilled, "\n".join((LISTS, loads("deploy"), SAYS, loads("lint", "d"), STAYS)), *both)
    found = early(done)
    none = _mixed(
        skilled, "\n".join((LISTS, loads("lint"), STAYS)), {"op": "skill_triggered", "value": "*", "negate": True}
    )

    assert found == ("passed", {"why": "loaded", "rounds": 2}), done.stdout + done.stderr
    assert early(none) == ("failed", {"why": "loaded", "rounds": 1}), none.stdout + none.stderr


def test_a_session_that_was_ended_early_does_not_answer_checks_that_came_later(skilled: Project) -> None:
    triggered = {"op": "skill_triggered"}
    _mixed(skilled, "\n".join((LISTS, loads("deploy"), STAYS)), triggered)
    same = skilled.whet("regrade", "latest")
    text = (skilled.root / "suite.json").read_text()
    skilled.write(
        "suite.json",
        text.replace('[{"op": "skill_triggered"}]', '[{"op": "skill_triggered"}, {"op": "contains", "value": "x"}]'),
    )
    other = skilled.whet("regrade", "latest")

    assert same.code == 0, same.stdout + same.stderr
    assert "the session was ended as soon as it was known which skills it loads" in other.stdout + other.stderr
    assert "errored" in other.stdout


def test_a_replay_of_a_session_that_was_ended_early_says_so_too(skilled: Project) -> None:
    first = ask(skilled, SAYS, loads("deploy"), STAYS)
    run = skilled.output_dir / "latest"
    skilled.settings(f'[runners.one.agent]\ntype = "replay"\nscript = "{run.resolve()}"\n')
    again = skilled.whet("run", "deploy/evals/triggers.json")

    assert early(again) == early(first), again.stdout + again.stderr


def test_sessions_that_were_ended_early_are_not_compared_by_what_they_take(skilled: Project) -> None:
    skilled.write("new/deploy/SKILL.md", SKILL + "Then look.\n")
    query = {"query": "\n".join((LISTS, loads("deploy"), STAYS)), "should_trigger": True}
    skilled.write("deploy/evals/triggers.json", json.dumps([query]))
    done = skilled.whet(
        "run",
        "deploy/evals/triggers.json",
        "--arm",
        "old=skill:deploy",
        "--arm",
        "new=skill:new/deploy",
        "--trials",
        "2",
    )
    compared = skilled.whet("compare")

    assert [trial["ended_early"]["why"] for trial in done.trials] == ["loaded"] * 4, done.stdout + done.stderr
    assert "steps" not in compared.stdout, compared.stdout


def _confused(skilled: Project, *flags: str) -> Outcome:
    """Run four queries: one is right, one loads the skill wrongly, and two do not load it, one of them another one."""
    queries = [
        {"id": "right", "query": "\n".join((LISTS, loads("deploy"), STAYS)), "should_trigger": True},
        {"id": "wrong", "query": "\n".join((LISTS, loads("deploy"), STAYS)), "should_trigger": False},
        {"id": "missed", "query": "\n".join((LISTS, loads("lint"), ANSWERS)), "should_trigger": True},
        {"id": "alone", "query": f"{LISTS}\n{ANSWERS}", "should_trigger": False},
    ]
    skilled.write("deploy/evals/triggers.json", json.dumps(queries))
    return skilled.whet("run", "deploy/evals/triggers.json", *flags)


def test_the_report_says_how_well_the_skill_is_loaded_and_what_is_loaded_instead(skilled: Project) -> None:
    done = _confused(skilled, "--reporter", "terminal", "--reporter", "markdown=report.md")
    page = (skilled.root / "report.md").read_text()

    (figures,) = done.results["triggers"]
    assert [figures[name] for name in ("rightly", "wrongly", "missed", "left_alone", "unknown")] == [1, 1, 1, 1, 0]
    assert [figures[name]["value"] for name in ("precision", "recall", "f1")] == [0.5, 0.5, 0.5]
    others = {each["case"]: each["others"] for each in figures["queries"]}
    assert others == {"right": {}, "wrong": {}, "missed": {"lint": 1}, "alone": {}}
    for text in (done.stdout, page):
        assert "precision 50 % (" in text, text
        assert "1 loaded rightly, 1 wrongly, 1 missed, 1 left alone" in text
        assert "ended early: 2 of 4 sessions; what that saved is not known: no earlier run" in text
    assert "lint 1" in done.stdout
    assert "alone" not in done.stdout.partition("\nTriggers\n")[2].partition("\n\n")[0].replace("left alone", "")
    assert "lint 1" in page
    assert skilled.whet("verify", "latest").code == 0


def test_an_arm_without_the_skill_has_no_figures_of_triggers(skilled: Project) -> None:
    triggered = [{"op": "skill_triggered"}]
    case = {"case_kind": "boolean_assertion", "task_id": "a", "instruction": LISTS, "assertions": triggered}
    suite = {"name": "s", "source_kind": "manual", "verifier_kind": "deterministic", "supports_no_skill": True}
    skilled.write("suite.json", json.dumps({**suite, "cases_json": [case]}))
    done = skilled.whet("run", "suite.json", "--skill", "deploy")

    assert [figures["arm"] for figures in done.results["triggers"]] == ["skill"], done.stdout + done.stderr


def test_a_comparison_says_how_often_each_side_loaded_the_skill(skilled: Project) -> None:
    skilled.write("new/deploy/SKILL.md", SKILL + "Then look.\n")
    lines = [
        "import os",
        f"print({LISTS!r})",
        f"if os.environ.get('SIDE') == 'new': print({loads('deploy')!r})",
        f"print({ANSWERS!r})",
    ]
    skilled.write("agent.py", "\n".join(lines))
    skilled.suite("def fine(report, ctx): pass\nsuite = [Case(id='a', prompt='Go.', check=fine)]\n")
    skilled.settings(
        '[runners.one.agent]\ntype = "command"\ncommand = "python3"\nargs = ["./agent.py"]\noutput = "events"\n'
        '[arms.old]\nskill = "deploy"\n[arms.new]\nskill = "new/deploy"\nenv = { SIDE = "new" }\n'
    )
    done = skilled.run("--arm", "old", "--arm", "new", "--trials", "2")
    compared, document = skilled.whet("compare"), json.loads(skilled.whet("compare", "--json").stdout)

    assert "loads       old loaded in 0 of 2 sessions; new loaded in 2 of 2 sessions" in compared.stdout, done.stdout
    assert [(each["arm"], each["loaded"], each["told"]) for each in document["loads"]] == [("old", 0, 2), ("new", 2, 2)]


def test_what_early_ends_saved_is_told_by_a_run_to_the_end_of_the_same_cases(skilled: Project) -> None:
    # The agent waits for a file after the skill is loaded: with it, sessions come to their end.
    is_let_go = 'pathlib.Path(__file__).with_name("go").exists()'
    wait = f'if line == "WAIT":\n        time.sleep(0 if {is_let_go} else 600)\n        continue\n    '
    skilled.write("agent.py", AGENT.replace('if line == "STAY":', f'{wait}if line == "STAY":'))
    lines = (LISTS, loads("deploy", "0"), "WAIT", *(loads("lint", f"{number}") for number in range(1, 6)), ANSWERS)
    skilled.write("deploy/evals/triggers.json", json.dumps([{"query": "\n".join(lines), "should_trigger": True}]))
    first = skilled.whet("run", "deploy/evals/triggers.json")
    skilled.write("go", "")
    whole = skilled.whet("run", "deploy/evals/triggers.json", "--run-to-end")
    (skilled.root / "go").unlink()
    again = skilled.whet("run", "deploy/evals/triggers.json")

    assert (whole.code, again.code) == (0, 0), whole.stdout + again.stdout
    assert "ended early: 1 of 1 session; what that saved is not known" in first.stdout
    assert "ended early" not in whole.stdout
    assert "ended early: 1 of 1 session; about 5 rounds, an unknown cost" in again.stdout, again.stdout
    assert "by whole sessions of the same cases in earlier runs" in again.stdout
