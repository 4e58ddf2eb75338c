"""Explaining: questions that failures left, put to an agent in its own session, and what can stand in the way.

The program here only stands in for Claude Code: it keeps and resumes sessions as that does. The real ones are asked in
tests/agents.
"""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from project import SHELL, Outcome, Project, seal_again, wait_for

STAND_IN = """#!/usr/bin/env python3
import json, os, sys, time
from pathlib import Path
def tell(**record): print(json.dumps(record), flush=True)
prompt = sys.stdin.read()
resumed = sys.argv[sys.argv.index("--resume") + 1] if "--resume" in sys.argv else None
home = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path(os.environ["HOME"]) / ".claude")
# As the real one does: a session is found only from the folder that it began in.
folder = home / "projects" / os.getcwd().replace("/", "-")
folder.mkdir(parents=True, exist_ok=True)
session = folder / f"{resumed or 'session-1'}.jsonl"
if os.path.isdir("{outside}"): print(prompt.splitlines()[0], file=open("{outside}/starts", "a"))
if resumed and not session.exists():
    sys.exit(f"No conversation found with session ID: {resumed}")
earlier = session.read_text() if resumed else ""
session.write_text(earlier + prompt + "\\n")
if prompt.startswith("nameless"): sys.exit(4)
tell(type="system", subtype="init", session_id=session.stem, model="m", cwd=os.getcwd())
if prompt.startswith(("crash", "hang")):
    waits = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "sleep 600"}}
    tell(type="assistant", message={"id": "w", "content": [waits]})
if prompt.startswith("crash"): sys.exit(3)
if prompt.startswith("hang"): time.sleep(600)
exec(prompt.partition("exec ")[2])
there = sorted(name for name in os.listdir() if not name.startswith("."))
answer = f"I heard {earlier.count(chr(10))} before, and see {there}"
tell(type="assistant", message={"id": prompt[:9], "content": [{"type": "text", "text": answer}]})
tell(type="result", subtype="success", is_error=False, result=answer, usage={"input_tokens": 7, "output_tokens": 2})
"""
SETTINGS = """
[runners.real.agent]
type = "claude-code"
command = "{command}"
{more}
[runners.real.agent.env]
WHET_TEST = "{token}"
ANTHROPIC_API_KEY = "sk-of-the-runner-0000"
"""
WORK = 'exec open("made.txt", "w").write("seven")'
CHECK = """
def asks(report, ctx):
    expect.soft.output.includes(report, "yes", explain="Why not?")
    expect.soft.output.includes(report, "no", explain="What else?")
"""


@pytest.fixture
def asking(project: Project) -> Project:
    """A project with a run that failed and left two questions."""
    settings(project)
    project.suite(CHECK + f"suite = [Case(id='a', prompt={WORK!r}, check=asks)]\n")
    return project


def settings(project: Project, more: str = "", name: str = "whet.toml") -> None:
    program = project.write("bin/stand-in", STAND_IN, mode=0o755)
    project.settings(SETTINGS.replace("{command}", str(program)).replace("{more}", more), name=name)


def explain(project: Project, *args: str, folder: str = "latest/trials", env: dict[str, str] | None = None) -> Outcome:
    return project.whet("explain", str(project.output_dir / folder), *args, env=env)


def kept(outcome: Outcome) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(outcome.artifact("a", "explanations.json").read_bytes())["explanations"]
    return found


def starts(project: Project) -> list[str]:
    return (project.outside / "starts").read_text().splitlines()


def test_each_question_is_asked_of_a_session_that_knows_the_task_and_no_other_question(boxed: Project) -> None:
    settings(boxed, f'mounts = ["{boxed.root / "bin"}"]')
    boxed.suite(CHECK + f"suite = [Case(id='a', prompt={WORK!r}, check=asks)]\n")
    boxed.run()

    outcome = explain(boxed)

    assert outcome.code == 0, outcome.stdout + outcome.stderr
    assert [(each["question"], each["status"], each["answer"]) for each in kept(outcome)] == [
        ("Why not?", "answered", "I heard 1 before, and see ['made.txt']"),
        ("What else?", "answered", "I heard 1 before, and see ['made.txt']"),
    ]
    assert [each["artifact_dir"] for each in kept(outcome)] == ["explanations/1", "explanations/2"]
    assert "1. Why not?" in outcome.stdout
    assert "I heard 1 before" in outcome.stdout


