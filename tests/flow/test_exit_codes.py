"""Exit codes that CI can use: a run that compares arms, and what `--gate` makes of it."""

from __future__ import annotations

import json
import signal

import pytest
from project import PATIENCE_S, SHELL, Project, wait_for

SETTINGS = """
[runners.sh.agent]
type = "command"
command = "sh"
args = ["-c", "echo $SAYS"]

[arms.wrong]
env = { SAYS = "wrong" }

[arms.right]
env = { SAYS = "right" }
"""
SUITE = """
def right(report, ctx): assert report.final_output.strip() == "right"
suite = [Case(id=f"case-{number}", prompt="?", check=right) for number in range(6)]
"""
WORSE = ("--arm", "right", "--arm", "wrong", "--trials", "3")
BETTER = ("--arm", "wrong", "--arm", "right", "--trials", "3")
SAME = ("--arm", "old=env:SAYS=right,env:X=1", "--arm", "new=env:SAYS=right,env:X=2")


@pytest.fixture
def says(project: Project) -> Project:
    """A project whose agent says what its arm tells it to."""
    project.settings(SETTINGS)
    project.suite(SUITE)
    return project


def test_a_run_that_compares_arms_ends_well_whatever_its_trials_decided(says: Project):
    typed = says.run("--arm", "old=env:SAYS=right", "--arm", "new=env:SAYS=wrong")
    until_decided = says.run("--arm", "right", "--arm", "wrong", "--until-decided")
    of_settings = says.run(*WORSE)

    assert (typed.code, of_settings.code, until_decided.code) == (0, 0, 0)
    assert of_settings.results["counts"]["failed"] == 18
    assert (of_settings.results["passed"], of_settings.results["compares"]) == (False, True)
    assert says.whet("verify", "latest").code == 0


def test_trials_that_errored_show_also_in_a_run_that_compares_arms(says: Project):
    some = says.run("--arm", "right", "--arm", "broken=env:PATH=/nothing,env:SAYS=right")
    some_beside_failures = says.run("--arm", "right", "--arm", "wrong", "--arm", "broken=env:PATH=/nothing")

    assert (some.code, some_beside_failures.code) == (3, 3)


def test_one_arm_alone_is_decided_by_its_trials(says: Project):
    assert says.run("--arm", "wrong").code == 1
    assert says.run("--arm", "right").code == 0


def test_the_arms_that_a_skill_makes_by_itself_are_decided_by_the_trials_with_it(project: Project):
    project.settings(SHELL)
    project.write("greet/SKILL.md", "---\nname: greet\ndescription: Greets.\n---\n")
    helps = {"task_id": "helps", "case_kind": "exact_match", "expected": "yes"}
    skill_there = '[ -n "$WHET_SKILL" ] && echo %s || echo %s'
    suite = {"name": "s", "source_kind": "manual", "verifier_kind": "deterministic", "supports_no_skill": True}

    codes = {}
    for said in (("yes", "no"), ("no", "yes")):
        cases = [{**helps, "instruction": skill_there % said}]
        project.write("suite.json", json.dumps({**suite, "cases_json": cases}))
        ran = project.whet("run", "suite.json", "--skill", "greet")
        codes[said[0]] = (ran.code, ran.results["compares"])
        chosen = project.whet("run", "suite.json", "--skill", "greet", "--arm", "skill,no_skill")
        assert chosen.code == ran.code, chosen.stdout + chosen.stderr

    assert codes == {"yes": (0, False), "no": (1, False)}


def test_gate_ends_as_whet_gate_does_and_prints_what_it_says(says: Project):
    better, worse = says.run(*BETTER, "--gate"), says.run(*WORSE, "--gate")
    gate = says.whet("gate")
    open_ = says.run(*SAME, "--gate")

    assert (better.code, worse.code, gate.code, open_.code) == (0, 1, 1, 5)
    assert worse.stdout.endswith(f"\n\n{gate.stdout}")
    hint = worse.stdout.partition("To run only what did not go as expected: ")[2].splitlines()[0]
    assert ("--last-failed" in hint, "--gate" in hint) == (True, False)
    assert "gate: not known yet" in open_.stdout
    assert "to decide it in 8 of 10 such runs: whet run --resume" in open_.stdout


def test_gate_decides_also_on_a_run_with_errored_trials_and_on_one_that_is_resumed(says: Project):
    says.settings(SETTINGS + "\n[run]\nmax_parallel = 1\n")
    errored = says.run(*WORSE, "--arm", "broken=env:PATH=/nothing", "--gate")
    whole = says.run(*WORSE).folder.name
    longer = says.whet("run", "--resume", whole, "--add-trials", "1", "--gate")

    assert errored.code == 1, errored.stdout
    assert longer.code == 1, longer.stdout + longer.stderr
    assert "gate: fail" in longer.stdout


def test_gate_writes_to_stderr_where_a_document_goes_to_stdout(says: Project):
    done = says.run(*WORSE, "--gate", "--reporter", "json")

    assert done.code == 1
    assert json.loads(done.stdout)["compares"] is True
    assert "gate: fail" in done.stderr


def test_a_run_until_decided_has_its_margin_and_a_later_gate_too(says: Project):
    wide = says.run(*SAME, "--until-decided", "--margin", "40", "--gate")
    usual = says.whet("gate")

    assert wide.code == 0, wide.stdout
    assert "by 40 points or more" in wide.stdout.rpartition("gate: pass")[2]
    assert usual.code == 0
    assert "by 40 points or more" in usual.stdout


def test_gate_decides_on_all_suites_of_a_batch(says: Project):
    says.suite(SUITE, "other.py")

    done = says.whet("run", "suite.py", "other.py", *WORSE, "--gate")
    without = says.whet("run", "suite.py", "other.py", *WORSE)

    assert done.code == 1, done.stdout + done.stderr
    assert "gate: fail" in done.stdout
    assert without.code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gate",), "--gate compares arms"),
        (("--arm", "right", "--gate"), "--gate compares arms"),
        (("--arm", "right", "--gate", "--dry-run"), "--gate compares arms"),
        ((*WORSE, "--gate", "--shard", "1/2"), "a shard has a part of them"),
        ((*WORSE, "--gate", "--last-failed"), "failed by chance"),
    ],
)
def test_gate_is_refused_where_it_has_nothing_to_decide(says: Project, words: tuple[str, ...], said: str):
    done = says.run(*words)

    assert (done.code, said in done.stderr) == (2, True), done.stderr
    assert not says.output_dir.exists()


def test_an_interrupted_run_is_not_gated(says: Project):
    says.settings(SETTINGS.replace("echo $SAYS", "touch {outside}/began; sleep 60"))

    begun = says.start("suite.py", *WORSE, "--gate")
    wait_for(says.outside / "began")
    begun.send_signal(signal.SIGINT)
    done = says.outcome(begun, within_s=PATIENCE_S)

    assert done.code == 130, done.stdout + done.stderr
    assert "gate:" not in done.stdout
    assert "--resume" in done.stdout
    assert "--gate" in done.stdout


def test_regrading_and_merging_end_as_the_run_would(says: Project):
    says.run(*WORSE)
    regraded = says.whet("regrade", "latest")
    for shard in ("1/2", "2/2"):
        assert says.run(*WORSE, "--shard", shard, "--output-dir", "shards").code == 0
    merged = says.whet("merge", "shards")
    gate = says.whet("gate")

    assert (regraded.code, merged.code, gate.code) == (0, 0, 1), merged.stdout + merged.stderr
    assert regraded.results["compares"] is True
