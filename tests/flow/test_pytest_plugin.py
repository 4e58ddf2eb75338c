"""Suites under pytest: a case on a runner is a test like any other."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import Struct
from project import EVENTS, PATIENCE_S, SHELL, Project

from whet import load_report
from whet.errors import StoreError

TWO_RUNNERS = SHELL + SHELL.replace("runners.sh", "runners.other")
SUITE = """
    def yes(report): assert report.final_output.strip() == "yes"
    suite = [
        Case(id="says-yes", prompt="echo yes", check=yes, tags=["quick", "tone"]),
        Case(id="says-no", prompt="echo no", check=yes, tags=["tone"]),
        Case(id="cannot-yet", prompt="echo no", check=yes, expected_fail=True),
    ]
"""


class Ended(Struct, frozen=True):
    """How pytest ended, and what it printed."""

    code: int
    text: str

    @property
    def outcomes(self) -> dict[str, str]:
        """The word for each test, by its id."""
        found = re.findall(r"^(?:\[gw\d\] \[ *\d+%\] )?(\S+::\S+) (\w+)", self.text, re.MULTILINE)
        found += [
            (name, word) for word, name in re.findall(r"^\[gw\d\] \[ *\d+%\] (\w+) (\S+::\S+)", self.text, re.MULTILINE)
        ]
        return dict(found)


def _pytest(project: Project, *args: str, plugins: tuple[str, ...] = ("whet",)) -> Ended:
    """Run pytest with these *plugins*, or with all that are installed: what they import is most of a short run."""
    named = [word for plugin in plugins for word in ("-p", plugin)]
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--color=no", *named, *args],
        cwd=project.root,
        env=project.environment({"COLUMNS": "200", **(alone if plugins else {"PYTEST_ADDOPTS": "-p no:randomly"})}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout + ended.stderr)


def _runs(project: Project) -> list[Path]:
    return [path for path in (project.root / ".whet" / "pytest").glob("*") if not path.is_symlink()]


@pytest.fixture
def suite(project: Project) -> Project:
    project.settings(SHELL)
    project.suite(SUITE)
    return project


def test_cases_are_tests_with_their_ids_and_run_together(suite: Project) -> None:
    # As it is found where whet is installed.
    done = _pytest(suite, "suite.py", plugins=())

    assert done.code == 1, done.text
    assert done.outcomes == {
        "suite.py::says-yes": "PASSED",
        "suite.py::says-no": "FAILED",
        "suite.py::cannot-yet": "XFAIL",
    }
    assert "1 failed, 1 passed, 1 xfailed" in done.text
    assert len(_runs(suite)) == 1


def test_a_failing_case_says_what_its_check_said_and_where_the_evidence_lies(suite: Project) -> None:
    done = _pytest(suite, "suite.py::says-no")

    assert 'assert report.final_output.strip() == "yes"' in done.text
    assert "left:  report.final_output.strip() = 'no'" in done.text
    assert "\n  at       suite.py:8\n" in done.text
    assert "FAILED suite.py::says-no - assert report.final_output.strip() ==" in done.text
    assert "pytest_plugin" not in done.text
    evidence = re.search(r"evidence (\S+)", done.text)
    assert evidence is not None
    assert (suite.root / evidence[1] / "transcript.txt").read_text() == "no\n"


@pytest.mark.parametrize(
    ("args", "selected"),
    [
        (["-k", "yes"], ["says-yes"]),
        (["-k", "not says"], ["cannot-yet"]),
        (["-m", "quick"], ["says-yes"]),
        (["-m", "tone and not quick"], ["says-no"]),
        (["suite.py::says-no"], ["says-no"]),
    ],
)
def test_only_what_is_selected_is_run(suite: Project, args: list[str], selected: list[str]) -> None:
    done = _pytest(suite, *args)

    assert list(done.outcomes) == [f"suite.py::{name}" for name in selected]
    (run,) = _runs(suite)
    assert sorted(path.name for path in (run / "trials").iterdir()) == selected


def test_collecting_runs_nothing(suite: Project) -> None:
    done = _pytest(suite, "--collect-only")

    assert done.code == 0
    assert "<CaseItem says-yes>" in done.text
    assert _runs(suite) == []


def test_tags_are_marks_that_are_known_where_marks_are_strict(suite: Project) -> None:
    done = _pytest(suite, "--strict-markers", "-W", "error", "-m", "quick")

    assert done.code == 0, done.text
    assert done.outcomes == {"suite.py::says-yes": "PASSED"}


@pytest.mark.parametrize("tag", ["area:cli", "_internal", "needs(net)"])
def test_a_tag_may_be_any_text(project: Project, tag: str) -> None:
    project.settings(SHELL)
    project.suite(f'suite = [Case(id="a", prompt="true", check=ok, tags=[{tag!r}])]')

    done = _pytest(project, "--strict-markers", "suite.py")

    assert done.outcomes == {"suite.py::a": "PASSED"}


def test_an_expected_failure_that_passes_is_a_failure(project: Project) -> None:
    project.settings(SHELL)
    project.suite('suite = [Case(id="can", prompt="true", check=ok, expected_fail=True)]')

    done = _pytest(project, "suite.py")

    assert done.code == 1
    assert done.outcomes == {"suite.py::can": "FAILED"}
    assert "[XPASS(strict)]" in done.text


def test_a_crash_in_a_case_that_is_expected_to_fail_is_a_failure(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        def broken(report): {}["missing"]
        suite = [Case(id="check-crash", prompt="true", check=broken, expected_fail=True),
                 Case(id="agent-crash", prompt="exit 3", check=ok, expected_fail=True)]
    """)

    done = _pytest(project, "suite.py")

    assert set(done.outcomes.values()) == {"FAILED"}