def test_a_run_that_left_questions_says_what_to_type_to_ask_them(asking: Project) -> None:
    ran = asking.run()

    line = next(line for line in ran.stdout.splitlines() if "to ask" in line)
    typed = shlex.split(line.split("to ask")[1])
    assert typed[:2] == ["whet", "explain"]
    assert asking.whet(*typed[1:]).code == 0


def test_explain_alone_lists_what_failed_and_says_what_to_type_to_ask(asking: Project) -> None:
    asking.run()

    listed = asking.whet("explain")

    assert listed.code == 0
    lines = listed.stdout.splitlines()
    assert lines[0].endswith(": 1 of 1 trial failed")
    assert "suite::a@" in lines[1]
    assert '"yes"' in lines[2]
    typed = shlex.split(lines[3].partition("session: ")[2])
    assert asking.whet(*typed[1:]).code == 0


def test_explain_alone_does_not_offer_to_ask_an_agent_that_kept_no_session(project: Project) -> None:
    project.settings(SHELL)
    project.suite("suite = [Case(id='a', prompt='true', check=no)]")
    project.run()

    lines = project.whet("explain").stdout.splitlines()

    assert lines[2] == "    it is not so"
    assert "cannot be asked" in lines[3]


def test_a_question_needs_the_trial_that_it_is_for(asking: Project) -> None:
    asking.run()

    refused = asking.whet("explain", "--ask", "Why?")

    assert (refused.code, refused.stderr.splitlines()[0]) == (2, "error[usage]: which trial?")


def test_json_is_for_the_list_of_failures(asking: Project) -> None:
    refused = asking.whet("explain", "latest", "--json")

    assert refused.code == 2
    assert "--json is for the list of failures" in refused.stderr


def test_a_run_whose_agent_cannot_be_asked_or_left_no_question_does_not_speak_of_it(asking: Project) -> None:
    asking.suite("suite = [Case(id='a', prompt='exec 1', check=no)]")

    assert "whet explain" not in asking.run().stdout


def test_what_was_answered_is_shown_again_and_asked_again_only_on_request(asking: Project) -> None:
    asking.run()
    explain(asking)

    again = explain(asking)
    before = starts(asking)
    rerun = explain(asking, "--rerun")

    assert again.code == 0
    assert "I heard 1 before" in again.stdout
    assert "2 questions answered before; --rerun asks again." in again.stdout
    assert before == [WORK, "Why not?", "What else?"]
    assert starts(asking)[3:] == ["Why not?", "What else?"]
    assert [each["number"] for each in kept(rerun)] == [1, 2, 3, 4]


def test_a_question_of_ones_own_takes_the_place_of_those_that_were_kept(asking: Project) -> None:
    asking.run()

    outcome = explain(asking, "--ask", "-- and you?", "--ask", "Really?")

    assert outcome.code == 0, outcome.stderr
    assert starts(asking)[1:] == ["-- and you?", "Really?"]
    assert [(each["location"], each["expectation"]) for each in kept(outcome)] == [(None, None)] * 2


def test_an_answer_tells_which_expectation_it_is_about_and_what_it_took(asking: Project) -> None:
    asking.run()

    found = kept(explain(asking))[1]

    assert found["expectation"].startswith("expected the output to match")
    suite = asking.root / "suite.py"
    line = next(number for number, text in enumerate(suite.read_text().splitlines(), 1) if "What else?" in text)
    assert found["location"] == {"file": str(suite), "line": line}
    assert (found["usage"]["input_tokens"], found["usage"]["output_tokens"], found["steps"]) == (7, 2, 1)
    assert found["session_id"] == "session-1"


