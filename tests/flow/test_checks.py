"""Checks and classify_failure: whatever an author's function does is contained and told."""

# ruff: noqa: E501 - suites and scripts stand here as their authors would write them

from __future__ import annotations

import pytest
from project import SHELL, Project


@pytest.fixture
def checks(boxed: Project) -> Project:
    boxed.settings(SHELL + "[run]\nmax_parallel = 2\n")
    return boxed


@pytest.fixture
def impatient(boxed: Project) -> Project:
    boxed.settings(SHELL + "[defaults]\ncheck_timeout_ms = 5000\n[run]\nmax_parallel = 2\n")
    return boxed


def test_a_check_that_raises_exits_or_prints_is_one_trial_and_the_others_pass(checks: Project) -> None:
    checks.suite("""
        def raises(): raise RuntimeError("no such luck")
        def exits(): sys.exit(0)
        def vanishes(): os._exit(0)
        def interrupts(): raise KeyboardInterrupt
        def prints():
            print("seen by", "check")
            os.system("echo seen by shell")
            print("oops", file=sys.stderr)
        def closes():
            sys.stdout.close()
        def kills_its_group(): os.killpg(0, signal.SIGKILL)
        suite = [Case(id=f.__name__, prompt="true", check=f)
                 for f in (raises, exits, vanishes, interrupts, prints, closes, kills_its_group)]
        suite.append(Case(id="last", prompt="true", check=ok))
    """)

    done = checks.run()

    assert done.code == 1, done.stderr
    assert done.statuses == {
        "raises": "failed",
        "exits": "failed",
        "vanishes": "errored",
        "interrupts": "failed",
        "prints": "passed",
        "closes": "passed",
        "kills_its_group": "errored",
        "last": "passed",
    }
    assert done.codes["vanishes"] == "checker-died"
    assert "RuntimeError: no such luck" in done.message("raises")
    assert done.trial("raises")["failure"]["location"]["file"].endswith("suite.py")
    printed = done.artifact("prints", "check.log").read_text()
    assert "seen by check" in printed
    assert "seen by shell" in printed
    assert "oops" in printed


def test_a_check_that_takes_away_its_own_stdout_harms_nobody(checks: Project) -> None:
    checks.suite("""
        def rude():
            sys.stdout = None
        suite = [Case(id="rude", prompt="true", check=rude), *(
            Case(id=f"c{n}", prompt="sleep 0.1; echo fine > file", check=lambda report, ctx: expect.equal(ctx.changes().created, ("file",)))
            for n in range(6))]
    """)

    done = checks.run()

    assert done.code == 0, done.stderr
    assert set(done.statuses.values()) == {"passed"}


def test_a_check_that_forks_and_returns_twice_decides_only_its_own_trial(checks: Project) -> None:
    checks.suite("""
        def forks():
            if os.fork() == 0:
                time.sleep(0.2)
        def fails(): assert False
        suite = [Case(id="forks", prompt="true", check=forks),
                 *(Case(id=f"c{n}", prompt="sleep 0.1", check=fails) for n in range(8))]
    """)

    done = checks.run("--schedule", "serial")

    assert done.statuses == {"forks": "passed", **{f"c{n}": "failed" for n in range(8)}}


def test_what_a_check_starts_does_not_outlive_the_run(checks: Project) -> None:
    checks.suite("""
        def starts():
            subprocess.Popen(["sh", "-c", "setsid sh -c 'sleep 600; : {token}' & :"])
        suite = [Case(id="starts", prompt="true", check=starts), Case(id="other", prompt="true", check=ok)]
    """)

    done = checks.run()

    assert done.statuses == {"starts": "passed", "other": "passed"}
    assert checks.left_after_a_while() == []


def test_a_check_that_hangs_is_one_trial_and_what_it_started_does_not_outlive_the_run(impatient: Project) -> None:
    impatient.suite("""
        def starts():
            subprocess.Popen(["setsid", "sh", "-c", "sleep 600; : {token}"])
            time.sleep(600)
        suite = [Case(id="starts", prompt="true", check=starts), Case(id="other", prompt="true", check=ok)]
    """)

    done = impatient.run()

    assert done.statuses == {"starts": "errored", "other": "passed"}
    assert done.codes["starts"] == "check-timeout"
    assert impatient.left_after_a_while() == []


def test_classify_failure_may_give_a_string_a_class_a_map_or_nothing(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        suite = [
            Case(id="text", prompt="true", check=no, classify_failure=lambda result: "wrong-tool"),
            Case(id="class", prompt="true", check=no,
                 classify_failure=lambda result: FailureClass(id="x", label=result.failure.message)),
            Case(id="map", prompt="true", check=no, classify_failure=lambda result: {"id": "m", "label": "M"}),
            Case(id="nothing", prompt="true", check=no, classify_failure=lambda result: None),
            Case(id="crash", prompt="exit 3", check=ok, classify_failure=lambda result: result.failure.code),
            Case(id="passes", prompt="true", check=ok, classify_failure=lambda result: "never asked"),
        ]
    """)

    done = project.run()

    classes = {trial["case"]: trial["failure_class"] for trial in done.trials}
    assert classes == {
        "text": {"id": "wrong-tool", "label": None},
        "class": {"id": "x", "label": "it is not so"},
        "map": {"id": "m", "label": "M"},
        "nothing": {"id": "assertion", "label": "Assertion failure"},
        "crash": {"id": "agent-crashed", "label": None},
        "passes": None,
    }


def test_classify_failure_that_raises_hangs_or_exits_is_told_and_loses_nothing(impatient: Project) -> None:
    impatient.suite("""
        def raises(result): raise LookupError("nope")
        def hangs(result): time.sleep(600)
        def vanishes(result): os._exit(1)
        suite = [Case(id=f.__name__, prompt="true", check=no, classify_failure=f) for f in (raises, hangs, vanishes)]
    """)

    done = impatient.run()

    assert done.code == 1
    assert set(done.statuses.values()) == {"failed"}
    assert {trial["failure_class"]["id"] for trial in done.trials} == {"assertion"}
    notes = {trial["case"]: " ".join(trial["notes"]) for trial in done.trials}
    assert "LookupError: nope" in notes["raises"]
    assert "classify_failure did not end" in notes["hangs"]
    assert "classify_failure ended its process" in notes["vanishes"]


@pytest.mark.parametrize(
    "given",
    [
        "FailureClass(id=3)",
        "FailureClass(id='x', label=object())",
        "Rude()",
        "[1]",
        "{'id': 3}",
    ],
)
def test_classify_failure_that_gives_nonsense_loses_nothing(project: Project, given: str) -> None:
    project.settings(SHELL)
    project.suite(f"""
        class Rude:
            def __bool__(self): raise ValueError("neither")
            def __str__(self): raise ValueError("nor")
        suite = [Case(id="odd", prompt="true", check=no, classify_failure=lambda result: {given}),
                 Case(id="other", prompt="sleep 0.3; echo x > file; test -e file", check=ok)]
    """)

    done = project.run()

    assert done.code == 1, done.stderr
    assert done.statuses == {"odd": "failed", "other": "passed"}


def test_an_async_classify_failure_is_asked_to_its_end(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        async def later(result):
            await asyncio.sleep(0)
            return "late"
        suite = [Case(id="a", prompt="true", check=no, classify_failure=later)]
    """)

    done = project.run()

    assert done.trial("a")["failure_class"]["id"] == "late"
