"""Arms that are what they say: the word in the copy of a skill shows which sessions met it, and which never did."""

from __future__ import annotations

import json
from typing import Any

import pytest
from project import Outcome, Project

SKILL = "---\nname: deploy\ndescription: Ships the site.\n---\n\nRun ship.sh.\n"
# With the skill, the agent leaves a copy of it outside; in other arms, what `MEETS` says is run once that is there.
AGENT = """
import os, pathlib, shutil, subprocess, sys, time
outside = pathlib.Path("{outside}")
if os.environ["WHET_ARM"] == os.environ.get("LEAVES", "with"):
    shutil.copytree(os.environ["WHET_SKILL"], outside / "draft")
    (outside / "draft").rename(outside / "left")
else:
    until = time.monotonic() + 300
    while not (outside / "left").is_dir() and time.monotonic() < until:
        time.sleep(0.02)
    sys.stdout.flush()
    os.environ["LEFT"] = str(outside / "left")
    sys.exit(subprocess.run(["sh", "-c", os.environ["MEETS"]]).returncode)
"""
SUITE = "def fine(report, ctx): pass\nsuite = [Case(id='a', prompt='Go.', check=fine)]\n"


@pytest.fixture
def skilled(project: Project) -> Project:
    """A project with two versions of a skill, and an agent that leaves its copy where others find it."""
    project.write("v1/deploy/SKILL.md", SKILL)
    project.write("v2/deploy/SKILL.md", SKILL + "Then look at it.\n")
    project.write("agent.py", AGENT)
    project.settings(
        '[runners.one.agent]\ntype = "command"\ncommand = "python3"\nargs = ["./agent.py"]\n'
        'pass_env = ["MEETS", "LEAVES"]\n[run]\nmax_parallel = 2\n'
    )
    project.suite(SUITE)
    return project


def _arms(done: Outcome) -> dict[str, dict[str, Any]]:
    """The first trial of the first case in each arm."""
    return {each["arm"]: each["trials"][0] for each in done.results["cases"][0]["executions"]}


@pytest.mark.parametrize(
    "meets",
    [
        'cat "$LEFT/SKILL.md"',
        'ls "$LEFT"',
        'ls "$LEFT" >&2',
        'ls "$LEFT" > found.txt',
        'touch "$(ls "$LEFT" | grep -v SKILL)"',
        'head -n 5 "$LEFT/SKILL.md"; exit 3',
    ],
)
def test_a_session_that_shows_the_word_of_a_skill_it_should_not_have_is_contaminated(
    skilled: Project, meets: str
) -> None:
    done = skilled.run("--arm", "without=skill:none", "--arm", "with=skill:v1/deploy", env={"MEETS": meets})
    compared = skilled.whet("compare")

    found = _arms(done)
    assert (found["with"]["status"], found["without"]["status"]) == ("passed", "errored"), done.stdout + done.stderr
    assert found["without"]["failure"]["code"] == "contaminated"
    assert "the copy that the arm with is given has a word that" in found["without"]["failure"]["message"]
    assert "errored     1 in without, 0 in with; 1 contaminated" in compared.stdout
    assert skilled.whet("verify", "latest").code == 0


def test_an_arm_that_meets_the_other_version_of_its_skill_is_contaminated_and_one_that_meets_its_own_is_not(
    skilled: Project,
) -> None:
    arms = ("--arm", "old=skill:v1/deploy", "--arm", "new=skill:v2/deploy")
    done = skilled.run(*arms, env={"MEETS": 'ls "$LEFT" "$WHET_SKILL"', "LEAVES": "old"})

    found = _arms(done)
    assert (found["old"]["status"], found["new"]["status"]) == ("passed", "errored"), done.stdout
    assert "the copy that the arm old is given" in found["new"]["failure"]["message"]
    assert found["new"]["skill_shown"] is True
    assert len(set(done.asked["watermarks"].values())) == 2