def test_what_answers_cost_is_told_and_counts_in_the_run_from_then_on(asking: Project) -> None:
    program = asking.root / "bin" / "stand-in"
    # A quarter of a dollar for each answer, as the program counts: also what came before in its session.
    times = "(earlier.count(chr(10)) + 1)"
    model = f'{{"m": {{"inputTokens": 7 * {times}, "outputTokens": 2 * {times}, "costUSD": 0.25 * {times}}}}}'
    counted = f"total_cost_usd=0.25 * {times}, modelUsage={model}, "
    program.write_text(program.read_text().replace('type="result", ', f'type="result", {counted}'))
    before = asking.run("--max-cost", "1")
    first = explain(asking, "--max-cost", "0.5")
    rest = explain(asking, "--max-cost", "9")
    history = asking.whet("history", "suite.py")
    verified = asking.whet("verify", "latest")
    longer = asking.whet("run", "--resume", "latest", "--add-trials", "1", "--max-cost", "0.6")

    assert before.results["spending"]["cost_usd"] is not None
    assert "Asked 1 question in" in first.stdout
    assert "$0.250." in first.stdout
    assert "1 not asked: $0.5 of at most $0.5 is spent (agents $0.250, explain $0.250)." in first.stdout
    assert (first.code, rest.code, verified.code) == (3, 0, 0)
    assert "$0.750 (agents $0.250, explain $0.500)" in history.stdout
    assert "$0.75 of at most $0.6 is spent (agents $0.250, explain $0.500): no more trials start" in longer.stdout
    assert longer.results["spending"]["explain"]["cost_usd"] == 0.5
    assert asking.whet("verify", "latest").code == 0


def test_an_agent_that_fails_to_answer_is_told_with_its_code_and_the_next_question_is_asked(asking: Project) -> None:
    asking.run()

    outcome = explain(asking, "--ask", "crash", "--ask", "hang", "--ask", "Still there?", "--timeout-ms", "8000")

    assert outcome.code == 1
    assert [(each["status"], (each["failure"] or {}).get("code")) for each in kept(outcome)] == [
        ("failed", "agent-crashed"),
        ("failed", "timeout"),
        ("answered", None),
    ]
    assert asking.left_after_a_while() == []


def test_a_kill_loses_no_answer_and_the_next_asking_goes_on_where_it_was(asking: Project) -> None:
    asking.run()
    place = asking.output_dir / "latest" / "trials"
    asks = ["explain", str(place), "--ask", "First?", "--ask", "hang here", "--ask", "Last?"]
    begun = subprocess.Popen(
        [sys.executable, "-m", "whet", *asks], cwd=asking.root, env=asking.environment(), stdout=subprocess.DEVNULL
    )
    wait_for(place / "a/real/default/1/1/explanations/2/transcript.jsonl")
    begun.kill()
    begun.wait()

    outcome = explain(asking, "--ask", "First?", "--ask", "Last?")

    assert outcome.code == 0, outcome.stdout + outcome.stderr
    assert [each["question"] for each in kept(outcome)] == ["First?", "Last?"]
    assert starts(asking)[1:] == ["First?", "hang here", "Last?"]
    assert asking.left_after_a_while() == []


def test_an_interrupt_ends_the_question_under_way_and_leaves_nothing_behind(asking: Project) -> None:
    asking.run()
    place = asking.output_dir / "latest" / "trials"
    asks = ["explain", str(place), "--ask", "First?", "--ask", "hang here"]
    begun = subprocess.Popen(
        [sys.executable, "-m", "whet", *asks], cwd=asking.root, env=asking.environment(), stdout=subprocess.PIPE
    )
    wait_for(place / "a/real/default/1/1/explanations/2/transcript.jsonl")
    begun.send_signal(signal.SIGINT)
    printed, _ = begun.communicate()

    assert begun.returncode == 130
    assert b"1 not asked: interrupted" in printed
    state = json.loads((place / "a/real/default/1/1/state.json").read_bytes())
    assert not Path(state["home"]).parent.exists()
    assert asking.left_after_a_while() == []


def test_a_secret_in_an_answer_or_a_question_is_masked(asking: Project) -> None:
    asking.run()

    outcome = explain(asking, "--ask", "sk-of-the-runner-0000? exec tell(x=os.environ['ANTHROPIC_API_KEY'])")

    assert outcome.code == 0, outcome.stderr
    for path in outcome.folder.rglob("*"):
        assert not path.is_file() or b"sk-of-the-runner" not in path.read_bytes(), path


