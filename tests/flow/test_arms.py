"""Arms by the real command: versions that take turns, comparisons, gates, baselines and plans."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest
from project import Outcome, Project

# Succeeds by a chance that depends on its arm, its case and how often it was asked: each run of a test draws the same.
# It counts in a folder outside of its workspace, so it runs in the local sandbox.
# `random` and `pathlib` would take longer to import than all else takes: this draws as `random.Random` of a text does.
CHANCE = """
import _random, fcntl, os, sys
try:
    from _sha2 import sha512
except ImportError:
    from _sha512 import sha512
prompt, arm = sys.stdin.read().strip(), os.environ.get("WHET_ARM", "default")
counter = "{outside}/" + "".join(c if c.isalnum() else "-" for c in f"{arm} {prompt}")
with open(counter, "a+") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    file.seek(0)
    number = len(file.read())
    file.write("x")
chance = float(os.environ.get("CHANCE", "0.5"))
seed = f"{arm}/{prompt}/{number}".encode()
drawn = _random.Random(int.from_bytes(seed + sha512(seed).digest(), "big")).random()
print("right" if drawn < chance else "wrong")
"""
SETTINGS = """
[runners.coin.agent]
type = "command"
command = "python3"
args = ["-IS", "./chance.py"]
"""
SUITE = """
def right(report, ctx): assert report.final_output.strip() == "right"
suite = [Case(id=f"case-{number}", prompt=f"Question {number}", check=right) for number in range(6)]
"""


@pytest.fixture
def coin(project: Project) -> Project:
    """A project whose agent succeeds by chance."""
    project.write("chance.py", CHANCE)
    project.settings(SETTINGS)
    project.suite(SUITE)
    return project


def _lines(done: Outcome) -> list[str]:
    return done.stdout.splitlines()


def _git(project: Project, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=project.root, check=True)


def _json(project: Project, *args: str) -> dict[str, Any]:
    done = project.whet(*args, "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_compare_names_the_checks_that_the_candidate_failed(coin: Project):
    ran = coin.run("--arm", "old=env:CHANCE=1", "--arm", "new=env:CHANCE=0", "--trials", "2", "--case", "case-3")
    lines, document = _lines(coin.whet("compare")), _json(coin, "compare")

    assert ran.code == 0
    [failed] = document["failed"]
    assert (failed["case"], failed["failed"], failed["trials"]) == ("case-3", 2, 2)
    assert failed["reason"] == 'assert report.final_output.strip() == "right"'
    row = next(line for line in lines if line.split()[:4] == ["case-3", "2/2", "0/2", "-100"])
    assert row.endswith(failed["reason"])


def test_compare_of_two_runs_names_the_checks_that_the_later_one_failed(coin: Project):
    before, after = (
        coin.run("--case", "case-3", "--arm", f"one=env:CHANCE={chance}").folder.name for chance in ("1", "0")
    )

    document = _json(coin, "compare", before, after)

    assert [(case["case"], case["failed"]) for case in document["failed"]] == [("case-3", 1)]


def test_a_better_arm_is_found_and_passes_the_gate(coin: Project):
    ran = coin.run("--arm", "old=env:CHANCE=0.2", "--arm", "new=env:CHANCE=0.95", "--trials", "4")
    found = _json(coin, "compare")
    gate, like_these = coin.whet("gate"), coin.whet("gate", "--like-these")

    assert (found["schema"], found["verdict"]) == ("whet/comparison/1", "better")
    assert (found["baseline"], found["candidate"], found["runner"]) == ("old", "new", "coin")
    assert found["low"] > 0 < found["difference"] <= found["high"] <= 1
    assert (found["interleaved"], found["looks"]) == (True, 1)
    assert gate.code == 0
    assert "new on other cases like these: " in like_these.stdout
    assert "other cases" not in gate.stdout
    assert "Decision" in ran.stdout
    assert "new is better than old" in ran.stdout
    assert ran.results["comparisons"][0]["verdict"] == "better"


def test_a_worse_arm_fails_the_gate(coin: Project):
    coin.run("--arm", "old=env:CHANCE=0.95", "--arm", "new=env:CHANCE=0.1", "--trials", "4")

    gate = coin.whet("gate")

    assert gate.code == 1
    assert "new is worse than old" in gate.stdout


def test_two_arms_that_are_alike_are_not_decided_and_the_gate_says_what_it_takes(coin: Project):
    ran = coin.run("--arm", "one=env:CHANCE=0.5", "--arm", "two=env:CHANCE=0.5", "--trials", "3")

    gate = coin.whet("gate")
    found = _json(coin, "gate")

    assert (gate.code, found["answer"], found["exit_code"]) == (5, "unknown", 5)
    assert "  not known yet  whether two is better or worse than one" in gate.stdout
    assert f"whet run --resume {ran.folder.name} --add-trials" in gate.stdout
    assert "the arms one and two do not differ in anything" in ran.stdout + ran.stderr


def test_arms_take_turns_in_an_order_that_the_seed_says(coin: Project):
    ran = coin.run("--arm", "old=env:CHANCE=1", "--arm", "new=env:CHANCE=1", "--trials", "3", "--schedule", "serial")

    keys = [line["key"] for line in coin.journal()]
    rounds = [keys[start : start + 12] for start in range(0, 36, 12)]

    assert [{key["number"] for key in each} for each in rounds] == [{1}, {2}, {3}]
    assert all(sum(key["arm"] == "old" for key in each) == 6 for each in rounds)
    orders = [[(key["case"], key["arm"]) for key in each] for each in rounds]
    assert orders[0] != orders[1]
    assert isinstance(ran.results["seed"], int)


def test_a_run_gets_more_trials_and_later_looks_ask_for_more(coin: Project):
    first = coin.run("--arm", "old=env:CHANCE=0.4", "--arm", "new=env:CHANCE=0.6", "--trials", "2")
    before = _json(coin, "compare")

    longer = coin.whet("run", "--resume", first.folder.name, "--add-trials", "2")
    after = _json(coin, "compare")

    assert len(longer.trials) == 2 * len(before["cases"]) * 4
    assert (before["looks"], after["looks"]) == (1, 2)
    assert after["level"] > before["level"] == pytest.approx(0.95)
    assert coin.whet("verify", first.folder.name).code == 0
    again = coin.whet("run", "--resume", first.folder.name)
    assert len(again.trials) == len(longer.trials)


def test_a_journal_that_says_it_grew_by_more_is_noticed(coin: Project):
    first = coin.run("--arm", "old=env:CHANCE=0.4", "--arm", "new=env:CHANCE=0.6")
    coin.whet("run", "--resume", first.folder.name, "--add-trials", "1")
    journal = first.folder / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"grown":1', b'"grown":9'))

    assert coin.whet("verify", first.folder.name).code == 1
    assert coin.whet("compare").code == 2


def test_more_trials_are_for_a_run_that_there_is(coin: Project):
    done = coin.run("--add-trials", "2")

    assert done.code == 2
    assert "--add-trials makes an earlier run longer" in done.stderr


def test_a_run_of_one_arm_has_a_gate_on_its_rate(coin: Project):
    coin.run("--trials", "5", "--arm", "only=env:CHANCE=1")
    good = coin.whet("gate", "--min-rate", "50")
    unknown = coin.whet("gate", "--min-rate", "99")
    compared = coin.whet("compare")

    assert (good.code, unknown.code) == (0, 5)
    assert compared.code == 2
    assert "has one arm, so there is nothing to compare" in compared.stderr


def test_a_gate_on_rates_asks_nothing_of_the_baseline_and_names_what_would_decide(coin: Project):
    ran = coin.run("--trials", "2", "--arm", "old=env:CHANCE=0", "--arm", "new=env:CHANCE=1")

    good, unknown = coin.whet("gate", "--min-rate", "50"), coin.whet("gate", "--min-rate", "75")
    longer = coin.whet(*unknown.stdout.partition("whet ")[2].partition(",")[0].split())

    assert (good.code, unknown.code, longer.code) == (0, 5, 0)
    assert f"to decide it in 8 of 10 such runs: whet run --resume {ran.folder.name} --add-trials" in unknown.stdout
    assert coin.whet("gate", "--min-rate", "75").code == 0


def test_arms_of_other_names_are_named_and_a_run_is_not_its_own_baseline(coin: Project):
    one = coin.run("--arm", "a=env:CHANCE=0.5", "--arm", "b=env:CHANCE=0.6").folder.name
    coin.whet("baseline", "save", "release")
    itself = coin.whet("gate", "--baseline", "release")
    two = coin.run("--arm", "c=env:CHANCE=0.5", "--arm", "d=env:CHANCE=0.6").folder.name

    other = coin.whet("compare", one, two)

    assert "the baseline release is of this run, which is compared with itself" in itself.stdout
    assert "run both with more trials" in itself.stdout
    assert f"{one} has a, b; {two} has c, d" in other.stderr


def test_only_arms_that_do_not_differ_are_told_as_such(coin: Project):
    coin.run("--arm", "a=env:CHANCE=0.4", "--arm", "b=env:CHANCE=0.5", "--arm", "c=env:CHANCE=0.5")

    assert [_json(coin, "compare", *pair)["notes"] for pair in (("a", "b"), ("b", "c"))] == [
        [],
        ["the arms do not differ in anything"],
    ]
    assert "do not differ in anything" in coin.whet("gate", "b", "c").stdout


def test_two_runs_are_compared_and_said_not_to_be_interleaved(coin: Project):
    one = coin.run("--trials", "4", "--arm", "a=env:CHANCE=0.1").folder.name
    two = coin.run("--trials", "4", "--arm", "a=env:CHANCE=0.9").folder.name

    done = coin.whet("compare", one, two)
    itself = coin.whet("compare", one, one)

    assert (itself.code, "is one run" in itself.stderr) == (2, True)
    assert done.code == 0
    assert "is better than" in done.stdout
    assert "the arms ran at different times; first look" in done.stdout


def test_runs_of_a_suite_that_changed_are_compared_only_if_asked(coin: Project):
    one = coin.run("--arm", "a=env:CHANCE=0.1").folder.name
    coin.suite(SUITE.replace("range(6)", "range(5)"))
    two = coin.run("--arm", "a=env:CHANCE=0.9").folder.name

    refused = coin.whet("compare", one, two)
    shared = coin.whet("compare", one, two, "--shared")

    assert refused.code == 2
    assert "--shared" in refused.stderr
    assert shared.code == 0


def test_a_stored_baseline_gates_later_runs(coin: Project):
    coin.run("--trials", "4", "--arm", "main=env:CHANCE=0.9")
    saved = coin.whet("baseline", "save", "release")
    coin.run("--trials", "4", "--arm", "main=env:CHANCE=0.05")

    gate = coin.whet("gate", "--baseline", "release")
    missing = coin.whet("gate", "--baseline", "nothing")

    assert saved.code == 0
    stored = json.loads((coin.root / "baselines" / "release.json").read_text())
    assert (stored["schema"], stored["arms"][0]["arm"]) == ("whet/baseline/1", "main")
    assert gate.code == 1
    assert (missing.code, "whet baseline save nothing" in missing.stderr) == (2, True)


def test_a_baseline_of_another_schema_is_refused(coin: Project):
    coin.run("--arm", "main=env:CHANCE=1")
    coin.whet("baseline", "save", "release")
    stored = coin.root / "baselines" / "release.json"
    stored.write_text(stored.read_text().replace("whet/baseline/1", "whet/baseline/2"))

    gate = coin.whet("gate", "--baseline", "release")

    assert gate.code == 2
    assert 'its schema is "whet/baseline/2", not whet/baseline/1' in gate.stderr


@pytest.mark.parametrize("name", ["../x", ".hidden", "a/b", ""])
def test_a_baseline_has_a_plain_name(coin: Project, name: str):
    coin.run()

    done = coin.whet("baseline", "save", name)

    assert done.code == 2
    assert not (coin.root / "x.json").exists()


def test_a_plan_says_trials_from_a_pilot_and_without_one(coin: Project):
    fresh = coin.whet("plan", "suite.py", "--effect", "10")
    coin.run("--trials", "3", "--arm", "one=env:CHANCE=0.5", "--arm", "two=env:CHANCE=0.5")
    learned = _json(coin, "plan", "suite.py", "--effect", "10")
    small = _json(coin, "plan", "suite.py", "--effect", "5")
    told = coin.whet("plan", "suite.py", "--effect", "10").stdout

    assert "no run to learn from yet" in fresh.stdout
    assert f"--trials {learned['trials']} --arm one=env:CHANCE=0.5 --arm two=env:CHANCE=0.5\n" in told
    assert learned["low"] <= learned["trials"] <= learned["high"]
    assert small["trials"] > 3 * learned["trials"]
    assert learned["pilot"]
    # A pilot may be wrong either way, as a factor; without one, harder cases are as far from usual ones as easier.
    assert learned["low"] * learned["high"] > 0.85 * learned["trials"] ** 2


def test_a_plan_counts_every_runner_that_its_command_runs_on(coin: Project):
    alone = _json(coin, "plan", "suite.py", "--effect", "20")
    coin.settings(SETTINGS + SETTINGS.replace("coin", "dime") + SETTINGS.replace("coin", "cent"))

    told = coin.whet("plan", "suite.py", "--effect", "20").stdout
    found = _json(coin, "plan", "suite.py", "--effect", "20")

    # Six cases in two arms, on three runners.
    assert (found["runners"], found["level"]) == (3, None)
    assert f"which is {found['trials'] * 6 * 2 * 3} trials in 2 arms on 3 runners" in told
    # All of them share one error.
    assert found["trials"] > alone["trials"]


def test_a_prompt_of_an_arm_comes_before_each_prompt_and_a_check_sees_the_arm(project: Project):
    project.settings('[runners.sh.agent]\ntype = "command"\ncommand = "cat"\n')
    project.write("careful.md", "Be careful.\n")
    project.suite(
        """
        def seen(report, ctx):
            assert ctx.arm in ("plain", "careful")
            expected = "Be careful.\\n\\nGo." if ctx.arm == "careful" else "Go."
            assert report.final_output == expected, report.final_output
        suite = [Case(id="a", prompt="Go.", check=seen)]
        """
    )

    done = project.run("--arm", "plain=as-is", "--arm", "careful=prompt:careful.md")

    assert done.code == 0, done.stdout
    assert {trial["status"] for trial in done.trials} == {"passed"}


def test_an_arm_has_the_skill_of_a_commit_and_another_has_none(project: Project):
    project.settings('[runners.sh.agent]\ntype = "command"\ncommand = "sh"\n')
    skill = "---\nname: greet\ndescription: Greets.\n---\n\n"
    project.write("greet/SKILL.md", f"{skill}first version\n")
    _git(project, "init", "-q")
    _git(project, "add", "greet")
    _git(project, "commit", "-qm", "first")
    project.write("greet/SKILL.md", f"{skill}second version\n")
    project.suite(
        """
        def seen(report, ctx):
            said = {"without": "none", "old": "first version", "new": "second version"}[ctx.arm]
            assert report.final_output.strip() == said, report.final_output
        look = 'if [ -n "$WHET_SKILL" ]; then tail -n 1 "$WHET_SKILL/SKILL.md"; else echo none; fi'
        suite = [Case(id="a", prompt=look, check=seen)]
        """
    )

    done = project.run(
        *("--skill", "greet", "--arm", "without=skill:none", "--arm", "old=skill:git:HEAD", "--arm", "new=skill:greet")
    )

    assert done.code == 0, done.stdout + done.stderr
    assert {trial["status"] for trial in done.trials} == {"passed"}
    commits = {arm["name"]: arm["commit"] for arm in done.results["arms"]}
    assert (commits["without"], len(commits["old"] or ""), commits["new"]) == (None, 40, None)


def test_arms_of_the_settings_are_selected_by_name(coin: Project):
    coin.settings(
        SETTINGS + '[arms.low]\nenv = { CHANCE = "0.05" }\n[arms.high]\nenv = { CHANCE = "0.95" }\nrunner = "coin"\n'
    )

    coin.run("--arm", "low", "--arm", "high", "--trials", "3")

    assert _json(coin, "compare")["verdict"] == "better"


@pytest.mark.parametrize(
    ("arms", "said"),
    [
        (["new"], 'no arm is called "new"'),
        (["new=skil:x"], 'did you mean "skill"?'),
        (["new=model:"], '"model" has no value'),
        (["new=as-is,model:a"], '"as-is" is not of the form key:value'),
        (["new=model:a,model:b"], '"model" is given twice'),
        (["new=skill:none,skill:b"], "several skills are folders, not none or git:REF"),
        (["new=skill:missing,skill:b"], "is not a skill"),
        (["new=env:1=2"], "is not of the form env:KEY=VALUE"),
        (["new=runner:other"], 'no runner is called "other"'),
        (["new=prompt:missing.md"], "there is no file"),
        (["new=prompt:."], "is not a text file"),
        (["new=skill:missing"], "is not a skill"),
        (["new=skill:git:HEAD"], "name its folder with --skill"),
        (["a=model:x", "a=model:y"], "two arms have the same name"),
        (["=model:x"], "--arm: the name"),
        (["a/../b=model:x", "c=model:y"], ""),
    ],
)
def test_an_arm_that_cannot_be_is_one_error_before_anything_runs(coin: Project, arms: list[str], said: str):
    done = coin.run(*(word for arm in arms for word in ("--arm", arm)))

    if said:
        assert done.code == 2
        assert said in done.stderr
        assert not coin.output_dir.exists()
    else:
        # A name may look like a path, and its folder does not.
        assert all(path.resolve().is_relative_to(coin.output_dir) for path in done.folder.rglob("*"))


def test_retries_do_not_raise_what_is_compared(project: Project):
    """Each trial fails at first and passes at the second attempt."""
    project.settings('[runners.sh.agent]\ntype = "command"\ncommand = "sh"\n')
    project.suite(
        """
        import os
        def second(report, ctx): assert report.final_output.strip() == "second"
        look = 'f={outside}/$WHET_ARM; if [ -e $f ]; then echo second; else touch $f; echo first; fi'
        suite = [Case(id="a", prompt=look, check=second)]
        """
    )

    done = project.run("--arm", "old=env:X=1", "--arm", "new=env:X=2", "--retries", "1")

    assert {trial["passed"] for trial in done.trials} == {True}
    assert [found["candidate_rate"]["value"] for found in done.results["comparisons"]] == [0.0]


def test_an_arm_that_only_errors_leaves_the_gate_open(coin: Project):
    coin.run("--arm", "old=env:CHANCE=1", "--arm", "new=env:CHANCE=1", "--arm", "broken=env:PATH=/nothing")

    gate = coin.whet("gate", "--margin", "50")

    assert gate.code == 5
    assert "broken" in gate.stdout


def test_a_run_that_only_errored_passes_no_gate_and_is_no_baseline(coin: Project):
    coin.run("--arm", "old=env:PATH=/nothing", "--arm", "new=env:PATH=/nothing", "--trials", "4")

    gate = coin.whet("gate", "--margin", "50")
    compared = coin.whet("compare")
    saved = coin.whet("baseline", "save", "main")
    planned = coin.whet("plan", "suite.py", "--effect", "20")
    learned = coin.whet("plan", "suite.py", "--effect", "20", "--from", "latest")

    assert gate.code == 5, gate.stdout
    assert "more trials would error too" in gate.stdout
    assert "rates       old not known; new not known" in compared.stdout
    assert (saved.code, "errored, so that nothing can be compared" in saved.stderr) == (2, True)
    assert "no run to learn from yet" in planned.stdout
    assert (learned.code, "there is nothing to learn from it" in learned.stderr) == (2, True)


def test_a_shard_has_all_arms_of_its_cases(coin: Project):
    ran = coin.run("--arm", "old=env:CHANCE=0", "--arm", "new=env:CHANCE=1", "--shard", "1/2")

    arms = {case["id"]: [each["arm"] for each in case["executions"]] for case in ran.results["cases"]}
    assert arms == {f"case-{number}": ["old", "new"] for number in (0, 2, 4)}
    assert coin.whet("verify", "latest").code == 0


def test_a_resumed_run_keeps_its_arms(coin: Project):
    first = coin.run("--arm", "old=env:CHANCE=1", "--arm", "new=env:CHANCE=1").folder.name

    other = coin.whet("run", "--resume", first, "--arm", "third=env:CHANCE=1")
    same = coin.whet("run", "--resume", first, "--arm", "old=env:CHANCE=1", "--arm", "new=env:CHANCE=1")

    assert (other.code, "cannot change arms" in other.stderr) == (2, True)
    assert same.code == 0


def test_an_arm_that_no_selected_runner_can_run_is_an_error(coin: Project):
    coin.settings(SETTINGS + SETTINGS.replace("coin", "other"))

    done = coin.run("--runner", "coin", "--arm", "a=runner:coin", "--arm", "b=runner:other")

    assert done.code == 2
    assert 'nothing is selected for the arm "b"' in done.stderr


def test_a_bench_suite_is_compared_by_its_own_command(project: Project):
    project.settings('[runners.sh.agent]\ntype = "command"\ncommand = "sh"\nargs = ["-c", "echo $WORD > out.txt"]\n')
    project.write(
        "suite.json",
        json.dumps({"name": "s", "cases": [{"id": "a", "prompt": "Go.", "expect": ["file:out.txt contains 'yes'"]}]}),
    )

    done = project.whet("bench", "suite.json", "--arm", "old=env:WORD=no", "--arm", "new=env:WORD=yes", "--runs", "4")

    assert done.code == 0, done.stdout + done.stderr
    assert _json(project, "compare")["difference"] == 1.0


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "suite.py", "--effect", "nan"),
        ("gate", "--min-rate", "nan"),
        ("gate", "--margin", "nan"),
        ("compare", "latest", "old"),
        ("compare", "latest", "old", "old"),
        ("compare", "latest", "old", "nobody"),
        ("gate", "--min-rate", "50", "--baseline", "x"),
    ],
)
def test_a_question_that_makes_no_sense_is_one_clear_error(coin: Project, words: tuple[str, ...]):
    coin.run("--arm", "old=env:CHANCE=1", "--arm", "new=env:CHANCE=1", "--case", "case-0")

    done = coin.whet(*words)

    assert done.code == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "change",
    [
        ('"value":[', '"value":[7,'),
        ('"value":[', '"value":["x",'),
        ('"tokens":[', '"tokens":[1,'),
        ('"tokens":[', '"tokens":[-'),
        ('"seconds":[', '"seconds":[1e300,'),
        ("whet/baseline/1", "?"),
    ],
)
def test_a_baseline_that_was_changed_is_refused(coin: Project, change: tuple[str, str]):
    coin.run("--arm", "a=env:CHANCE=1")
    coin.whet("baseline", "save", "b")
    path = coin.root / "baselines" / "b.json"
    path.write_text(path.read_text().replace(*change))

    done = coin.whet("gate", "--baseline", "b")

    assert done.code not in (0, 1, 5, 70)
    assert "is not a baseline" in done.stderr


def test_a_pipe_is_not_a_prompt(coin: Project):
    os.mkfifo(coin.root / "pipe")

    done = coin.run("--arm", "a=prompt:pipe", "--arm", "b=env:CHANCE=1")

    assert (done.code, "is not a text file" in done.stderr) == (2, True)


def test_cases_are_compared_in_the_order_of_the_suite(coin: Project):
    coin.run("--arm", "old=env:CHANCE=1", "--arm", "new=env:CHANCE=0", "--trials", "2")

    assert [case["case"] for case in _json(coin, "compare")["cases"]] == [f"case-{number}" for number in range(6)]


def test_a_run_that_is_not_finished_says_so_and_is_to_be_finished_first(coin: Project):
    """As a kill leaves it: the first lines of the journal, and no results."""
    first = coin.run("--arm", "old=env:CHANCE=0.5", "--arm", "new=env:CHANCE=0.5", "--trials", "2").folder
    journal = first / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:15]))
    (first / "results.json").unlink()

    compared, gate = coin.whet("compare"), coin.whet("gate")

    assert "the run is not finished: 9 trials are missing" in compared.stdout
    assert (gate.code, f"finish the run first: whet run --resume {first.name}" in gate.stdout) == (5, True)
    assert "the run is not finished" in coin.whet("gate", "--min-rate", "1").stdout


def test_a_gate_lets_nothing_pass_of_a_run_that_was_cut_short(coin: Project):
    first = coin.run("--arm", "old=env:CHANCE=0", "--arm", "new=env:CHANCE=1", "--trials", "6").folder
    whole = coin.whet("gate")
    journal = first / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:70]))
    (first / "results.json").unlink()

    cut = coin.whet("gate")

    assert whole.code == 0
    assert (cut.code, "finish the run first" in cut.stdout) == (5, True)
    assert "new is better than old" in cut.stdout


def test_arms_of_two_runs_share_one_error_as_candidates_of_one_do(coin: Project):
    alone = ("--arm", "a=env:CHANCE=0.2", "--trials", "3")
    several = ("--arm", "a=env:CHANCE=0.2", *(text for n in range(4) for text in ("--arm", f"x{n}=env:CHANCE=0.5")))
    first = coin.run(*several, "--trials", "3").folder.name
    second = coin.run(*several, "--trials", "3").folder.name
    third = coin.run(*alone).folder.name
    fourth = coin.run(*alone).folder.name

    together = _json(coin, "compare", first, second)["comparisons"]
    single = _json(coin, "compare", third, fourth)

    assert single["level"] == pytest.approx(0.95)
    assert len(together) == 5
    # Holm: the most distinct pair pays for all five.
    assert max(each["level"] for each in together) == pytest.approx(0.99)
    assert {each["candidate"] for each in together} == {f"{second} {arm}" for arm in ("a", "x0", "x1", "x2", "x3")}


def test_what_failed_last_time_is_run_again_in_every_arm_that_compares(coin: Project):
    arms = ("--arm", "old=env:CHANCE=1", "--arm", "new=env:CHANCE=0.5")
    first = coin.run(*arms)
    failed = {trial["case"] for trial in first.trials if trial["status"] == "failed"}

    again = coin.run("--last-failed")
    both = {(case["id"], each["arm"]) for case in again.results["cases"] for each in case["executions"]}

    assert 0 < len(failed) < 6
    assert both == {(case, arm) for case in failed for arm in ("old", "new")}
    assert coin.whet("compare").code == 0


def test_a_resumed_run_keeps_to_the_commit_that_its_arm_was_taken_from(coin: Project):
    coin.write("skill/SKILL.md", "---\nname: skill\ndescription: One.\n---\nOne.\n")
    for words in (("init", "-q"), ("add", "skill"), ("commit", "-qm", "one")):
        _git(coin, *words)
    coin.write("skill/SKILL.md", "---\nname: skill\ndescription: Two.\n---\nTwo.\n")
    ran = coin.run("--skill", "skill", "--arm", "old=skill:git:HEAD", "--arm", "new=skill:skill")
    _git(coin, "commit", "-qam", "two")

    longer = coin.whet("run", "--resume", "latest", "--add-trials", "1")

    assert longer.code == ran.code, longer.stderr
    assert len(longer.trials) == 2 * len(ran.asked["plan"])
    assert longer.results["arms"][0]["commit"] == longer.asked["commits"]["old"]


def test_a_run_whose_arms_name_files_is_resumed_in_another_folder(coin: Project):
    coin.write("careful.md", "Be careful.")
    coin.write("skill/SKILL.md", "---\nname: skill\ndescription: One.\n---\nOne.\n")
    ran = coin.run("--arm", "old=skill:none", "--arm", "new=skill:skill,prompt:careful.md")

    longer = coin.whet("run", "--resume", str(ran.folder), "--add-trials", "1", cwd=coin.outside)

    assert longer.code in {0, 1}, longer.stderr
    assert len(coin.journal()) == 24
