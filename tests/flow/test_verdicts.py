"""Trials, retries and verdicts: what counts as whose failure, and what the exit code says."""

from __future__ import annotations

import json

import pytest
from project import EVENTS, SHELL, Project


def test_every_trial_is_run_whatever_the_others_did_and_gives_a_rate(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        AGENT = 'echo x >> {outside}/runs; test $(wc -l < {outside}/runs) -ne 2'
        suite = [Case(id="a", prompt=AGENT, check=ok)]
    """)

    done = project.run("--trials", "4", "--schedule", "serial")

    execution = done.results["cases"][0]["executions"][0]
    assert done.code == 1
    assert [trial["status"] for trial in done.trials] == ["passed", "failed", "passed", "passed"]
    assert [trial["number"] for trial in done.trials] == [1, 2, 3, 4]
    assert execution["status"] == "failed"
    assert (execution["rate"]["passed"], execution["rate"]["total"]) == (3, 4)
    assert execution["score"] == 0.75


def test_retries_stop_at_the_first_success_and_every_attempt_is_kept(boxed: Project) -> None:
    boxed.settings(SHELL + "[run]\nretries = 4\n")
    boxed.suite("""
        def third(report, ctx):
            mark = Path("{outside}/tries")
            mark.write_text((mark.read_text() if mark.exists() else "") + "x")
            assert len(mark.read_text()) == 3, len(mark.read_text())
        suite = [Case(id="a", prompt="ls; echo try > file", check=third)]
    """)

    done = boxed.run()

    trial = done.trial("a")
    assert done.code == 0, done.stderr
    assert trial["flaky"] is True
    assert [attempt["status"] for attempt in trial["attempts"]] == ["failed", "failed", "passed"]
    assert len({attempt["artifact_dir"] for attempt in trial["attempts"]}) == 3
    assert all((done.folder / attempt["artifact_dir"] / "grades.json").exists() for attempt in trial["attempts"])
    kept = [attempt["workspace_dir"] for attempt in trial["attempts"]]
    assert kept[2] is None
    assert all((done.folder / place / "file").exists() for place in kept[:2])
    # Each attempt began in a workspace of its own: what the one before wrote was not there.
    assert not any((done.folder / attempt["artifact_dir"] / "transcript.txt").exists() for attempt in trial["attempts"])


def test_only_an_assertion_can_be_expected_to_fail(boxed: Project) -> None:
    boxed.settings(SHELL)
    boxed.suite("""
        def crashes(): raise ValueError
        expected = dict(expected_fail=True, timeout_ms=1000)
        suite = [Case(id="assertion", prompt="true", check=no, **expected),
                 Case(id="passes", prompt="true", check=ok, **expected),
                 Case(id="crash", prompt="exit 1", check=no, **expected),
                 Case(id="late", prompt="sleep 600", check=no, **expected),
                 Case(id="check", prompt="true", check=crashes, **expected)]
    """)

    done = boxed.run("--retries", "1")

    assert done.code == 1
    assert done.statuses == {
        "assertion": "expected-failed",
        "passes": "unexpected-passed",
        "crash": "failed",
        "late": "failed",
        "check": "failed",
    }
    passed = {trial["case"]: trial["passed"] for trial in done.trials}
    assert passed == {"assertion": True, "passes": False, "crash": False, "late": False, "check": False}
    attempts = {trial["case"]: len(trial["attempts"]) for trial in done.trials}
    assert attempts["assertion"] == attempts["passes"] == 1
    assert attempts["crash"] == attempts["late"] == 2


@pytest.mark.parametrize(
    ("case", "code"),
    [
        ("Case(id='a', prompt='true', check=ok)", 0),
        ("Case(id='a', prompt='true', check=no, expected_fail=True)", 0),
        ("Case(id='a', prompt='true', check=no)", 1),
        ("Case(id='a', prompt='exit 1', check=ok)", 1),
        ("Case(id='a', prompt='true', check=ok, expected_fail=True)", 1),
        ("Case(id='a', prompt='true', check=lambda: os._exit(0))", 3),
        ("Case(id='a', prompt='true', check=lambda: os._exit(0)), Case(id='b', prompt='true', check=no)", 1),
    ],
)
def test_the_exit_code_tells_how_it_went(project: Project, case: str, code: int) -> None:
    project.settings(SHELL)
    project.suite(f"suite = [{case}]")

    done = project.run()

    assert done.code == code
    assert done.results["passed"] is (code == 0)


def test_an_errored_trial_has_no_score_and_stays_out_of_every_mean(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        def sometimes():
            mark = Path("{outside}/mark")
            if not mark.exists():
                mark.touch()
                os._exit(1)
        suite = [Case(id="a", prompt="true", check=sometimes)]
    """)

    done = project.run("--trials", "3", "--schedule", "serial")

    execution = done.results["cases"][0]["executions"][0]
    assert done.code == 3
    assert [trial["score"] for trial in done.trials] == [None, 1.0, 1.0]
    assert execution["score"] == 1.0
    assert execution["rate"]["total"] == 2
    assert done.results["counts"]["errored"] == 1