def test_what_says_nothing_about_the_agent_is_an_error(project: Project) -> None:
    project.write("gone", "#!/no-such-program\n", mode=0o755)
    project.settings('[runners.gone.agent]\ntype = "command"\ncommand = "./gone"\n')
    project.suite("""
        suite = [Case(id="a", prompt="true", check=ok), Case(id="b", prompt="true", check=ok, expected_fail=True)]
    """)

    done = _pytest(project, "suite.py")

    assert done.code == 1
    assert done.outcomes == {"suite.py::a": "ERROR", "suite.py::b": "ERROR"}
    assert "gone" in done.text


def test_an_error_says_what_happened_and_nothing_of_pytest(project: Project) -> None:
    project.write("gone", "#!/no-such-program\n", mode=0o755)
    project.settings('[runners.gone.agent]\ntype = "command"\ncommand = "./gone"\n')
    project.suite('suite = [Case(id="a", prompt="true", check=ok)]')

    done = _pytest(project, "suite.py")

    assert "pytest_plugin.py" not in done.text


def test_a_check_that_crashes_is_a_failure(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        def broken(report): {}["missing"]
        suite = [Case(id="a", prompt="true", check=broken)]
    """)

    done = _pytest(project, "suite.py")

    assert done.outcomes == {"suite.py::a": "FAILED"}
    assert "KeyError: 'missing'" in done.text


def test_each_runner_has_its_own_test(suite: Project) -> None:
    suite.settings(TWO_RUNNERS)

    done = _pytest(suite, "suite.py", "-k", "says-yes")

    assert done.outcomes == {"suite.py::says-yes[sh]": "PASSED", "suite.py::says-yes[other]": "PASSED"}


def test_runners_can_be_chosen(suite: Project) -> None:
    suite.settings(TWO_RUNNERS)

    done = _pytest(suite, "suite.py", "--whet-runner", "other", "-k", "says-yes")

    assert done.outcomes == {"suite.py::says-yes[other]": "PASSED"}
    (run,) = _runs(suite)
    assert [path.name for path in (run / "trials" / "says-yes").iterdir()] == ["other"]


def test_a_combination_that_is_not_selected_is_not_run(suite: Project) -> None:
    suite.settings(TWO_RUNNERS)

    _pytest(suite, "suite.py::says-yes[sh]", "suite.py::says-no[other]")

    trials = (path for run in _runs(suite) for path in (run / "trials").glob("*/*"))
    assert sorted(f"{path.parent.name}/{path.name}" for path in trials) == ["says-no/other", "says-yes/sh"]


def test_a_runner_that_does_not_exist_is_named(suite: Project) -> None:
    done = _pytest(suite, "suite.py", "--whet-runner", "hs")

    assert done.code == 2
    assert '"hs"' in done.text


def test_an_id_with_a_comma_is_one_id(project: Project) -> None:
    project.settings(SHELL)
    project.suite('suite = [Case(id="red, green", prompt="true", check=ok)]')

    done = _pytest(project, "suite.py")

    assert done.code == 0, done.text


def test_workers_of_xdist_share_the_cases(suite: Project) -> None:
    done = _pytest(suite, "suite.py", "-n", "2", plugins=("whet", "xdist"))

    assert done.code == 1, done.text
    assert "1 failed, 1 passed, 1 xfailed" in done.text


def test_a_suite_that_cannot_be_loaded_is_a_collection_error(suite: Project) -> None:
    suite.write("suite_wrong.py", "from whet import Case\nsuite = [Case(id='a', promt='x', check=print)]\n")
    suite.write("suite_broken.py", "import whet\nthis is no python\n")

    done = _pytest(suite)

    assert done.code == 2
    assert "ERROR collecting suite_wrong.py" in done.text
    assert "promt: is not a known field" in done.text
    assert "ERROR collecting suite_broken.py" in done.text
    assert "Traceback" not in done.text
    assert _runs(suite) == []


def test_settings_that_are_wrong_are_a_collection_error(suite: Project) -> None:
    suite.settings("[run]\ntrils = 3\n")

    done = _pytest(suite)

    assert done.code == 2
    assert "trils" in done.text


def test_a_suite_without_runners_is_a_collection_error(suite: Project) -> None:
    suite.settings("")

    done = _pytest(suite)

    assert done.code == 2
    assert "no runner" in done.text


def test_suites_stand_beside_ordinary_tests(suite: Project) -> None:
    suite.write("test_plain.py", "def test_it():\n    assert True\n")

    done = _pytest(suite, "-k", "yes or test_it")

    assert done.code == 0, done.text
    assert done.outcomes == {"suite.py::says-yes": "PASSED", "test_plain.py::test_it": "PASSED"}


def test_ordinary_tests_beside_a_suite_are_still_pytest_s(suite: Project) -> None:
    suite.write("test_plain.py", "def test_it():\n    assert [1, 2] == [1, 3]\n")

    done = _pytest(suite)

    assert "At index 1 diff: 2 != 3" in done.text
    assert "checks/asserts/explain.py" not in done.text


def test_an_expectation_in_an_ordinary_test_is_shown_at_the_line_of_that_test(suite: Project) -> None:
    suite.write("test_plain.py", "from whet import expect\n\ndef test_it():\n    expect.equal(1, 2)\n")

    done = _pytest(suite, "test_plain.py")

    assert ">       expect.equal(1, 2)\nE       " in done.text
    assert "test_plain.py:4: ExpectationFailed" in done.text
    assert "FAILED test_plain.py::test_it - ExpectationFailed: expected 2" in done.text
    assert "checks/collect.py" not in done.text


def test_other_file_names_can_be_suites(suite: Project) -> None:
    (suite.root / "suite.py").rename(suite.root / "evals.py")
    suite.write("pytest.ini", "[pytest]\nwhet_suites = evals.py\n")

    done = _pytest(suite, "-k", "yes")

    assert done.outcomes == {"evals.py::says-yes": "PASSED"}


def test_two_suites_of_one_name_with_helpers_of_one_name_are_kept_apart(project: Project) -> None:
    project.settings(SHELL)
    for name in ("one", "two"):
        project.write(f"{name}/helper.py", f"NAME = {name!r}\n")
        project.write(
            f"{name}/suite.py",
            """
            from whet import Case
            from helper import NAME
            suite = [Case(id=NAME, prompt="true", check=lambda report: None)]
            """,
        )

    done = _pytest(project)

    assert done.outcomes == {"one/suite.py::one": "PASSED", "two/suite.py::two": "PASSED"}


def test_a_snapshot_that_does_not_hold_fails_its_test(project: Project) -> None:
    prompt = """echo '{"type": "usage", "input_tokens": 500, "output_tokens": 0}'"""
    project.settings(EVENTS + "[snapshots.tolerance]\npercent = 10\n")
    project.suite(f'suite = [Case(id="a", prompt={prompt!r}, check=ok)]')
    _pytest(project)
    snapshots = project.root / "whet.snapshots.json"
    snapshots.write_text(snapshots.read_text().replace("500", "100"))

    done = _pytest(project)

    assert done.outcomes == {"suite.py::a": "FAILED"}
    assert "total_tokens is 500, allowed 110" in done.text


def test_a_project_without_suites_is_left_alone(project: Project) -> None:
    project.write("test_plain.py", "def test_it():\n    import sys\n    assert 'whet.run.flow' not in sys.modules\n")
    project.write("suite.py", "raise RuntimeError('a file of somebody else, called suite')\n")
    project.write("conftest.py", "collect_ignore = []\n")

    done = _pytest(project, "-W", "error")

    assert done.code == 0, done.text
    assert done.outcomes == {"test_plain.py::test_it": "PASSED"}
    assert not (project.root / ".whet").exists()


def test_a_file_called_suite_that_does_not_import_whet_is_left_alone(project: Project) -> None:
    project.write("test_plain.py", "def test_it(): pass\n")
    project.write("suite.py", '"""Says whether all is well."""\n')

    done = _pytest(project)

    assert done.code == 0, done.text


def test_a_report_can_be_loaded_into_an_ordinary_test(project: Project) -> None:
    prompt = """echo '{"type": "command", "command": "pnpm test"}'; echo '{"type": "final_output", "text": "done"}'"""
    project.settings(EVENTS)
    project.suite(f'suite = [Case(id="a", prompt={prompt!r}, check=ok)]', name="my_suite.py")
    project.whet("run", "my_suite.py")
    project.write(
        "test_report.py",
        """
        from pathlib import Path
        import pytest
        from whet import command, expect, load_report

        FOLDER = Path(".whet/runs/latest/trials/a/sh/default/1/1")

        def test_holds():
            for path in (FOLDER, str(FOLDER), FOLDER / "session.json"):
                report = load_report(path)
                expect.commands.includes(report, command("pnpm").arg("test"))
                expect.output.includes(report, "done")
                assert report.final_output == "done"

        def test_fails():
            expect.commands.includes(load_report(FOLDER), "cargo")

        def test_soft_fails_at_once():
            expect.soft.commands.includes(load_report(FOLDER), "make")
        """,
    )

    done = _pytest(project, "test_report.py")

    assert done.outcomes == {
        "test_report.py::test_holds": "PASSED",
        "test_report.py::test_fails": "FAILED",
        "test_report.py::test_soft_fails_at_once": "FAILED",
    }
    assert 'expected a command matching "cargo"' in done.text
    assert "1. pnpm test" in done.text


@pytest.mark.parametrize("path", ["nowhere", "suite.py"])
def test_a_report_that_is_not_there_is_told_by_its_path(suite: Project, path: str) -> None:
    wanted = suite.root / path

    with pytest.raises(StoreError, match=re.escape(f"{wanted}: ")):
        load_report(wanted)
