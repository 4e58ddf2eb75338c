"""The page of a case: its checks by arms, why trials failed, and one click to a pass beside a failure."""

from __future__ import annotations

from browsing import Visit
from notes_project import Project
from playwright.sync_api import expect


def test_a_case_says_how_often_each_check_held_in_each_arm_and_why_the_others_failed(
    visitor: Visit, project: Project
) -> None:
    visitor.go(f"/runs/{project.decided}/cases/dated", "dated")

    expect(visitor.page.get_by_role("region", name="What was asked")).to_contain_text("Write dated release notes.")
    cells = visitor.page.get_by_role("table", name="How often each check held").get_by_role("cell")
    expect(cells).to_have_text(["✕ 0 of 3", "✓ 3 of 3"])
    reasons = visitor.page.get_by_role("region", name="Why trials did not pass").get_by_role("listitem")
    # Three trials with one reason are one line.
    expect(reasons).to_have_count(1)
    expect(reasons).to_contain_text("3 of 3")
    expect(reasons).to_contain_text('assert "## 1.4.0" in ctx.read("CHANGELOG.md")')
    typical = visitor.page.get_by_role("region", name="A typical trial: new on careful")
    expect(typical).to_contain_text("CHANGELOG.md created")


def test_one_click_puts_a_trial_that_passed_beside_one_that_failed(visitor: Visit, project: Project) -> None:
    visitor.go(f"/runs/{project.decided}/cases/dated", "dated")

    visitor.page.get_by_role("link", name="Compare a trial that passed with one that failed").click()

    expect(visitor.page.get_by_role("region", name="The first trial")).to_contain_text("failed")
    expect(visitor.page.get_by_role("region", name="The second trial")).to_contain_text("passed")


def test_a_case_in_which_all_trials_ended_alike_offers_none_beside_another(visitor: Visit, project: Project) -> None:
    visitor.go(f"/runs/{project.decided}/cases/easy", "easy")

    expect(visitor.page.get_by_role("table", name="How often each check held")).to_be_visible()
    expect(visitor.page.get_by_role("link", name="Compare a trial that passed")).to_have_count(0)
    expect(visitor.page.get_by_role("region", name="Why trials did not pass")).to_have_count(0)