def test_a_failing_check_says_what_it_asserts_and_where(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        def silent(report, ctx):
            assert "yes" in report.final_output
        suite = [Case(id="a", prompt="echo no", check=silent), Case(id="b", prompt="true", check=no)]
    """)

    done = project.run()

    failure = done.trial("a")["failure"]
    lines = (project.root / "suite.py").read_text().splitlines()
    assert 'assert "yes" in report.final_output' in failure["message"]
    assert 'assert "yes"' in lines[failure["location"]["line"] - 1]
    assert (failure["phase"], failure["code"], failure["cause"]) == ("check", "assertion", "agent")
    assert done.message("b") == "it is not so"


def test_max_steps_stops_the_agent_keeps_raw_output_and_asks_no_check(boxed: Project) -> None:
    boxed.settings(EVENTS + "[run]\nmax_steps = 2\n")
    round_ = """
        echo '{"type":"tool_call","id":"1","tool":"shell","args":{}}'
        echo '{"type":"tool_result","id":"1","output":"x"}'
    """
    boxed.suite(f"""
        def asked(report, ctx): Path("{{outside}}/asked").touch()
        suite = [Case(id="over", prompt={round_ * 3 + "sleep 600"!r}, check=asked),
                 Case(id="within", prompt={round_ * 2!r}, check=ok),
                 Case(id="own", prompt={round_ * 2!r}, max_steps=1, check=ok)]
    """)

    done = boxed.run()

    assert done.code == 1
    assert done.codes == {"over": "max-steps", "within": None, "own": "max-steps"}
    assert done.trial("over")["failure_class"] == {"id": "max-steps", "label": "Max steps exceeded"}
    assert done.artifact("over", "transcript.jsonl").read_text().count("tool_call") == 3
    assert not done.artifact("over", "session.json").exists()
    assert not (boxed.outside / "asked").exists()
    assert done.trial("within")["steps"] == 2


def test_a_timed_out_session_is_kept_for_people_and_marked_incomplete(project: Project) -> None:
    project.settings(EVENTS)
    project.suite("""
        AGENT = '''echo '{"type":"message","role":"assistant","text":"so far"}'; sleep 600'''
        suite = [Case(id="late", prompt=AGENT, timeout_ms=1000, check=ok)]
    """)

    done = project.run()

    assert done.codes == {"late": "timeout"}
    assert "1 s" in done.message("late")
    assert done.session("late")["complete"] is False
    assert done.session("late")["final_output"] == "so far"


def test_results_hold_every_promised_field(project: Project) -> None:
    project.settings(SHELL)
    project.suite('suite = [Case(id="a", prompt="exit 1", check=ok, tags=["x"])]')

    done = project.run()

    results = done.results
    assert {"schema", "run_id", "passed", "counts", "cases"} <= results.keys()
    assert results["run_id"] == done.folder.name
    assert results["cases"][0]["tags"] == ["x"]
    execution = results["cases"][0]["executions"][0]
    assert {"runner", "arm", "status", "passed", "score", "trials"} <= execution.keys()
    trial = execution["trials"][0]
    promised = "number status passed score failure failure_class grades usage cost_usd duration_s artifact_dir"
    assert set(promised.split()) <= trial.keys()
    assert {"phase", "code", "cause", "message"} <= trial["failure"].keys()
    assert json.loads(json.dumps(results)) == results