@pytest.mark.parametrize("mode", ["expected", "bootstrap", "shared", "cwd"])
def test_a_workspace_that_was_not_kept_is_made_again_as_far_as_it_can_be_and_the_rest_is_told(
    project: Project, mode: str
) -> None:
    project.write("template/given.txt", "given")
    workspace = {
        "expected": 'mode = "isolated"\ntemplate_dir = "template"',
        "bootstrap": 'mode = "isolated"\nbootstrap = { command = "touch", args = ["booted"] }',
        "shared": 'mode = "shared"\ntemplate_dir = "template"',
        "cwd": f'mode = "shared"\ncwd = "{project.outside / "here"}"',
    }[mode]
    settings(project)
    with (project.root / "whet.toml").open("a") as file:
        file.write(f"[run.workspace]\n{workspace}\n")
    project.suite(
        CHECK
        + f"suite = [Case(id='a', prompt={WORK!r}, check=asks, expected_fail={mode in ('expected', 'bootstrap')})]\n"
    )
    ran = project.run()

    outcome = explain(project, "--ask", "Why?")

    assert outcome.code == 0, ran.stdout + outcome.stdout + outcome.stderr
    found = kept(outcome)[0]
    seen = {"expected": "['given.txt', 'made.txt']"}.get(mode, "['made.txt']")
    assert found["answer"] == f"I heard 1 before, and see {seen}"
    told = {
        "expected": None,
        "bootstrap": "what its bootstrap command wrote is not known",
        "shared": "it was shared between trials",
        "cwd": f"it worked in {project.outside / 'here'} as it is now",
    }[mode]
    assert found["workspace"] == told
    assert told is None or told in outcome.stdout


def test_an_earlier_attempt_has_a_folder_and_a_session_of_its_own(asking: Project) -> None:
    asking.run("--retries", "1")

    first = explain(asking, "--ask", "Why?", folder="latest/trials/a/real/default/1/1")
    last = explain(asking, "--ask", "Why?", folder="latest/trials/a/real/default/1")

    assert "a @ real #1, attempt 1: 1 question" in first.stdout
    assert "a @ real #1, attempt 2: 1 question" in last.stdout


def test_a_run_with_settings_of_another_name_is_asked_with_them(asking: Project) -> None:
    (asking.root / "whet.toml").rename(asking.root / "other.toml")
    asking.run("--config", "other.toml")

    outcome = explain(asking)

    assert outcome.code == 0, outcome.stderr


def test_a_run_folder_that_was_moved_can_be_asked(asking: Project) -> None:
    folder = asking.run().folder
    shutil.move(folder, asking.root / "moved")

    outcome = asking.whet("explain", "moved", "--ask", "Why?")

    assert outcome.code == 0, outcome.stderr
    assert "I heard 1 before" in outcome.stdout


def test_a_regraded_run_can_be_asked_what_its_checks_want_to_know_now(asking: Project) -> None:
    asking.run()
    asking.suite(CHECK.replace("Why not?", "Now what?") + f"suite = [Case(id='a', prompt={WORK!r}, check=asks)]\n")
    asking.whet("regrade", "latest")

    outcome = explain(asking)

    assert outcome.code == 0, outcome.stderr
    assert kept(outcome)[0]["question"] == "Now what?"


def test_a_session_in_the_users_own_home_is_resumed_there_and_not_copied_into_the_record(asking: Project) -> None:
    settings(asking, "inherit_home = true")
    ran = asking.run()

    outcome = explain(asking, "--ask", "Why?")

    assert outcome.code == 0, outcome.stdout + outcome.stderr
    assert kept(outcome)[0]["answer"].startswith("I heard 1 before")
    assert not ran.artifact("a", "state").exists()


def test_another_model_than_the_one_that_was_run_is_told(asking: Project) -> None:
    settings(asking, 'model = "one"')
    asking.run()
    settings(asking, 'model = "two"')

    outcome = explain(asking, "--ask", "Why?")

    assert outcome.code == 0
    assert 'warning: runner "real" names model two, and named model one when it was run' in outcome.stderr


