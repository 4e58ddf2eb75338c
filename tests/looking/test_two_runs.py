"""Runs that stand together in `whet view`: those of two suites, of other arms, of one minute, and without figures."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import axe
import pytest
from browsing import Visit, visit
from notes_project import Viewer, run_suite, viewed
from playwright.sync_api import Browser, expect

SETTINGS = """
[runners.sh.agent]
type = "command"
command = "sh"
args = ["-c", "{prompt}"]
[runners.other.agent]
type = "command"
command = "sh"
args = ["-c", "echo no"]
"""
SUITE = """
from whet import case

@case(prompt="echo yes")
def answers(session, ctx):
    assert session.final_output == "yes"
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A project with a run of two arms, one of two others, and one of another suite with the same arms as that."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "whet.toml").write_text(SETTINGS)
    (folder / "suite.py").write_text(SUITE)
    (folder / "second.py").write_text(SUITE + SUITE.split("import case")[1].replace("answers", "answers_again"))
    names = [("suite.py", "old", "new"), ("suite.py", "here", "there"), ("second.py", "there", "here")]
    asked = [(suite, "--arm", f"{one}=runner:sh", "--arm", f"{two}=runner:other") for suite, one, two in names]
    return folder, [run_suite(folder, *each) for each in asked]


@pytest.fixture(scope="module")
def viewer(runs: tuple[Path, list[str]]) -> Iterator[Viewer]:
    """`whet view` over the project."""
    with viewed(runs[0]) as viewer:
        yield viewer


def test_tokens_that_are_guessed_are_in_no_ratio_and_no_chart(visitor: Visit, runs: tuple[Path, list[str]]) -> None:
    run = runs[1][0]
    visitor.go(f"/runs/{run}", "Run of suite")
    expect(visitor.page.get_by_role("region", name="Decision")).to_contain_text("Time of a session")
    expect(visitor.page.locator("main")).not_to_contain_text("Tokens")
    visitor.page.get_by_role("tab", name="Charts").click()
    expect(visitor.page.get_by_role("heading", name="Time of each case")).to_be_visible()
    expect(visitor.page.locator("main")).not_to_contain_text("Tokens")

    visitor.go(f"/runs/{run}/trials/answers/sh/old/1", "answers")

    expect(visitor.page.get_by_role("complementary", name="Verdict")).to_contain_text(
        re.compile("Tokens in.*guessed from the characters")
    )


def test_runs_without_an_arm_in_common_list_no_case_as_newly_failing(
    visitor: Visit, runs: tuple[Path, list[str]]
) -> None:
    first, second, _ = runs[1]
    visitor.go(f"/compare/{first}/{second}", "suite: two runs")

    expect(visitor.page.get_by_role("note")).to_contain_text("have no arm of the same name")
    expect(visitor.page.get_by_role("region", name="Newly")).to_have_count(0)


def test_the_list_of_runs_can_be_grouped_by_suite(visitor: Visit, runs: tuple[Path, list[str]]) -> None:
    first, second, other = runs[1]
    visitor.go("/", "Runs of")

    visitor.page.get_by_label("By suite").check()

    headings = visitor.page.locator("main h2")
    expect(headings).to_have_text([re.compile("^second 1 run"), re.compile("^suite 2 runs")])
    for name, members in (("second", [other]), ("suite", [second, first])):
        table = visitor.page.get_by_role("table", name=f"Runs of {name}, newest first")
        expect(table.locator("tbody tr")).to_have_text([re.compile(member) for member in members])
    for member in (first, second):
        visitor.page.get_by_label(f"Compare the run {member}").check()
    expect(visitor.page.get_by_role("link", name="Compare two")).to_have_attribute(
        "href", f"#/compare/{first}/{second}"
    )
    assert visitor.page.url.endswith("by=suite")
    assert axe.violations(visitor.page, axe.source()) == []


def test_two_suites_are_not_one_that_has_changed(visitor: Visit, runs: tuple[Path, list[str]]) -> None:
    _, first, second = runs[1]
    visitor.go(f"/compare/{first}/{second}", "Two runs")

    expect(visitor.page.get_by_role("note").last).to_contain_text("these are runs of two suites")
    expect(visitor.page.locator("main")).not_to_contain_text("has changed")


def test_runs_of_one_minute_can_be_told_apart(visitor: Visit, runs: tuple[Path, list[str]]) -> None:
    first, second, _ = runs[1]
    # The name of a run is a little older than its beginning, which may be in the next second.
    records = {run: runs[0] / ".whet/runs" / run / "results.json" for run in (first, second)}
    began = {run: json.loads(path.read_text())["started_at"][11:19] for run, path in records.items()}
    visitor.go(f"/compare/{first}/{second}", "suite: two runs")

    expect(visitor.page.get_by_label("You are here")).to_contain_text("Compared with the run of")
    expect(visitor.page.get_by_label("You are here")).to_contain_text(began[first])
    for side, run in (("Before", first), ("After", second)):
        expect(visitor.page.get_by_role("region", name=side)).to_contain_text(re.compile(f"{began[run]}.*{run}"))
    visitor.go("/history/suite", "History of suite")
    rows = visitor.page.get_by_role("table", name="Runs of the suite, newest first").get_by_role("row")
    for row, run in ((rows.nth(1), second), (rows.nth(2), first)):
        expect(row).to_contain_text(re.compile(f"{began[run]}.*{run}"))
    expect(rows.first.get_by_role("columnheader", name="Content", exact=True)).to_be_visible()
    visitor.go(f"/runs/{first}", "Run of suite")
    expect(visitor.page.get_by_label("You are here")).to_contain_text(began[first])


def test_what_differs_between_arms_and_between_runs_is_one_line_that_opens(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "whet.toml").write_text(SETTINGS)
    (tmp_path / "suite.py").write_text(SUITE)
    for version, rules in (("v1", "Say yes.\nBe brief.\n"), ("v2", "Say what you like.\n")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "SKILL.md").write_text(f"---\nname: yes\ndescription: Says yes.\n---\n{rules}")
    arms = ("--runner", "sh", "--arm", "v1=skill:v1", "--arm", "v2=skill:v2")
    first = run_suite(tmp_path, "suite.py", *arms)
    (tmp_path / "suite.py").write_text(SUITE.replace("echo yes", "echo no"))
    second = run_suite(tmp_path, "suite.py", *arms)

    with viewed(tmp_path) as viewer, visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        visitor.go(f"/runs/{first}", "Run of suite")
        line = visitor.page.locator(".decision details.differs > summary")
        expect(line).to_have_text("What differs: SKILL.md +1 \u22122")
        forest = visitor.page.get_by_role("list", name="Difference of each case")
        before = forest.bounding_box()
        line.click()
        texts = visitor.page.get_by_role("region", name="Texts that differ")
        expect(texts).to_contain_text("Say what you like.")
        expect(texts.locator(".diff-sides")).to_have_text("v1v2")
        after = forest.bounding_box()
        assert before
        assert after
        assert after["y"] == before["y"]
        visitor.go(f"/compare/{first}/{second}", "suite: two runs")
        line = visitor.page.locator("main details.differs > summary")
        expect(line).to_have_text("What differs: suite.py +1 \u22121, prompt of answers +1 \u22121")
        line.click()
        expect(visitor.page.get_by_role("region", name="Texts that differ")).to_contain_text("echo no")
        assert axe.violations(visitor.page, axe.source()) == []
