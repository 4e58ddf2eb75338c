"""Decisions by the real command that somebody or something stands in the way of: none of it makes a version better."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from project import Outcome, Project

from whet.record.batches import RecordedBatch, read_recorded

# How good it is depends on how often it was asked before, by whichever arm: it fails from the 37th question on.
DRIFTING = """
import sys
from pathlib import Path
sys.stdin.read()
counter = Path("{outside}") / "asked"
number = len(counter.read_text()) if counter.exists() else 0
counter.write_text("x" * (number + 1))
print("right" if number < 36 else "wrong")
"""
SETTINGS = """
[runners.one.agent]
type = "command"
command = "python3"
args = ["./agent.py"]
"""
SUITE = """
def right(report, ctx): assert report.final_output.strip() == "right"
suite = [Case(id=f"case-{number}", prompt=f"Question {number}", check=right) for number in range(6)]
"""
SAYS = '[runners.says.agent]\ntype = "command"\ncommand = "sh"\nargs = ["-c", "echo $SAYS"]\n'
WRONG_RIGHT = ("--arm", "old=env:SAYS=wrong", "--arm", "new=env:SAYS=right")


@pytest.fixture
def says(project: Project) -> Project:
    """A project whose agent says what its arm tells it to."""
    project.settings(SAYS)
    project.suite(SUITE)
    return project


def _json(project: Project, *args: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(project.whet(*args, "--json").stdout)
    return found


def _cut(ran: Outcome, lines: int) -> str:
    """Leave a run as a kill does: the first lines of its journal, and no results."""
    journal = ran.folder / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:lines]))
    (ran.folder / "results.json").unlink()
    return ran.folder.name


def test_an_agent_that_gets_worse_over_time_hits_both_arms_of_a_run_and_not_one_of_two_runs(project: Project):
    project.write("agent.py", DRIFTING)
    project.settings(SETTINGS)
    project.suite(SUITE)
    serial = ("--schedule", "serial", "--trials", "6")

    project.run("--arm", "one=env:X=1", "--arm", "two=env:X=2", *serial)
    together = _json(project, "compare")
    (project.outside / "asked").unlink()
    first, second = (project.run("--arm", "one=env:X=1", *serial).folder.name for _ in range(2))
    apart = _json(project, "compare", first, second)

    assert (together["verdict"], together["interleaved"]) == ("inconclusive", True)
    assert (apart["verdict"], apart["interleaved"]) == ("worse", False)
    assert any("at different times" in note for note in apart["notes"])


def test_a_candidate_whose_failures_end_as_errors_is_not_better(says: Project):
    """Every second trial of a case fails; in the new arm, it takes its checker along instead."""
    says.suite(
        """
        def right(report, ctx):
            wrong = report.final_output.strip() != "right"
            if wrong and ctx.arm == "new": os._exit(0)
            assert not wrong
        count = 'f={outside}/$WHET_ARM-$WHET_CASE_ID; echo >> $f; '
        turns = count + '[ $(($(wc -l < $f) % 2)) = 0 ] && echo right || echo wrong'
        suite = [Case(id=str(number), prompt=turns, check=right) for number in range(6)]
        """
    )
    says.settings('[runners.sh.agent]\ntype = "command"\ncommand = "sh"\n')

    says.run("--arm", "old=env:X=1", "--arm", "new=env:X=2", "--trials", "6", "--schedule", "serial")
    found, gate = _json(says, "compare"), says.whet("gate")

    assert (found["errored"]["candidate"], found["difference"]) == (18, 0.5)
    assert (found["errored"]["decisive"], found["verdict"]) == (True, "inconclusive")
    assert (gate.code, "mend what made them error" in gate.stdout) == (5, True)


def test_a_runner_of_which_every_trial_errors_is_asked_for_its_rate_too(says: Project):
    says.write("gone", "#!/no-such-program\n", mode=0o755)
    says.settings(f'{SAYS}[runners.gone.agent]\ntype = "command"\ncommand = "./gone"\n')
    says.run("--arm", "only=env:SAYS=right", "--trials", "4")

    gate, found = says.whet("gate", "--min-rate", "50"), _json(says, "gate", "--min-rate", "50")

    assert gate.code == 5
    assert (
        "only on gone: 0 % of trials pass (0 to 100 % on these cases), and 50 % is asked for; 24 of 24" in gate.stdout
    )
    assert "mend what made them error" in gate.stdout
    assert set(found["rates"]) == {"only@says", "only@gone"}


@pytest.mark.parametrize("cost", ["1e-320", "1e200", "1e308"])
def test_a_cost_that_no_trial_can_have_breaks_neither_the_run_nor_what_follows(project: Project, cost: str):
    project.write(
        "agent.py",
        """
        import os
        print('{"type": "usage", "input_tokens": 1, "output_tokens": 1, "cost_usd": %s}' % os.environ["COST"])
        print('{"type": "message", "role": "assistant", "text": "right"}')
        """,
    )
    project.settings(SETTINGS + 'output = "events"\n')
    project.suite(SUITE)

    ran = project.run("--arm", f"old=env:COST={cost}", "--arm", "new=env:COST=1", "--trials", "2")
    after = [
        project.whet(*words)
        for words in (
            ("compare",),
            ("gate", "--max-cost-ratio", "2"),
            ("plan", "suite.py", "--effect", "20", "--max-cost", "5"),
        )
    ]

    assert ran.code == 0, ran.stderr
    assert [done.code for done in after] == [0, 5, 0]
    assert not any("Traceback" in done.stderr for done in after)


def test_the_gate_says_what_decides_on_a_cost_that_is_not_known_well_enough(project: Project):
    project.write(
        "agent.py",
        """
        import os, random, sys
        from pathlib import Path
        asked = f'{os.environ["WHET_ARM"]} {sys.stdin.read().strip()}'
        # The first trial of each question makes the first file, so that every run of this test draws the same costs.
        number = 0
        while True:
            try:
                (Path("{outside}") / f"{asked} {number}").touch(exist_ok=False)
                break
            except FileExistsError:
                number += 1
        cost = random.Random(f"{asked} {number}").uniform(1, 2) * float(os.environ["TIMES"])
        print('{"type": "usage", "input_tokens": 1, "output_tokens": 1, "cost_usd": %s}' % cost)
        print('{"type": "message", "role": "assistant", "text": "right"}')
        """,
    )
    project.settings(SETTINGS + 'output = "events"\n')
    project.suite(SUITE)

    ran = project.run("--arm", "old=env:TIMES=1", "--arm", "new=env:TIMES=1.1", "--trials", "2")
    gate = project.whet("gate", "--margin", "60", "--max-cost-ratio", "1.2")

    assert gate.code == 5, gate.stdout
    assert "pass           new is not worse" in gate.stdout
    assert f"to decide it in 8 of 10 such runs: whet run --resume {ran.folder.name} --add-trials " in gate.stdout


def test_a_gate_names_no_command_that_would_be_refused(says: Project):
    ran = says.run("--arm", "old=env:SAYS=right", "--arm", "new=env:X=1,env:SAYS=right", "--until-decided")
    gate = says.whet("gate", "--margin", "0.6")
    command = gate.stdout.partition("start a new one: whet ")[2].partition(", about")[0].split()

    assert ran.results["looks"]
    assert gate.code == 5
    assert int(command[-1]) > 100
    assert says.whet(*command, "--dry-run").code == 0


def test_a_case_may_have_any_name_without_making_its_run_unfinished(says: Project):
    says.suite(SUITE + 'suite.append(Case(id="not finished", prompt="x", check=ok))\n')
    says.run(*WRONG_RIGHT, "--trials", "3", "--controls")

    gate = says.whet("gate")

    assert "void, so not compared: not finished" in gate.stdout
    assert gate.code == 0


def test_of_two_runs_the_one_that_is_not_finished_is_to_be_finished_and_none_is_a_baseline_before(says: Project):
    cut = _cut(says.run(*WRONG_RIGHT, "--trials", "2"), 15)
    refused = says.whet("baseline", "save", "release", cut)
    whole = says.run(*WRONG_RIGHT, "--trials", "2").folder.name

    gates = [says.whet("gate", *names) for names in ((cut, whole), (whole, cut))]

    assert [gate.code for gate in gates] == [5, 5]
    assert all(f"finish the run first: whet run --resume {cut}" in gate.stdout for gate in gates)
    assert (refused.code, f"whet run --resume {cut}" in refused.stderr) == (2, True)
    assert not (says.root / "baselines").exists()


def test_a_batch_is_not_finished_if_one_of_its_runs_has_not_begun(says: Project):
    says.suite(SUITE, "first_suite.py")
    says.suite(SUITE, "second_suite.py")
    says.whet("run", "first_suite.py", "second_suite.py", *WRONG_RIGHT, "--trials", "3")
    whole = says.whet("gate")
    runs = [path.parent for path in says.output_dir.glob("*/run.json") if not path.parent.is_symlink()]
    second = next(run for run in runs if json.loads((run / "run.json").read_text())["suite"] == "second_suite")
    (second / "journal.jsonl").write_text("")
    (second / "results.json").unlink()

    gate = says.whet("gate")

    assert whole.code == 0, whole.stdout + whole.stderr
    assert gate.code == 5, gate.stdout + gate.stderr
    assert "finish the run first" in gate.stdout


def test_cases_and_arms_are_told_in_the_order_in_which_they_were_written(says: Project):
    says.suite(SUITE.replace("range(6)", "(5, 2, 9)"))
    arms = [word for name in ("zero", "b", "a") for word in ("--arm", f"{name}=env:SAYS={name}")]
    says.run(*arms)

    found = _json(says, "compare")["comparisons"]

    assert [each["candidate"] for each in found] == ["b", "a"]
    assert [case["case"] for case in found[0]["cases"]] == ["case-5", "case-2", "case-9"]


@pytest.mark.parametrize(
    "change",
    [
        ('== "right"', '== "wrong"'),
        ("Question", "Another question"),
        ("def right", 'WORD = "right"\ndef right'),
    ],
)
def test_two_runs_are_compared_only_on_cases_that_ask_and_check_the_same(says: Project, change: tuple[str, str]):
    kept = 'suite.append(Case(id="kept", prompt="Go.", check=ok))\n'
    says.suite("WORD = 'x'\n" + SUITE + kept)
    first = says.run("--arm", "only=env:SAYS=right", "--trials", "2").folder.name
    says.whet("baseline", "save", "release")
    says.suite("\n\nWORD = 'y'\n" + SUITE.replace(*change).replace('== "right"', "== WORD") + kept)
    second = says.run("--arm", "only=env:SAYS=right", "--trials", "2").folder.name

    found, gate = (
        _json(says, "compare", first, second, "--shared"),
        says.whet("gate", "--baseline", "release", "--shared"),
    )

    assert [case["case"] for case in found["cases"]] == ["kept"]
    assert "changed between them, so not compared: case-0, case-1" in "".join(found["notes"])
    assert "changed between them, so not compared: case-0, case-1" in gate.stdout


def test_cases_that_have_moved_in_their_file_are_still_the_same(says: Project):
    first = says.run("--arm", "only=env:SAYS=right").folder.name
    says.suite("\n\n# Three more lines.\n" + SUITE.replace("range(6)", "range(7, 0, -1)"))
    second = says.run("--arm", "only=env:SAYS=right").folder.name

    found = _json(says, "compare", first, second, "--shared")

    assert sorted(case["case"] for case in found["cases"] if case["baseline"] is not None) == [
        f"case-{number}" for number in range(6)
    ]
    assert sum(None not in (case["baseline"], case["candidate"]) for case in found["cases"]) == 5


def test_two_runs_of_which_every_case_has_changed_have_nothing_to_compare(says: Project):
    first = says.run("--arm", "only=env:SAYS=right").folder.name
    says.suite(SUITE.replace('== "right"', '!= "right"'))
    second = says.run("--arm", "only=env:SAYS=right").folder.name

    done = says.whet("compare", first, second, "--shared")

    assert (done.code, "has changed between them" in done.stderr) == (2, True)


def test_arms_that_are_written_differently_and_get_the_same_are_told_as_such(says: Project):
    says.settings(SAYS + 'model = "small"\n')
    ran = says.run("--arm", "a=model:small", "--arm", "b=runner:says", "--arm", "c=model:large")

    notes = [_json(says, "compare", *pair)["notes"] for pair in pairwise(("a", "b", "c"))]

    assert "the arms a and b do not differ in anything" in ran.stdout + ran.stderr
    assert notes == [["the arms do not differ in anything"], []]


def test_an_arm_of_the_settings_cannot_give_itself_another_name(says: Project):
    says.settings(SAYS + '[arms.old]\nenv = { WHET_ARM = "new" }\n')

    done = says.run("--arm", "old", "--arm", "new=env:SAYS=right")

    assert (done.code, "arm old: WHET_ARM is set by whet" in done.stderr) == (2, True)
    assert not says.output_dir.exists()


def test_a_plan_for_several_candidates_asks_for_more_and_names_them(says: Project):
    two, four = (_json(says, "plan", "suite.py", "--effect", "20", "--arms", number) for number in ("2", "4"))
    told = says.whet("plan", "suite.py", "--effect", "20", "--arms", "4")

    assert four["trials"] > two["trials"]
    assert "--arm old=... --arm new=... --arm new-2=... --arm new-3=..." in told.stdout


def test_two_resumes_at_once_leave_one_run_without_a_trial_twice(says: Project):
    says.settings(SAYS.replace("echo", "sleep 0.1; echo"))
    first = says.run(*WRONG_RIGHT, "--trials", "1").folder.name
    both = [says.start("--resume", first, "--add-trials", "2") for _ in range(2)]

    ends = [says.outcome(each, within_s=60) for each in both]
    keys = [tuple(line["key"].values()) for line in says.journal()]

    assert sorted(end.code for end in ends) == [0, 2], [end.stderr for end in ends]
    assert any("is in use by another whet" in end.stderr for end in ends)
    assert len(keys) == len(set(keys)) == 36
    assert says.whet("verify", first).code == 0
    assert _json(says, "compare")["looks"] == 2


def test_what_only_one_of_two_runs_has_is_told_by_the_gate_that_lets_the_rest_pass(says: Project):
    """A new runner on which everything fails is not in the baseline, so that nothing compares it."""
    says.settings(SAYS + SAYS.replace("says", "broken").replace("$SAYS", "wrong"))
    right = ("--arm", "main=env:SAYS=right", "--trials", "20")
    says.run(*right, "--runner", "says")
    says.whet("baseline", "save", "release")
    broken = says.run(*right).folder.name
    more = says.run(*right, "--arm", "more=env:SAYS=wrong", "--runner", "says", "--case", "case-[0-4]").folder.name

    beside, fewer = (_json(says, "gate", run, "--baseline", "release") for run in (broken, more))

    assert beside["answer"] == "pass"
    assert f"only {broken} ran on broken, so that is not compared" in beside["notes"]
    assert "only in release, so not compared: 1 case (case-5)" in fewer["notes"]
    assert f"only in {more}, so not compared: 1 arm (more)" in fewer["notes"]


def test_the_looks_at_a_run_are_stored_with_its_baseline(says: Project):
    """A run that ended when it looked best is the same run if its trials are stored."""
    until = says.run(*WRONG_RIGHT, "--until-decided").folder.name
    says.whet("baseline", "save", "until")
    grown = says.run("--arm", "new=env:SAYS=right", "--trials", "2").folder.name
    says.whet("run", "--resume", grown, "--add-trials", "2")
    says.whet("baseline", "save", "grown")
    last = says.run("--arm", "new=env:SAYS=right", "--trials", "4").folder.name

    for run, stored in ((until, "until"), (grown, "grown")):
        between, gated = _json(says, "compare", run, last), _json(says, "gate", last, "--baseline", stored)
        assert gated["comparison"]["looks"] == between["looks"] > 1
        assert gated["comparison"]["level"] == between["level"] > 0.95


def test_a_gate_on_other_cases_asks_for_more_cases_and_not_for_more_trials(says: Project):
    says.suite(SUITE.replace("range(6)", "range(3)"))
    says.run(*WRONG_RIGHT, "--trials", "3")

    gate, other_cases = says.whet("gate"), says.whet("gate", "--like-these")

    assert "new is better than old on says: +100 points on these 3 cases (95 % interval +" in gate.stdout
    assert (gate.code, other_cases.code) == (0, 5)
    assert "to decide it, add cases like these" in other_cases.stdout
    assert "--add-trials" not in other_cases.stdout


def test_a_batch_is_compared_with_the_judge_that_its_settings_described(says: Project):
    says.settings(SAYS + "[judge]\nerror = 10\n")
    says.suite(SUITE, "first_suite.py")
    says.suite(SUITE, "second_suite.py")
    says.whet("run", "first_suite.py", "second_suite.py", *WRONG_RIGHT)

    batch = read_recorded("latest", says.output_dir)

    assert isinstance(batch, RecordedBatch)
    assert batch.samples().judge_error == 0.1