def test_a_runner_without_a_login_is_told_before_it_is_asked(asking: Project) -> None:
    asking.run()
    text = (asking.root / "whet.toml").read_text()
    asking.settings(text.replace('ANTHROPIC_API_KEY = "sk-of-the-runner-0000"', ""))

    outcome = explain(asking, "--ask", "Why?")

    assert "no login found: set one of ANTHROPIC_API_KEY" in outcome.stderr


def refused(outcome: Outcome) -> str:
    """What a command that asked nothing says."""
    assert outcome.code == 2, outcome.stdout + outcome.stderr
    assert outcome.stderr.startswith("error[")
    assert outcome.stderr.count("error[") == 1
    assert "Traceback" not in outcome.stderr
    return outcome.stderr


def test_a_folder_that_is_no_trial_is_refused(asking: Project) -> None:
    asking.run()

    assert "no such folder" in refused(asking.whet("explain", "nowhere"))
    assert "it belongs to no run" in refused(asking.whet("explain", str(asking.outside)))
    assert "is not the folder of a trial that has ended" in refused(explain(asking, folder="latest/workspaces"))


def test_a_folder_of_several_trials_is_refused_unless_only_one_of_them_left_questions(asking: Project) -> None:
    asking.suite(
        CHECK + f"suite = [Case(id=name, prompt={WORK!r}, check=check) for name, check in (('a', asks), ('b', no))]\n"
    )
    asking.run()
    one = explain(asking)
    asking.run("--trials", "2")

    assert one.code == 0, one.stderr
    assert "holds 2 trials with questions, not one" in refused(explain(asking))


def test_without_a_question_there_is_nothing_to_ask(asking: Project) -> None:
    asking.suite(f"suite = [Case(id='a', prompt={WORK!r}, check=no)]\n")
    asking.run()

    assert "no question was left for its agent" in refused(explain(asking))
    assert "--ask needs a question" in refused(explain(asking, "--ask", " "))


def test_a_trial_that_passed_cannot_be_asked(asking: Project) -> None:
    asking.suite(f"suite = [Case(id='a', prompt={WORK!r}, check=ok)]\n")
    asking.run()

    assert "the sessions of trials that passed are not kept" in refused(explain(asking, "--ask", "Why?"))


def test_an_agent_without_sessions_says_so(project: Project) -> None:
    project.settings(SHELL + '[runners.play.agent]\ntype = "scripted"\nscript = "steps.toml"\n')
    project.write("steps.toml", '[[steps]]\nanswer = "maybe"\n')
    project.suite(CHECK + "suite = [Case(id='a', prompt='echo maybe', check=asks)]\n")
    recorded = project.run().folder

    for runner, agent in (("sh", "command"), ("play", "scripted")):
        said = refused(explain(project, folder=f"latest/trials/a/{runner}"))
        assert f'an agent of type "{agent}" has no session that could be resumed' in said

    project.settings(f'[runners.sh.agent]\ntype = "replay"\nscript = "{recorded}"\n')
    project.run()
    assert 'an agent of type "replay" has no session' in refused(explain(project, "--ask", "Why?"))


def test_a_session_that_never_told_its_id_cannot_be_resumed(asking: Project) -> None:
    asking.suite("suite = [Case(id='a', prompt='nameless', check=ok)]\n")
    asking.run()

    assert "before its agent gave the id of its session" in refused(explain(asking, "--ask", "Why?"))


def test_a_runner_that_is_gone_or_another_by_now_is_refused(asking: Project) -> None:
    asking.run()
    text = (asking.root / "whet.toml").read_text()

    asking.settings(text.replace("runners.real", "runners.other"))
    gone = refused(explain(asking))
    asking.settings(text.replace("claude-code", "codex"))
    other = refused(explain(asking))
    settings(asking, "inherit_home = true")
    moved = refused(explain(asking))

    assert f'is of runner "real", which is not in {asking.root / "whet.toml"}' in gone
    assert 'is of type "codex"' in other
    assert "the session is in a home of its own, and inherit_home" in moved


def test_a_program_that_is_missing_is_told_before_anything_is_asked(asking: Project) -> None:
    asking.run()
    (asking.root / "bin" / "stand-in").unlink()

    assert "there is no program" in refused(explain(asking))
    assert not (asking.output_dir / "latest/trials/a/real/default/1/1/explanations").exists()