def test_arms_with_the_same_skill_share_their_word_so_neither_contaminates_the_other(skilled: Project) -> None:
    arms = ("--arm", "old=skill:v1/deploy", "--arm", "new=skill:v1/deploy,env:X=1")
    done = skilled.run(*arms, env={"MEETS": 'ls "$LEFT"', "LEAVES": "old"})

    assert {arm: trial["status"] for arm, trial in _arms(done).items()} == {"old": "passed", "new": "passed"}
    assert len(set(done.asked["watermarks"].values())) == 1


def test_a_resumed_run_gives_its_agents_the_word_it_began_with_and_the_next_run_another(skilled: Project) -> None:
    skilled.settings('[runners.one.agent]\ntype = "command"\ncommand = "sh"\nargs = ["-c", "ls $WHET_SKILL"]\n')
    arms = ("--arm", "old=skill:v1/deploy", "--arm", "new=skill:v2/deploy")
    first = skilled.run(*arms)
    longer = skilled.whet("run", "--resume", "latest", "--add-trials", "1")
    shown = {
        each["arm"]: [trial["final_output"].split() for trial in each["trials"]]
        for each in longer.results["cases"][0]["executions"]
    }
    words = longer.asked["watermarks"]
    digest = longer.asked["skill_digest"]
    fresh = skilled.run(*arms)

    assert (first.code, longer.code) == (0, 0), longer.stderr
    assert {arm: [sorted(set(names) - {"SKILL.md"}) for names in each] for arm, each in shown.items()} == {
        arm: [[word], [word]] for arm, word in words.items()
    }
    assert set(words.values()).isdisjoint(fresh.asked["watermarks"].values())
    assert fresh.asked["skill_digest"] == digest


LISTS = '{"type":"session_started","skills":["deploy"]}'
OTHERS = LISTS.replace("deploy", "other")
READS = '{"type":"file_read","path":"/skills/deploy/SKILL.md","ok":true}'
ELSEWHERE = '{"type":"file_read","path":"/notes.md","ok":true}'
ARMS = ("--arm", "without=skill:none", "--arm", "with=skill:v1/deploy", "--trials", "2")


def _printing(skilled: Project, *events: str, then: str = "true") -> None:
    lines = " ".join(f"'{event}'" for event in events)
    # Without the skill, there is nothing to list or to read.
    script = f'test -z "$WHET_SKILL" || printf "%s\\n" {lines}; {then}'
    skilled.settings(
        '[runners.one.agent]\ntype = "command"\ncommand = "sh"\noutput = "events"\n'
        f"args = {json.dumps(['-c', script])}\n"
    )


@pytest.mark.parametrize(
    ("events", "loaded", "reached"),
    [
        ([LISTS, READS], 2, True),
        ([LISTS, ELSEWHERE], 0, True),
        ([OTHERS, ELSEWHERE], 0, False),
        # An agent that lists nothing says nothing by what it does not list.
        ([ELSEWHERE], 0, None),
    ],
)
def test_how_often_a_skill_was_loaded_is_told_and_warned_of_if_it_never_was(
    skilled: Project, events: list[str], loaded: int, reached: bool | None
) -> None:
    _printing(skilled, *events)
    done = skilled.run(*ARMS)
    compared, gate = skilled.whet("compare"), skilled.whet("gate")

    (loads,) = done.results["skill_loads"]
    shown = 2 if reached else 0
    figures = {"loaded": loaded, "told": 2, "sessions": 2, "shown": shown, "unwanted": 0, "loaded_unwanted": 0}
    assert loads == {"arm": "with", "runner": "one", **figures, "listed": 0 if reached is None else 2}
    assert [trial["skill_loaded"] for trial in done.trials] == [None, None, loaded > 0, loaded > 0]
    assert f"one  with  loaded in {loaded} of 2 sessions" in done.stdout
    told = 'the skill of the arm "with" was never loaded by one (0 of 2 sessions)'
    assert (done.stdout + done.stderr).count(told) == (0 if loaded else 1), done.stdout
    for later in (compared, gate):
        assert (told in later.stdout) == (not loaded)
        assert ("the agent lists its skills, and this one is not among them" in later.stdout) == (reached is False)
    assert skilled.whet("verify", "latest").code == 0


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([LISTS, READS], "loaded in 2 of 2 sessions, 1 of which should not load it"),
        ([LISTS, ELSEWHERE], "loaded in 0 of 2 sessions"),
    ],
)
def test_sessions_that_should_not_load_the_skill_are_told_with_the_others(
    skilled: Project, events: list[str], text: str
) -> None:
    _printing(skilled, *events)
    queries = [{"query": "Ship it.", "should_trigger": True}, {"query": "2 + 2?", "should_trigger": False}]
    skilled.write("v1/deploy/evals/triggers.json", json.dumps(queries))
    done = skilled.whet("run", "v1/deploy/evals/triggers.json", "--arm", "with=skill:v1/deploy")

    wrong = int("should not" in text)
    (loads,) = done.results["skill_loads"]
    assert (loads["told"], loads["unwanted"], loads["loaded_unwanted"]) == (2, 1, wrong), done.stdout + done.stderr
    assert f"one  with  {text}\n" in done.stdout
    # Of the two, only one should have loaded it.
    assert ("was never loaded by one (0 of 1 session)" in done.stdout + done.stderr) == (not wrong)


