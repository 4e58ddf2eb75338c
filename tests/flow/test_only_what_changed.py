"""`whet run --changed` and `whet status`: what a finished run has measured, and what has changed since."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable

import pytest
from project import Project, wait_for

SETTINGS = """
[runners.one.agent]
type = "command"
command = "sh"
args = ["./{agent}"]
[runners.two.agent]
type = "command"
command = "sh"
args = ["./other.sh"]
[defaults]
timeout_ms = 20_000
"""
SUITE = """
    import helpers
    workspace = Workspace(mode="isolated", template_dir="template")
    WORD = __import__("re").compile("cat")
    class Limits:
        longest = 100
    def reads(session): assert WORD.search(session.final_output)
    def is_short(session): assert len(session.final_output) < Limits.longest
    suite = [Case(id="a", prompt="cat", check=reads), Case(id="b", prompt="cat b", check=is_short),
             Case(id="c", prompt="cat c", check=lambda session: helpers.check(session))]
"""


@pytest.fixture
def measured(project: Project) -> Project:
    """A project whose suite has been run once."""
    project.settings(SETTINGS.replace("{agent}", "agent.sh"))
    project.write("agent.sh", "cat\n")
    project.write("other.sh", "cat\n")
    project.write("helpers.py", "def check(session): assert session.final_output\n")
    project.write("template/notes.txt", "one\n")
    project.suite(SUITE)
    first = project.run()
    assert first.code == 0, first.stdout
    return project


def outstanding(project: Project, *args: str) -> dict[str, set[str]]:
    """What has changed of each execution, by case and runner."""
    ended = project.whet("status", "suite.py", "--json", *args)
    assert ended.code == 0, ended.stderr
    (suite,) = json.loads(ended.stdout)["suites"]
    return {f"{item['case']} {item['runner']}": set(item["changed"]) for item in suite["outstanding"]}


def edit(name: str, before: str, after: str) -> Callable[[Project], None]:
    def change(project: Project) -> None:
        path = project.root / name
        text = path.read_text()
        assert before in text
        path.write_text(text.replace(before, after))

    return change


def test_nothing_is_run_where_nothing_has_changed(measured: Project) -> None:
    before = sorted(measured.output_dir.iterdir())

    again = measured.run("--changed")

    checked = measured.whet("status", "--check", "suite.py")
    sentence = "nothing is outstanding: 3 cases have been run as they are now\n"
    assert (again.code, again.stdout, again.stderr) == (0, sentence, "")
    assert (checked.code, checked.stdout) == (0, sentence)
    assert sorted(measured.output_dir.iterdir()) == before


@pytest.mark.parametrize(
    ("change", "what", "cases"),
    [
        (edit("suite.py", 'prompt="cat b"', 'prompt="cat more"'), "content", "b"),
        (edit("suite.py", 'compile("cat")', 'compile("at")'), "content", "a"),
        (edit("suite.py", "longest = 100", "longest = 90"), "content", "b"),
        (edit("helpers.py", "final_output", "final_output.strip()"), "content", "abc"),
        (edit("template/notes.txt", "one", "two"), "content", "abc"),
        (edit("whet.toml", "20_000", "30_000"), "settings", "abc"),
        (edit("suite.py", "def reads", "\n\n# Elsewhere.\ndef reads"), None, ""),
        (edit("whet.toml", "[defaults]", "[run]\nmax_parallel = 1\n[defaults]"), None, ""),
    ],
)
def test_a_change_is_outstanding_where_it_may_change_the_result(
    measured: Project, change: Callable[[Project], None], what: str | None, cases: str
) -> None:
    change(measured)

    changes = outstanding(measured)

    assert changes == {f"{case} {runner}": {what} for case in cases for runner in ("one", "two")}


def test_an_agent_that_changed_is_run_again_and_no_other(measured: Project) -> None:
    measured.write("agent.sh", "cat; echo\n")

    again = measured.run("--changed")

    assert again.code == 0, again.stderr
    assert {trial["runner"] for trial in again.trials} == {"one"}
    assert "a@one/default: agent changed (its program) since" in again.stderr
    assert outstanding(measured) == {}


def test_a_new_case_is_run_and_a_failure_is_not_hidden(measured: Project) -> None:
    edit("suite.py", "suite = [", 'suite = [Case(id="new", prompt="cat", check=no), ')(measured)

    first = measured.run("--changed")
    again = measured.run("--changed")

    assert first.code == 1
    assert first.statuses == {"new": "failed"}
    assert "suite: 1 of 4 cases outstanding\n  new: never run\n" in first.stderr
    assert again.code == 0
    assert again.stdout == (
        "nothing is outstanding: 4 cases have been run as they are now, and 1 did not go as expected\n"
    )


def test_more_trials_than_were_run_are_outstanding_and_fewer_are_not(measured: Project) -> None:
    measured.run("--trials", "2", "--case", "a")

    changes = outstanding(measured, "--trials", "2")

    assert outstanding(measured) == {}
    assert changes == {f"{case} {runner}": {"settings"} for case in "bc" for runner in ("one", "two")}


def test_a_run_of_some_cases_measures_these_and_leaves_the_others_as_they_were(measured: Project) -> None:
    measured.write("template/notes.txt", "two\n")

    measured.run("--case", "a", "--runner", "one")

    assert set(outstanding(measured)) == {"a two", "b one", "b two", "c one", "c two"}
    assert set(outstanding(measured, "--case", "a")) == {"a two"}
    assert outstanding(measured, "--case", "a", "--runner", "one") == {}


def test_a_killed_run_measures_what_it_finished_and_its_resumption_the_rest(measured: Project) -> None:
    script = 'read word; case "$word" in "cat c") touch {outside}/last; sleep 60;; *) echo cat;; esac\n'
    measured.write("agent.sh", script)
    running = measured.start("suite.py", "--changed", "--schedule", "serial", "--runner", "one")
    wait_for(measured.outside / "last")

    os.kill(running.pid, signal.SIGKILL)
    running.communicate()

    before = outstanding(measured, "--runner", "one")
    only = measured.whet("run", "suite.py", "--changed", "--dry-run", "--runner", "one")
    edit("agent.sh", "sleep 60", "echo cat")(measured)
    refused = measured.whet("run", "--resume", "latest")
    assert before == {"c one": {"agent"}}
    assert [line.split()[0] for line in only.stdout.splitlines()[3:]] == ["c"]
    assert refused.code == 2
    assert "agent.sh has changed" in refused.stderr


def test_a_run_of_what_changed_is_resumed_as_it_was_planned(measured: Project) -> None:
    measured.write("agent.sh", "test -e {outside}/stop || cat\n")
    measured.run("--changed", "--case", "a,b")
    measured.write("template/notes.txt", "two\n")
    edit("suite.py", 'Case(id="b"', 'Case(id="d", prompt="cat", check=ok), Case(id="b"')(measured)
    run = measured.run("--changed", "--case", "d", "--max-cost", "0.000001")

    resumed = measured.whet("run", "--resume", "latest")

    assert resumed.folder == run.folder
    assert {trial["case"] for trial in resumed.trials} == {"d"}
    assert measured.whet("run", "--resume", "latest", "--changed").code == 2


def test_an_errored_trial_measures_nothing(measured: Project) -> None:
    measured.suite("""
        workspace = Workspace(mode="isolated", bootstrap=Bootstrap(command="false"))
        suite = [Case(id="new", prompt="cat", check=ok)]
    """)
    run = measured.run("--changed")

    ended = measured.whet("status", "suite.py", "--check")

    assert run.code == 3
    assert ended.code == 1
    assert "new: not finished in" in ended.stdout


def test_every_arm_of_a_case_is_run_where_one_has_changed(measured: Project) -> None:
    measured.write("old/SKILL.md", "---\nname: help\ndescription: Helps.\n---\nOld.\n")
    measured.write("new/SKILL.md", "---\nname: help\ndescription: Helps.\n---\nNew.\n")
    arms = ("--runner", "one", "--arm", "old=skill:./old", "--arm", "new=skill:./new")
    edit("whet.toml", 'args = ["./agent.sh"]', 'args = ["./agent.sh"]\nskills_dir = "skills"')(measured)
    first = measured.run("--changed", *arms)
    measured.write("new/SKILL.md", "---\nname: help\ndescription: Helps.\n---\nNewer.\n")

    again = measured.run("--changed", *arms)

    arms_of = {(case["id"], item["arm"]) for case in again.results["cases"] for item in case["executions"]}
    assert first.code == 0, first.stderr
    assert "a@one/new: skill changed since" in again.stderr
    assert "a@one/old" not in again.stderr
    assert arms_of == {(case, arm) for case in "abc" for arm in ("old", "new")}


def test_records_in_another_folder_are_found_where_they_are(measured: Project) -> None:
    elsewhere = ("--output-dir", "elsewhere")

    before = outstanding(measured, *elsewhere)
    measured.run("--changed", *elsewhere)

    assert before == {f"{case} {runner}": set() for case in "abc" for runner in ("one", "two")}
    assert outstanding(measured, *elsewhere) == {}


def test_a_project_that_moved_with_its_records_is_still_measured(measured: Project) -> None:
    moved = measured.root.with_name("moved")
    shutil.move(measured.root, moved)

    ended = measured.whet("status", "--check", "suite.py", cwd=moved)

    assert ended.code == 0, ended.stdout


def test_another_suite_of_the_same_name_has_been_measured_by_its_own_runs_only(measured: Project) -> None:
    measured.suite('suite = [Case(id="a", prompt="cat", check=ok)]', name="more/suite.py")

    ended = measured.whet("status", "more/suite.py", "--output-dir", ".whet/runs")

    assert ended.stdout == "suite: 1 of 1 case outstanding\n  a: never run\n"


def test_of_several_suites_only_the_one_that_changed_is_run(measured: Project) -> None:
    measured.suite('suite = [Case(id="a", prompt="cat", check=ok)]', name="more.py")
    measured.whet("run", "more.py")
    edit("more.py", 'prompt="cat"', 'prompt="cat x"')(measured)

    first = measured.whet("run", "suite.py", "more.py", "--changed")
    again = measured.whet("run", "suite.py", "more.py", "--changed")

    assert {trial["case"] for trial in first.trials} == {"more/a"}
    assert again.stdout == "nothing is outstanding: 4 cases of 2 suites have been run as they are now\n"
    assert again.code == 0


def test_a_record_that_was_changed_counts_for_nothing_and_is_named(measured: Project) -> None:
    journal = measured.output_dir / "latest" / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"passed"', b'"failed"', 1))

    ended = measured.whet("status", "--check", "suite.py")

    assert ended.code == 1
    assert "a: never run" in ended.stdout
    assert "warning: " in ended.stderr


def test_shards_of_what_changed_measure_it_together(measured: Project) -> None:
    measured.write("template/notes.txt", "two\n")
    for number in (1, 2):
        # Each shard is run on a machine of its own, which knows nothing of the other.
        measured.run("--changed", "--shard", f"{number}/2", "--output-dir", f"machine{number}")

    merged = measured.whet("merge", "machine1/latest", "machine2/latest")

    assert merged.code == 0, merged.stderr
    assert outstanding(measured) == {}


@pytest.mark.parametrize("option", ["--gate", "--until-decided", "--last-failed"])
def test_what_needs_all_cases_refuses_those_that_changed(measured: Project, option: str) -> None:
    refused = measured.run("--changed", option)

    assert refused.code == 2
    assert "--changed" in refused.stderr
