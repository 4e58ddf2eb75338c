"""Regrading: the checks as they are now, over what was recorded, and no agent in sight."""

# ruff: noqa: E501 - suites and scripts stand here as their authors would write them

from __future__ import annotations

import json

import pytest
from ordinary import held_to_permissions
from project import SHELL, Outcome, Project

ANSWER = """
    def check(report, ctx):
        {check}
    suite = [Case(id="c", prompt="echo seven; echo x >> {outside}/started; mkdir d; echo made > d/made.txt", check=check)]
"""


def answer(project: Project, check: str) -> None:
    project.suite(ANSWER.replace("{check}", check))


def regrade(project: Project, *args: str) -> Outcome:
    return project.whet("regrade", *(args or ("latest",)))


@pytest.fixture
def sh(project: Project) -> Project:
    project.settings(SHELL)
    return project


def test_a_corrected_check_turns_failed_into_passed_without_an_agent(sh: Project) -> None:
    answer(sh, 'assert report.final_output == "eight", "not eight"')
    first = sh.run()
    answer(sh, 'assert report.final_output == "seven"')

    outcome = regrade(sh)

    assert (first.code, outcome.code, outcome.statuses) == (1, 0, {"c": "passed"})
    assert "1 of 1 verdict changed" in outcome.stdout
    assert "c @ sh #1  failed -> passed" in outcome.stdout
    assert (sh.outside / "started").read_text() == "x\n"


def test_a_stricter_check_turns_passed_into_failed_and_says_why(sh: Project) -> None:
    answer(sh, "pass")
    first = sh.run()
    answer(sh, 'assert report.final_output == "eight", "not eight"')

    outcome = regrade(sh, first.folder.name)

    assert outcome.code == 1
    assert "c @ sh #1  passed -> failed  not eight" in outcome.stdout
    assert "before  1 passed" in outcome.stdout
    assert "after   1 failed" in outcome.stdout


def test_the_new_run_folder_stands_on_its_own_and_says_where_it_came_from(sh: Project) -> None:
    answer(sh, 'assert ctx.read("d/made.txt") == "no"')
    first = sh.run()
    before = sorted(path.name for path in first.artifact("c", ".").iterdir())
    old = first.folder
    answer(sh, 'assert ctx.read("d/made.txt") == "neither"')

    outcome = regrade(sh, str(old))

    assert json.loads((outcome.folder / "run.json").read_bytes())["regraded_from"] == old.name
    assert outcome.folder != old
    assert sorted(path.name for path in outcome.artifact("c", ".").iterdir()) == before
    assert (outcome.folder / outcome.trial("c")["workspace_dir"] / "d/made.txt").read_text() == "made\n"
    assert "neither" in outcome.message("c")


def test_a_regraded_run_can_be_regraded_again_but_not_resumed(sh: Project) -> None:
    answer(sh, "pass")
    sh.run()
    regrade(sh)

    again, resumed = regrade(sh), sh.whet("run", "--resume", "latest")

    assert (again.code, again.statuses) == (0, {"c": "passed"})
    assert resumed.code == 2
    assert "cannot be resumed: it regrades" in resumed.stderr


@pytest.mark.parametrize(
    "check",
    [
        'assert (ctx.workspace / "d/made.txt").read_text() == "made\\n"',
        'assert ctx.read("d/made.txt") == "made\\n"',
        'assert ctx.run("cat d/made.txt").stdout == "made\\n"',
        'assert ctx.changes().created == ("d/made.txt",) and "+made" in ctx.changes().diff',
    ],
)
def test_the_workspace_of_a_passed_trial_is_made_again_from_its_changes(sh: Project, check: str) -> None:
    answer(sh, "pass")
    sh.run()
    answer(sh, check)

    outcome = regrade(sh)

    assert outcome.statuses == {"c": "passed"}, outcome.message("c")


CLOSING = """
    def check(report, ctx):
        {check}
    suite = [Case(id="c", prompt="echo x > closed.txt; chmod 000 closed.txt", check=check)]
"""


def test_a_file_that_the_agent_closed_is_part_of_its_kept_workspace_again(sh: Project) -> None:
    sh.starter = tuple(held_to_permissions())
    sh.suite(CLOSING.replace("{check}", 'assert False, "not yet"'))
    kept = sh.run().trial("c")["workspace_dir"]
    sh.suite(CLOSING.replace("{check}", 'assert [each.name for each in ctx.workspace.iterdir()] == ["closed.txt"]'))

    outcome = regrade(sh)

    assert kept is not None
    assert outcome.statuses == {"c": "passed"}, outcome.message("c")


TEMPLATE = """
    def check(report, ctx):
        {check}
    workspace = Workspace(mode="isolated", template_dir="template")
    suite = [Case(id="c", prompt="echo changed > a.txt", check=check)]
"""