def test_nobody_is_warned_of_a_skill_that_no_case_should_load(skilled: Project) -> None:
    _printing(skilled, LISTS, ELSEWHERE)
    skilled.write("v1/deploy/evals/triggers.json", json.dumps([{"query": "2 + 2?", "should_trigger": False}]))
    done = skilled.whet("run", "v1/deploy/evals/triggers.json", "--arm", "with=skill:v1/deploy")

    assert "one  with  loaded in 0 of 1 session\n" in done.stdout, done.stdout + done.stderr
    assert "never loaded" not in done.stdout + done.stderr


@pytest.mark.parametrize("script", ["true", "cat $WHET_SKILL/SKILL.md; true"])
def test_an_agent_that_prints_text_cannot_tell_and_nobody_is_warned(skilled: Project, script: str) -> None:
    skilled.settings(f'[runners.one.agent]\ntype = "command"\ncommand = "sh"\nargs = {json.dumps(["-c", script])}\n')
    done = skilled.run(*ARMS)
    said = [done.stdout, done.stderr, skilled.whet("compare").stdout, skilled.whet("gate").stdout]

    (loads,) = done.results["skill_loads"]
    assert (loads["loaded"], loads["told"], loads["sessions"]) == (0, 0, 2)
    assert "one  with  not known: no session tells what it reads" in done.stdout
    assert not any("never loaded" in text or "may never have" in text for text in said)


def test_sessions_that_did_not_end_are_not_counted_among_those_that_tell(skilled: Project) -> None:
    _printing(skilled, LISTS, ELSEWHERE, then="exit 3")
    done = skilled.run(*ARMS)

    assert done.results["skill_loads"] == []
    assert "never loaded" not in done.stdout + done.stderr + skilled.whet("compare").stdout


def test_a_contaminated_recording_stays_contaminated_when_it_is_regraded_and_replayed(skilled: Project) -> None:
    arms = ("--arm", "without=skill:none", "--arm", "with=skill:v1/deploy")
    recorded = skilled.run(*arms, env={"MEETS": 'ls "$LEFT"'})
    folder = recorded.folder
    regraded = skilled.whet("regrade", str(folder), "--suite", "suite.py")
    kept = _arms(regraded)
    skilled.settings(f'[runners.one.agent]\ntype = "replay"\nscript = {json.dumps(str(folder))}\n')
    replayed = skilled.run(*arms)

    assert _arms(recorded)["without"]["failure"]["code"] == "contaminated"
    assert kept["without"]["failure"]["code"] == "contaminated", regraded.stdout
    found = _arms(replayed)
    assert found["without"]["failure"]["code"] == "contaminated", replayed.stdout
    assert found["with"]["status"] == "passed"
