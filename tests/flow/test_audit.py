"""`whet audit` and `run.controls` by the real command: what controls pass, what solutions do not, and what decides."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from textwrap import dedent
from typing import Any

import benching
import pytest
from project import SHELL, Outcome, Project, wait_for

WRITES = """
def wrote(session, ctx): assert ctx.changes().created == ("hello.txt",)
def said_four(session, ctx): assert "4" in session.final_output
def pleads(session, ctx): assert "please" in session.final_output
def claims(session, ctx): assert "tests pass" in session.final_output
"""
# An agent that does what the cases above ask for.
GOOD = """
[runners.sh.agent]
type = "command"
command = "sh"
args = ["-c", "echo Hello > hello.txt; echo 4"]
"""


def audited(project: Project, suite: str = "suite.py", *args: str) -> tuple[Outcome, dict[str, Any]]:
    """How an audit ended, and what it says."""
    ended = project.whet("audit", suite, "--json", *args)
    assert ended.stdout, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return ended, found


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--image", "./nothere"), "--image: there is no folder "),
        (("--image", "./empty"), "empty has no Dockerfile"),
        (("--image", "BAD NAME"), "--image: 'BAD NAME' is not the name of an image"),
        ((), "run.image: no image is named for "),
    ],
)
def test_an_image_that_cannot_be_one_is_told_before_any_control_starts(
    project: Project, given: tuple[str, ...], said: str
) -> None:
    project.settings(GOOD)
    (project.root / "empty").mkdir()
    project.suite("suite = [Case(id='a', prompt='Write.', check=ok)]")

    ended = project.whet("audit", "suite.py", "--sandbox", "container", *given)

    assert (ended.code, ended.stdout) == (2, ""), ended.stdout
    assert said in ended.stderr
    assert not project.output_dir.exists()


def by_id(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {case["id"]: case for case in found["cases"]}


def test_a_case_that_an_idle_agent_passes_is_vacuous(boxed: Project):
    boxed.suite(
        WRITES
        + dedent("""
        suite = [
            Case(id="writes", prompt="Write hello.txt", check=wrote),
            Case(id="deletes-nothing", prompt="Tidy up", check=lambda session, ctx: None),
            Case(id="claims", prompt="Fix it", check=claims),
            Case(id="echoes", prompt="Say please", check=pleads),
        ]
        """)
    )

    ended, found = audited(boxed)

    assert ended.code == 1
    assert found["schema"] == "whet/audit/1"
    assert found["vacuous"] == ["deletes-nothing", "claims", "echoes"]
    passed = {name: case["passed_by"] for name, case in by_id(found).items()}
    assert passed == {
        "writes": [],
        "deletes-nothing": ["nothing", "done", "repeat"],
        "claims": ["done"],
        "echoes": ["repeat"],
    }
    assert (Path(found["record"]) / "results.json").is_file()


def test_a_solution_must_pass_by_its_answer_or_by_its_command(boxed: Project):
    boxed.write("ready.txt", "Hello\n")
    boxed.suite(
        WRITES
        + dedent("""
        suite = [
            Case(id="answer", prompt="2 + 2?", check=said_four, solution="It is 4."),
            Case(id="wrong", prompt="2 + 2?", check=said_four, solution="It is 5."),
            Case(id="command", prompt="Write", check=wrote, solution={"run": ["echo hi > hello.txt", "echo done"]}),
            Case(id="beside", prompt="W", check=wrote, solution={"run": 'cp "$WHET_SUITE_DIR/ready.txt" hello.txt'}),
            Case(id="no-file", prompt="Write", check=wrote, solution={"run": "true"}),
            Case(id="fails", prompt="Write", check=wrote, solution={"run": "echo hi > hello.txt; exit 3"}),
        ]
        """)
    )

    ended, found = audited(boxed)

    assert ended.code == 1
    assert found["broken"] == ["wrong", "no-file", "fails"]
    assert found["vacuous"] == []
    cases = by_id(found)
    assert [cases[name]["solution"] for name in ("answer", "command", "beside")] == ["passed"] * 3
    assert "It is 5." in cases["wrong"]["reason"]
    assert "3" in cases["fails"]["reason"]


def test_a_suite_without_a_fault_leaves_no_record(project: Project):
    project.suite(WRITES + 'suite = [Case(id="a", prompt="Q", check=said_four, solution="4")]')

    ended = project.whet("audit", "suite.py")

    assert ended.code == 0, ended.stderr
    assert "No control passes a case, and every solution passes." in ended.stdout
    assert not (project.output_dir / "audits").exists()


def test_an_audit_is_no_run_to_anything_that_looks_for_runs(project: Project):
    project.settings(GOOD)
    project.suite(
        WRITES + 'suite = [Case(id="a", prompt="Q", check=said_four), Case(id="b", prompt="Q", check=no)]'
        '\nsuite.append(Case(id="c", prompt="Q", check=ok))'
    )
    ran = project.run()
    before = ran.folder

    ended, _ = audited(project)

    assert ended.code == 1
    assert ran.folder == before
    assert [path for path in project.output_dir.glob("*/run.json") if not path.parent.is_symlink()] == [
        before / "run.json"
    ]
    assert project.run("--last-failed", "--dry-run").stdout.startswith("suite: 1 case")


def test_an_audit_writes_no_report_of_a_run_and_takes_no_snapshot(project: Project):
    project.settings(
        GOOD + '[run]\nreporters = ["terminal", "junit=out.xml"]\n[snapshots]\npath = "s.json"\nmetric = "duration_s"\n'
        "tolerance = { percent = 5 }\n"
    )
    project.suite('suite = [Case(id="a", prompt="Q", check=ok)]')

    ended, _ = audited(project)

    assert ended.code == 1
    assert not (project.root / "out.xml").exists()
    assert not (project.root / "s.json").exists()


def test_a_case_that_is_expected_to_fail_is_vacuous_if_its_check_holds(project: Project):
    project.suite(
        WRITES
        + dedent("""
        suite = [
            Case(id="known-bug", prompt="Q", check=said_four, expected_fail=True, solution="4"),
            Case(id="empty", prompt="Q", check=ok, expected_fail=True),
        ]
        """)
    )

    _, found = audited(project)

    assert found["vacuous"] == ["empty"]
    assert by_id(found)["known-bug"]["solution"] == "passed"


def test_recorded_runs_say_which_checks_decide_nothing_and_which_cases_never_change(bench: Project):
    benching.write(
        bench,
        benching.case("idle", "echo x > made", "file:made created", "file:README.md exists"),
        benching.case("apart", "cat seed > made", 'file:made contains "a"', 'file:made contains "b"', setup="true"),
    )
    bench.settings(SHELL)
    for seed in ("a", "b"):
        bench.write("seed", f"{seed}\n")
        benching.run(bench)

    _, found = audited(bench, "bench/suite.json")

    assert len(found["runs"]) == 2
    assert found["idle_checks"] == ["idle::file:made created", "idle::file:README.md exists"]
    assert found["constant"] == ["idle", "apart"]
    assert by_id(found)["apart"]["passed"] == 0


def test_a_check_that_alone_failed_a_trial_is_not_idle(bench: Project):
    benching.write(bench, benching.case("c", "true", "file:made created", "file:README.md exists"))
    bench.settings(SHELL)
    benching.run(bench)

    _, found = audited(bench, "bench/suite.json")

    assert found["idle_checks"] == ["c::file:README.md exists"]


def test_runs_of_an_earlier_content_of_the_suite_say_nothing(bench: Project):
    benching.write(bench, benching.case("c", "true", "file:made created", "file:README.md exists"))
    bench.settings(SHELL)
    benching.run(bench)
    benching.write(bench, benching.case("c", "true", "file:made created", 'file:README.md contains "Old"'))

    ended = bench.whet("audit", "bench/suite.json")

    assert "none of this suite as it is now" in ended.stdout


def test_a_bench_suite_with_claims_that_hold_anyway_is_vacuous(bench: Project):
    benching.write(
        bench,
        benching.case("good", "p", "file:made created", solution={"run": "touch made"}),
        benching.case("there", "p", "file:README.md exists"),
        benching.case("absent", "p", "no-file:secrets.txt"),
        benching.case("broken", "p", "file:made created", solution={"run": "touch other"}),
    )

    ended, found = audited(bench, "bench/suite.json")

    assert ended.code == 1
    assert found["vacuous"] == ["there", "absent"]
    assert found["broken"] == ["broken"]


def test_no_agent_sees_the_solution_of_a_suite_in_its_project(bench: Project):
    looks = "cat bench/suite.json > seen || echo hidden > seen"
    hidden = benching.case("c", looks, 'file:seen contains "hidden"', solution={"run": "echo hidden > seen; # SECRET"})
    bench.settings(SHELL)
    benching.write(bench, hidden)

    ended, found = benching.run(bench)

    assert found["passed"] == 1, ended.stdout
    kept = [path for path in (bench.output_dir / "latest").resolve().rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if b"SECRET" in path.read_bytes()]


EVALS: dict[str, Any] = {
    "name": "e",
    "source_kind": "manual",
    "verifier_kind": "deterministic",
    "supports_no_skill": True,
}


def evals(project: Project, *cases: dict[str, Any]) -> None:
    project.write("suite.json", json.dumps({**EVALS, "cases_json": cases}))
    project.write("skill/SKILL.md", "---\nname: skill\ndescription: Tidies up.\n---\nTidy up.\n")


def test_an_eval_suite_is_audited_without_asking_a_judge(project: Project):
    evals(
        project,
        {"case_kind": "llm_rubric", "id": "tone", "instruction": "Write", "rubric": "polite", "solution": "Please"},
        {"case_kind": "exact_match", "id": "four", "instruction": "2 + 2?", "expected": "4", "solution": "4"},
        {"case_kind": "exact_match", "id": "five", "instruction": "2 + 2?", "expected": "4", "solution": "5"},
        {
            "case_kind": "boolean_assertion",
            "id": "any",
            "instruction": "Hi",
            "assertion": {"op": "not_contains", "value": "x"},
        },
    )

    ended, found = audited(project, "suite.json")

    assert ended.code == 1
    assert (found["vacuous"], found["broken"], found["not_audited"]) == (["any"], ["five"], ["tone"])
    assert "a model decides" in by_id(found)["tone"]["not_audited"]


def test_a_query_that_must_not_trigger_needs_one_that_must(project: Project):
    no = {"case_kind": "trigger_query", "id": "no", "query": "2 + 2?", "should_trigger": False}
    yes = {"case_kind": "trigger_query", "id": "yes", "query": "Tidy up", "should_trigger": True}
    evals(project, no)
    _, alone = audited(project, "suite.json", "--skill", "skill")
    evals(project, no, yes)

    ended, both = audited(project, "suite.json", "--skill", "skill")

    assert alone["vacuous"] == ["no"]
    assert (ended.code, both["vacuous"]) == (0, [])
    assert by_id(both)["no"]["forbids"]


def test_without_a_skill_a_trigger_query_is_not_audited(project: Project):
    evals(project, {"case_kind": "trigger_query", "id": "yes", "query": "Tidy up", "should_trigger": True})

    ended, found = audited(project, "suite.json")

    assert (ended.code, found["not_audited"]) == (0, ["yes"])
    assert "--skill" in by_id(found)["yes"]["not_audited"]


@pytest.mark.parametrize("named", [True, False], ids=["named", "in its usual place"])
def test_the_oracle_of_a_task_package_must_pass(project: Project, *, named: bool):
    oracle = {"oracle_ref": "solution/solve.sh"} if named else {}
    for name, solves in (("good", "touch x"), ("bad", "touch y"), ("fails", "exit 4")):
        project.write(f"{name}/tests/test.sh", "test -f x\n")
        project.write(f"{name}/solution/solve.sh", f"{solves}\n")
    evals(
        project,
        *(
            {"case_kind": "task_package", "id": name, "instruction": "Make x", "environment_ref": name, **oracle}
            for name in ("good", "bad", "fails")
        ),
    )

    ended, found = audited(project, "suite.json")

    assert ended.code == 1
    assert (found["vacuous"], found["broken"]) == ([], ["bad", "fails"])
    assert by_id(found)["good"]["solution"] == "passed"
    assert by_id(found)["good"]["oracle_in_every_trial"] == named


def test_a_check_that_hangs_or_exits_on_an_idle_agent_says_nothing_of_its_case(project: Project):
    project.env["WHET_CHECK_TIMEOUT_MS"] = "300"
    project.suite(
        WRITES
        + dedent("""
        def hangs(session, ctx):
            while not session.final_output: time.sleep(0.1)
            assert "4" in session.final_output
        def exits(session, ctx):
            if "4" not in session.final_output: os._exit(7)
        suite = [
            Case(id="hangs", prompt="Q", check=hangs, solution="4"),
            Case(id="exits", prompt="Q", check=exits, solution="4"),
            Case(id="good", prompt="Q", check=said_four, solution="4"),
        ]
        """)
    )

    ended, found = audited(project)

    assert ended.code == 3
    assert (found["vacuous"], found["broken"]) == ([], [])
    assert found["errored"] == ["hangs", "exits"]
    assert "0.3 s" in by_id(found)["hangs"]["errored"]
    assert project.left_after_a_while() == []


def test_a_solution_that_does_not_end_is_broken_and_leaves_nothing(project: Project):
    project.suite(
        'suite = [Case(id="slow", prompt="Q", check=no, timeout_ms=300, solution={"run": "exec sleep 60 # {token}"})]'
    )

    ended, found = audited(project)

    assert (ended.code, found["broken"]) == (1, ["slow"])
    assert "0.3 s" in by_id(found)["slow"]["reason"]
    assert project.left_after_a_while() == []


def test_a_solution_cannot_write_outside_of_its_workspace(project: Project):
    project.sandbox = "bubblewrap"
    project.suite(
        WRITES
        + dedent("""
        away = 'echo x > "$WHET_SUITE_DIR/escaped"; echo x > {outside}/escaped; echo hi > hello.txt'
        suite = [Case(id="a", prompt="Q", check=wrote, solution={"run": away})]
        """)
    )

    ended, found = audited(project)

    assert (ended.code, found["broken"]) == (0, [])
    assert not (project.outside / "escaped").exists()
    assert not (project.root / "escaped").exists()


def test_a_solution_works_in_a_copy_of_the_folder_that_trials_share(project: Project):
    project.write("real/file.txt", "mine\n")
    project.settings('[run]\ncwd = "real"\n')
    project.suite(
        """
        def changed(session, ctx): assert ctx.changes().modified == ("file.txt",)
        suite = [Case(id="a", prompt="Q", check=changed, solution={"run": "echo yours > file.txt"})]
        """
    )

    ended, found = audited(project)

    assert (ended.code, found["broken"]) == (0, [])
    assert (project.root / "real/file.txt").read_text() == "mine\n"


def test_two_hundred_cases_are_audited_at_once(project: Project):
    project.suite(
        WRITES
        + dedent("""
        suite = [Case(id=f"c{n}", prompt="Q", check=ok if n == 7 else said_four) for n in range(200)]
        """)
    )

    # 600 sessions take long on a busy machine.
    ended = project.outcome(project.start("suite.py", "--json", command="audit"), within_s=300)

    found = json.loads(ended.stdout)
    assert (ended.code, found["vacuous"], found["broken"]) == (1, ["c7"], [])
    assert len(found["cases"]) == 200


def test_ctrl_c_ends_an_audit_and_leaves_nothing(project: Project):
    project.suite(
        'suite = [Case(id="a", prompt="Q", check=no, solution={"run": "touch {outside}/began; sleep 60 # {token}"})]'
    )
    process = project.start("suite.py", command="audit")
    wait_for(project.outside / "began")

    process.send_signal(signal.SIGINT)
    ended = project.outcome(process)

    assert ended.code == 130
    assert "interrupted" in ended.stderr
    assert not (project.output_dir / "audits").exists()
    assert project.left_after_a_while() == []


def test_a_benchmark_of_callable_skills_is_not_audited(project: Project):
    project.write("tasks.json", '{"name": "b", "tasks": []}')

    ended = project.whet("audit", "tasks.json")

    assert ended.code == 2
    assert "whet eval SKILL --benchmark tasks.json" in ended.stderr


@pytest.mark.parametrize(
    ("solution", "said"),
    [
        ("7", "must be a text or a command"),
        ('{"run": ""}', "must not be empty"),
        ('{"run": []}', "is missing"),
        ('{"sh": "true"}', "is not a known field"),
        ('""', "must not be empty"),
    ],
)
def test_a_solution_that_cannot_be_read_is_refused(project: Project, solution: str, said: str):
    project.suite(f'suite = [Case(id="a", prompt="Q", check=ok, solution={solution})]')

    ended = project.whet("audit", "suite.py")

    assert ended.code == 2
    assert said in ended.stderr


def test_controls_beside_a_run_void_the_cases_that_they_pass(project: Project):
    project.settings(GOOD + "[run]\ncontrols = true\n")
    project.suite(
        WRITES
        + dedent("""
        suite = [
            Case(id="writes", prompt="Q", check=wrote),
            Case(id="empty", prompt="Q", check=ok),
            Case(id="echo", prompt="please", check=pleads),
        ]
        """)
    )

    ran = project.run("--reporter", "terminal", "--reporter", "markdown=out.md")

    assert ran.code == 0
    results = ran.results
    assert results["voided"] == {"empty": ["nothing", "done", "repeat"], "echo": ["repeat"]}
    assert (results["counts"]["passed"], results["counts"]["void"], results["counts"]["total"]) == (1, 2, 3)
    void = next(case for case in results["cases"] if case["id"] == "echo")["executions"][0]
    assert (void["status"], void["rate"], void["score"]) == ("void", None, None)
    assert "1 of 1 trial went as expected; 2 void" in ran.stdout
    assert "`echo: passes with repeat`" in (project.root / "out.md").read_text()
    assert project.whet("verify", "latest").code == 0
    assert "nothing failed in the last run" in project.run("--last-failed").stderr


def test_a_run_of_void_cases_only_says_nothing(project: Project):
    project.settings(GOOD)
    project.suite('suite = [Case(id="empty", prompt="Q", check=ok)]')

    ran = project.run("--controls", "--arm", "old=env:A=1", "--arm", "new=env:A=2")
    compared = project.whet("compare")

    assert ran.code == 3
    assert not ran.results["passed"]
    assert compared.code == 2
    assert "has a trial that counts in both arms" in compared.stderr


def test_a_void_case_counts_in_no_comparison(project: Project):
    project.settings(GOOD.replace("echo 4", "echo $ANSWER"))
    project.suite(
        WRITES + 'suite = [Case(id="a", prompt="Q", check=said_four), Case(id="empty", prompt="Q", check=ok)]'
    )

    ran = project.run("--controls", "--arm", "old=env:ANSWER=5", "--arm", "new=env:ANSWER=4", "--trials", "3")
    compared = json.loads(project.whet("compare", "--json").stdout)

    assert ran.results["comparisons"][0]["difference"] == 1.0
    assert compared["difference"] == 1.0
    assert [case["case"] for case in compared["cases"]] == ["a"]
    assert "void, so not compared: empty" in compared["notes"]


def test_ctrl_c_while_controls_run_starts_no_agent(project: Project):
    project.settings(GOOD)
    project.suite(
        """
        def slow(session, ctx):
            Path("{outside}/began").touch()
            time.sleep(60)
        suite = [Case(id="a", prompt="Q", check=slow)]
        """
    )
    process = project.start("suite.py", "--controls")
    wait_for(project.outside / "began")

    process.send_signal(signal.SIGINT)
    ended = project.outcome(process)

    assert ended.code == 130
    assert "interrupted before the controls ended" in ended.stderr
    assert not list(project.output_dir.glob("*/run.json"))


def test_a_resumed_run_keeps_what_is_void(project: Project):
    project.settings(GOOD.replace("echo 4", "test -e {outside}/go || { touch {outside}/began; sleep 60; }; echo 4"))
    project.suite(
        WRITES + 'suite = [Case(id="empty", prompt="Q", check=ok), Case(id="a", prompt="Q", check=said_four)]'
    )
    process = project.start("suite.py", "--controls", "--max-parallel", "1")
    wait_for(project.outside / "began")
    process.send_signal(signal.SIGINT)
    assert project.outcome(process).code == 130
    (project.outside / "go").touch()

    ran = project.whet("run", "--resume", "latest")

    assert ran.code == 0, ran.stderr
    assert ran.results["voided"] == {"empty": ["nothing", "done", "repeat"]}
    assert ran.results["counts"]["void"] == 1
    assert project.whet("verify", "latest").code == 0


def test_without_controls_no_case_is_void(project: Project):
    project.settings(GOOD)
    project.suite('suite = [Case(id="empty", prompt="Q", check=ok)]')

    ran = project.run()

    assert (ran.code, ran.results["voided"], ran.results["counts"]["void"]) == (0, {}, 0)
    assert not (project.output_dir / "audits").exists()