def test_a_place_that_is_taken_is_left_alone(asking: Project) -> None:
    ran = asking.run()
    taken = Path(json.loads(ran.artifact("a", "state.json").read_bytes())["home"]).parent
    taken.mkdir()
    (taken / "precious").touch()

    try:
        said = refused(explain(asking))

        assert f"its session can only be resumed in {taken}" in said
        assert (taken / "precious").exists()
    finally:
        shutil.rmtree(taken)


@pytest.mark.parametrize("name", ["explain.json", "explanations.json", "state.json"])
def test_a_file_of_the_record_that_was_spoiled_is_named(asking: Project, name: str) -> None:
    ran = asking.run()
    attempt = ran.artifact("a", "")
    (attempt / name).write_text('{"questions": 3}')
    seal_again(ran.folder)

    assert str(attempt) in refused(explain(asking))


@pytest.mark.parametrize("part", ["home", "temporary", "workspace"])
@pytest.mark.parametrize("place", ["{outside}/made", "{scratch}/../made", "{scratch}/..", "made"])
def test_a_record_that_names_a_folder_of_its_own_choice_is_refused(asking: Project, part: str, place: str) -> None:
    ran = asking.run()
    file = ran.artifact("a", "state.json")
    state = json.loads(file.read_bytes())
    scratch = Path(state["home"]).parent
    named = place.format(outside=asking.outside, scratch=scratch)
    file.write_text(json.dumps({**state, part: named}))
    seal_again(ran.folder)
    begun = starts(asking)

    said = refused(explain(asking))

    assert f"no run makes a folder at {named}" in said
    assert starts(asking) == begun
    assert not scratch.exists()
    assert not (asking.outside / "made").exists()


def test_a_session_id_that_would_be_an_option_of_the_program_is_refused(asking: Project) -> None:
    ran = asking.run()
    file = ran.artifact("a", "state.json")
    file.write_text(json.dumps({**json.loads(file.read_bytes()), "session_id": "--settings=x"}))
    seal_again(ran.folder)

    assert "--settings=x is not the id of a session" in refused(explain(asking))


def test_what_a_link_in_a_foreign_record_leads_to_is_not_removed(asking: Project) -> None:
    ran = asking.run()
    precious = asking.outside / "precious"
    precious.mkdir()
    (precious / "letter.txt").write_text("of the user")
    (ran.folder / ".scratch").symlink_to(precious)

    outcome = explain(asking, "--ask", "Why?")

    assert outcome.code == 0, outcome.stdout + outcome.stderr
    assert (precious / "letter.txt").read_text() == "of the user"


def test_a_state_that_was_lost_cannot_be_resumed_and_is_no_failure_to_answer(asking: Project) -> None:
    ran = asking.run()
    shutil.rmtree(ran.artifact("a", "state"))
    seal_again(ran.folder)

    outcome = explain(asking, "--ask", "Why?")

    assert outcome.code == 3
    assert "No conversation found with session ID: session-1" in outcome.stdout


def test_nothing_that_a_link_of_the_agent_leads_to_is_kept_as_its_state(asking: Project) -> None:
    (asking.outside / "projects").mkdir()
    (asking.outside / "projects" / "precious").write_text("of the user")
    steal = f"exec import shutil; shutil.rmtree(home); home.symlink_to({str(asking.outside)!r})"
    asking.suite(CHECK + f"suite = [Case(id='a', prompt={steal!r}, check=asks)]\n")

    ran = asking.run()

    assert [path for path in ran.folder.rglob("*") if path.name == "precious"] == []


def test_two_askings_of_one_run_do_not_get_into_each_others_way(asking: Project) -> None:
    asking.run()
    place = asking.output_dir / "latest" / "trials"
    begun = subprocess.Popen(
        [sys.executable, "-m", "whet", "explain", str(place), "--ask", "hang"],
        cwd=asking.root,
        env=asking.environment(),
        stdout=subprocess.DEVNULL,
    )
    wait_for(place / "a/real/default/1/1/explanations/1/transcript.jsonl")

    said = refused(explain(asking))
    begun.send_signal(signal.SIGINT)

    assert begun.wait() == 130
    assert "is in use by another whet" in said
