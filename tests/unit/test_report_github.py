"""GitHub gets annotations that stand beside the code, and a job summary."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from reporting import Pipe, Stage, all_pass, by_case, end, errored, failed, make_plan

from whet.model.grade import FailureClass, Location
from whet.report.files.github import SUMMARY_BYTES, GithubReporter


def lines(plan, outcome=all_pass, *, stdout=None, **environ: str) -> list[str]:
    stage = Stage(environ=environ, stdout=stdout or Pipe())
    end(GithubReporter(stage.context), plan, outcome)
    return stage.printed.splitlines()


def test_a_failed_execution_is_an_error_beside_its_check():
    printed = lines(make_plan(["a", "b"]), by_case({"a": failed}), GITHUB_WORKSPACE="/project")

    expected = (
        "::error file=bench/core.py,line=41,title=a > claude::Wrong answer%0Aexpected 3, got 4%0Aat bench/core.py:41"
        "%0Aartifacts: .whet/runs/20250102-030405-abcd/trials/a/claude/default/1"
    )
    assert printed == [expected]


def test_an_errored_execution_is_a_warning():
    printed = lines(make_plan(["a"]), errored)

    assert printed[0].startswith("::warning title=a > claude::Provider%0Athe provider answered 529: overloaded%0Acause")


def test_what_has_no_line_of_its_own_stands_beside_its_case():
    plan = make_plan(["a"], location=Location(file="/project/bench/core.py", line=12))
    printed = lines(plan, errored, GITHUB_WORKSPACE="/project")

    assert printed[0].startswith("::warning file=bench/core.py,line=12,title=a > claude::Provider%0A")


def test_a_failed_check_stands_at_its_own_line_and_not_at_its_case():
    plan = make_plan(["a"], location=Location(file="/project/bench/core.py", line=12))
    printed = lines(plan, failed, GITHUB_WORKSPACE="/project")

    assert printed[0].startswith("::error file=bench/core.py,line=41,")


def test_a_file_outside_the_checkout_keeps_its_path():
    printed = lines(make_plan(["a"]), failed, GITHUB_WORKSPACE="/elsewhere")

    assert "file=/project/bench/core.py,line=41," in printed[0]


def test_a_relative_file_is_found_from_the_current_folder():
    def outcome(key):
        result = failed(key)
        return replace(result, failure=replace(result.failure, location=Location(file="../project/x/y.py", line=3)))

    printed = lines(make_plan(["a"]), outcome, GITHUB_WORKSPACE="/project")

    assert printed[0].startswith("::error file=x/y.py,line=3,")


def test_several_trials_of_one_execution_are_one_annotation():
    printed = lines(make_plan(["a"], trials=5), lambda key: failed(key) if key.number > 2 else all_pass(key))

    assert len(printed) == 1
    assert "%0A3 of 5 trials; the first of them:%0A" in printed[0]


def test_no_more_than_github_shows_and_one_that_counts_the_rest(tmp_path):
    cases = [f"case-{number}" for number in range(40)]
    outcome = by_case({f"case-{number}": errored for number in range(12)}, failed)
    printed = lines(make_plan(cases), outcome, GITHUB_STEP_SUMMARY=str(tmp_path / "summary.md"))

    assert sum(line.startswith("::error ") for line in printed) == 10
    assert sum(line.startswith("::warning ") for line in printed) == 10
    assert printed[-1] == "::notice title=whet::18 more failed and 2 more errored: see the job summary"


def test_where_there_is_no_job_summary_the_record_is_named():
    printed = lines(make_plan([f"case-{number}" for number in range(11)]), failed)

    assert printed[-1] == "::notice title=whet::1 more failed: see .whet/runs/20250102-030405-abcd"


@pytest.mark.parametrize("evil", ["::error::x", "a,title=b::c", "100%0A::warning::x", "a\n::add-mask::b", "a\r\n::x::"])
def test_hostile_words_cannot_become_a_command(evil):
    outcome = by_case({}, lambda key: failed(key, evil, failure_class=FailureClass(id=evil)))
    printed = lines(make_plan([evil], runners=[evil]), outcome)

    assert len(printed) == 1
    head, properties, *_ = printed[0].split("::", 2)[1].split(" ", 1)
    assert head == "error"
    assert [each.split("=")[0] for each in properties.split(",")] == ["file", "line", "title"]


def test_a_good_run_has_no_annotations():
    assert lines(make_plan()) == []


def test_a_log_that_cannot_show_a_sign_does_not_break_the_reporter():
    assert len(lines(make_plan(["日本語"]), failed, stdout=Pipe("ascii"))) == 1


def test_the_summary_is_appended_to_what_other_steps_wrote(tmp_path):
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")

    lines(make_plan(["a"]), failed, GITHUB_STEP_SUMMARY=str(summary))

    assert summary.read_text().startswith("before\n# core\n\n0 of 1 trial went as expected; 1 failed")
    assert "### Wrong answer · 1 trial" in summary.read_text()


def test_the_summary_says_where_the_pages_of_the_run_are(tmp_path):
    summary = tmp_path / "summary.md"
    environ = {"GITHUB_SERVER_URL": "https://github.example", "GITHUB_REPOSITORY": "a/b", "GITHUB_RUN_ID": "7"}
    stage = Stage(environ={"GITHUB_STEP_SUMMARY": str(summary), **environ})
    context = replace(stage.context, files={"html": stage.cwd / "out`/page.html"})

    end(GithubReporter(context), make_plan(["a"]), all_pass)
    end(GithubReporter(replace(context, environ={"GITHUB_STEP_SUMMARY": str(summary)})), make_plan(["a"]), all_pass)

    text = summary.read_text()
    assert (
        "``out`/page.html``, in the [artifacts of this job](https://github.example/a/b/actions/runs/7#artifacts)"
        in text
    )
    assert text.count("Pages of this run: ``out`/page.html``\n") == 1


def test_the_summary_stays_below_githubs_limit(tmp_path):
    summary = tmp_path / "summary.md"
    cases = [f"{number:05d}" + "&" * 120 for number in range(600)]
    plan = make_plan(cases, runners=[f"runner-{number}" for number in range(8)])

    message = "x" * 1_000_000 + "\n" * 50
    lines(plan, lambda key: failed(key, message), GITHUB_STEP_SUMMARY=str(summary))

    assert SUMMARY_BYTES / 2 < summary.stat().st_size <= SUMMARY_BYTES
    assert summary.read_text().endswith(
        "The summary is cut here, at GitHub's limit. The record of the run has all of it.\n"
    )