def test_a_template_that_is_as_it_was_is_part_of_the_workspace_again(sh: Project) -> None:
    sh.write("template/a.txt", "a")
    sh.write("template/b.txt", "b")
    sh.suite(TEMPLATE.replace("{check}", "pass"))
    sh.run()
    sh.suite(TEMPLATE.replace("{check}", 'assert ctx.read("a.txt") + ctx.read("b.txt") == "changed\\nb"'))

    outcome = regrade(sh)

    assert outcome.statuses == {"c": "passed"}, outcome.message("c")


@pytest.mark.parametrize(
    "check",
    [
        'assert (ctx.workspace / "b.txt").exists()',
        'assert ctx.read("b.txt") == "b"',
        'assert ctx.run("true").ok',
        """
        try: ctx.read("b.txt")
        except BaseException: pass
        """,
    ],
)
def test_a_check_that_needs_what_was_not_recorded_is_errored_and_never_decides(sh: Project, check: str) -> None:
    sh.write("template/a.txt", "a")
    sh.write("template/b.txt", "b")
    sh.suite(TEMPLATE.replace("{check}", "pass"))
    sh.run()
    sh.write("template/b.txt", "another b")
    sh.suite(TEMPLATE.replace("{check}", check))

    outcome = regrade(sh)

    assert (outcome.code, outcome.codes) == (3, {"c": "not-recorded"}), outcome.stdout + outcome.stderr
    assert "has changed since, or is gone" in outcome.message("c")


def test_what_the_agent_changed_can_be_read_even_where_the_workspace_is_not_whole(sh: Project) -> None:
    sh.write("template/a.txt", "a")
    sh.suite(TEMPLATE.replace("{check}", "pass"))
    sh.run()
    sh.write("template/b.txt", "new")
    sh.suite(TEMPLATE.replace("{check}", 'assert ctx.read("a.txt") == "changed\\n"'))

    outcome = regrade(sh)

    assert outcome.statuses == {"c": "passed"}, outcome.message("c")


def test_trials_that_came_to_no_session_keep_their_verdict(sh: Project) -> None:
    sh.suite("""
        suite = [
            Case(id="crashed", prompt="exit 3", check=no),
            Case(id="late", prompt="sleep 60", check=no, timeout_ms=300),
            Case(id="fine", prompt="true", check=no),
        ]
    """)
    before = sh.run().codes
    sh.suite("""
        suite = [Case(id=name, prompt="true", check=ok) for name in ("crashed", "late", "fine")]
    """)

    outcome = regrade(sh)

    assert before == {"crashed": "agent-crashed", "late": "timeout", "fine": "assertion"}
    assert outcome.codes == {"crashed": "agent-crashed", "late": "timeout", "fine": None}
    assert "1 of 3 verdicts changed" in outcome.stdout


def test_cases_that_are_gone_and_cases_that_are_new_are_said(sh: Project) -> None:
    sh.suite('suite = [Case(id="a", prompt="true", check=ok), Case(id="b", prompt="true", check=ok)]')
    sh.run()
    sh.suite('suite = [Case(id="b", prompt="true", check=ok), Case(id="c", prompt="true", check=ok)]')

    outcome = regrade(sh)

    assert outcome.statuses == {"b": "passed"}
    assert "no longer in the suite, so left out: a" in outcome.stdout + outcome.stderr
    assert "not in the recorded run, so not regraded: c" in outcome.stdout + outcome.stderr


def test_another_suite_file_and_expected_failures_count(sh: Project) -> None:
    answer(sh, "pass")
    sh.run()
    sh.suite('suite = [Case(id="c", prompt="", check=no, expected_fail=True)]'.replace('""', '"x"'), "other.py")

    outcome = regrade(sh, "latest", "--suite", "other.py")

    assert (outcome.code, outcome.statuses) == (0, {"c": "expected-failed"})


def test_a_document_on_stdout_stays_one(sh: Project) -> None:
    answer(sh, "pass")
    sh.run()

    outcome = regrade(sh, "latest", "--reporter", "json")

    assert json.loads(outcome.stdout)["passed"] is True
    assert "none of 1 verdict changed" in outcome.stderr


def test_a_runner_that_is_no_longer_configured_is_known_from_the_record(sh: Project) -> None:
    answer(sh, "pass")
    sh.run()
    sh.settings("")

    outcome = regrade(sh)

    assert outcome.statuses == {"c": "passed"}, outcome.stderr


def test_an_unknown_run_is_an_error_that_says_what_to_name(sh: Project) -> None:
    outcome = regrade(sh, "nope")

    assert outcome.code == 2
    assert 'there is no run "nope"' in outcome.stderr
