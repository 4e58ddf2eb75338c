"""The pages of runs in `whet view`: what was decided, the table of cases, comparisons and history."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from browsing import DESK, PHONE, Visit, visit
from notes_project import Project, Viewer, make_scripted, run_suite, viewed
from playwright.sync_api import Browser, Locator, expect


def _rows(visitor: Visit) -> Locator:
    return visitor.page.locator("table.cases tbody tr")


def test_the_runs_of_the_project_are_listed_and_two_can_be_compared(visitor: Visit, project: Project) -> None:
    visitor.go("/", "Runs of notes")
    rows = visitor.page.get_by_role("table", name="Runs, newest first").get_by_role("row")
    expect(rows).to_have_count(5)
    expect(rows.filter(has_text=project.decided)).to_contain_text(re.compile("better.*new.*against.*old"))
    expect(rows.filter(has_text=project.decided)).to_contain_text(re.compile(r"100.%9 of 9of new"))
    visitor.page.get_by_label("Suite", exact=True).select_option("hostile")
    expect(rows).to_have_count(2)
    visitor.page.get_by_label("Suite", exact=True).select_option("")
    visitor.page.get_by_label("Verdict", exact=True).select_option("better")
    expect(rows).to_have_count(2)
    visitor.page.get_by_label("Verdict", exact=True).select_option("")
    visitor.page.get_by_label(f"Compare the run {project.before}").check()
    visitor.page.get_by_label(f"Compare the run {project.after}").check()
    visitor.page.get_by_role("link", name="Compare two").click()

    expect(visitor.page.get_by_role("heading", name="suite: two runs")).to_be_focused()
    passing = visitor.page.get_by_role("region", name="Newly passing")
    expect(passing).to_contain_text(re.compile("dated.*skilled"))
    expect(visitor.page.get_by_role("region", name="Newly failing")).to_contain_text("None.")
    visitor.page.get_by_role("link", name="dated: before beside after").click()
    expect(visitor.page.get_by_role("region", name="The first trial")).to_contain_text("failed")
    expect(visitor.page.get_by_role("region", name="The second trial")).to_contain_text("passed")


def test_a_run_says_first_what_was_decided_and_shows_the_difference_of_every_case(
    visitor: Visit, project: Project
) -> None:
    visitor.go(f"/runs/{project.decided}", "Run of suite")

    decision = visitor.page.get_by_role("region", name="Decision")
    expect(decision.get_by_role("heading")).to_have_text(["new is better than old", "What went wrong"])
    expect(decision).to_contain_text(re.compile(r"old 33.3.%, new 100.%"))
    # Who asks why comes before who asks how sure: the statistics are folded.
    expect(decision.get_by_role("table")).to_have_count(0)
    decision.get_by_text("Statistics: ").click()
    expect(decision.get_by_role("row", name="As expected")).to_be_visible()
    expect(decision).to_contain_text(re.compile(r"points on these 3 cases 95\s%"))
    expect(decision).to_contain_text(
        re.compile("new passes .* points more often .* On these cases the true gain is between")
    )
    expect(decision).to_contain_text(re.compile("On other cases like these: .* more cases narrow this most"))
    expect(decision).to_contain_text("The arms took turns; first look.")
    lines = decision.get_by_role("list", name="Difference of each case").get_by_role("listitem")
    expect(lines.first).to_contain_text("All cases")
    assert [line.split("\n")[0] for line in lines.all_inner_texts()[1:]] == ["dated", "skilled", "easy"]
    decision.get_by_role("link", name="skilled").click()
    expect(visitor.page.get_by_role("heading", name="skilled", level=1)).to_be_focused()


def test_a_run_without_arms_shows_its_rate_with_the_interval_and_why_it_failed(
    visitor: Visit, project: Project
) -> None:
    visitor.go(f"/runs/{project.before}", "Run of suite")

    rate = visitor.page.get_by_role("region", name="Rate")
    expect(rate).to_contain_text("1 of 3 trials went as expected")
    expect(rate).to_contain_text("95 % interval on these cases 6.1")
    reasons = visitor.page.get_by_role("region", name="What went wrong")
    expect(reasons).to_contain_text('expected skill "changelog"')
    reasons.get_by_role("button", name='assert "## 1.4.0"').click()
    expect(_rows(visitor)).to_have_count(1)
    expect(_rows(visitor)).to_contain_text("dated")


def test_filters_and_order_are_kept_in_the_address(visitor: Visit, project: Project) -> None:
    visitor.go(f"/runs/{project.decided}", "Run of suite")
    expect(_rows(visitor)).to_have_count(3)
    visitor.page.get_by_label("Lines", exact=True).select_option("arms")
    expect(_rows(visitor)).to_have_count(6)
    visitor.page.get_by_label("Tag", exact=True).select_option("notes")
    visitor.page.get_by_label("Arm", exact=True).select_option("old")
    visitor.page.get_by_role("button", name="Case").click()
    visitor.page.get_by_role("button", name="Case").click()
    expect(_rows(visitor)).to_have_count(2)
    address = visitor.page.url

    visitor.page.goto("about:blank")
    visitor.page.goto(address)

    expect(_rows(visitor)).to_have_text([re.compile("easy.*old"), re.compile("dated.*old")])
    expect(visitor.page.get_by_role("columnheader", name="Case")).to_have_attribute("aria-sort", "descending")
    visitor.page.get_by_label("Search cases").fill("nothing like it")
    expect(visitor.page.get_by_text("Nothing fits these filters.")).to_be_visible()


def test_each_case_is_one_row_with_its_arms_beside_each_other(visitor: Visit, project: Project) -> None:
    visitor.go(f"/runs/{project.decided}", "Run of suite")

    expect(visitor.page.locator(".headline")).to_have_text(re.compile("Run of suite.*better"))
    expect(_rows(visitor).nth(1)).to_contain_text(re.compile(r"dated.*0/3.*3/3.*\+100"))
    moved = visitor.page.get_by_role("group", name="What moved")
    moved.get_by_role("button", name="Better 2").click()
    expect(_rows(visitor)).to_have_count(2)
    assert "change=better" in visitor.page.url
    moved.get_by_role("button", name="Worse 0").click()
    expect(visitor.page.get_by_text("Nothing fits these filters.")).to_be_visible()
    moved.get_by_role("button", name="Different 2").click()
    _rows(visitor).first.get_by_role("link", name=re.compile("^old: *0.3 *; open trial 1, the first that")).click()
    expect(visitor.page.get_by_role("heading", name=re.compile("dated"), level=1)).to_be_focused()


def test_what_went_wrong_counts_arms_and_is_a_filter_that_can_be_taken_away(visitor: Visit, project: Project) -> None:
    visitor.go(f"/runs/{project.decided}", "Run of suite")

    reasons = visitor.page.get_by_role("region", name="What went wrong").get_by_role("listitem")
    expect(reasons.filter(has_text="## 1.4.0")).to_contain_text(re.compile("old.3 new.0"))
    reasons.get_by_role("button", name='assert "## 1.4.0"').click()
    expect(_rows(visitor)).to_have_count(1)
    expect(visitor.page.locator(".chip .cross")).to_be_in_viewport()
    visitor.page.get_by_role("button", name=re.compile("Remove the filter")).click()
    expect(_rows(visitor)).to_have_count(3)


def test_an_interrupted_run_has_its_decision_in_the_list_as_on_its_page(
    browser: Browser, project: Project, tmp_path: Path
) -> None:
    run = tmp_path / ".whet/runs" / project.decided
    shutil.copytree(project.folder / ".whet/runs" / project.decided, run)
    results = json.loads((run / "results.json").read_text())
    (run / "results.json").write_text(json.dumps(results | {"interrupted": True}))

    with viewed(tmp_path) as viewer, visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        visitor.go("/", f"Runs of {tmp_path.name}")
        row = visitor.page.get_by_role("table", name="Runs, newest first").get_by_role("row").nth(1)
        expect(row).to_contain_text(re.compile(r"interrupted.*better.*\+.*new.*against.*old"))
        row.get_by_role("link").click()
        expect(visitor.page.locator(".headline")).to_contain_text(re.compile("interrupted.*better"))


def test_the_next_case_is_the_next_line_of_the_table_that_you_came_from(visitor: Visit, project: Project) -> None:
    visitor.go(f"/runs/{project.decided}?sort=case&down=1", "Run of suite")
    _rows(visitor).get_by_role("link", name="skilled", exact=True).click()
    cases = visitor.page.get_by_role("navigation", name="Cases")
    expect(cases).to_have_text("1 of 3Next case →")
    cases.get_by_role("link", name="Next case").click()
    expect(visitor.page.get_by_role("heading", name="easy", level=1)).to_be_focused()
    cases.get_by_role("link", name="Next case").click()

    expect(visitor.page.get_by_role("heading", name="dated", level=1)).to_be_focused()
    trials = visitor.page.get_by_role("list", name="Trials of old on hasty")
    expect(trials.get_by_text("failed").first).to_have_attribute("title", re.compile("baseline may fail"))
    expect(visitor.page.get_by_text("as expected")).to_have_count(0)


def test_every_trial_can_be_a_line_of_its_own(visitor: Visit, project: Project) -> None:
    visitor.go(f"/runs/{project.decided}?by=trials", "Run of suite")

    expect(_rows(visitor)).to_have_count(18)
    visitor.page.get_by_label("Status", exact=True).select_option("expected-failed")
    expect(_rows(visitor)).to_have_count(6)
    _rows(visitor).first.get_by_role("link").click()
    expect(visitor.page.get_by_role("heading", name=re.compile(r"dated.*failed$"), level=1)).to_be_visible()


def test_a_case_with_expected_fail_fails_as_expected(browser: Browser, project: Project, tmp_path: Path) -> None:
    for name in ("agent.py", "whet.toml"):
        shutil.copy(project.folder / name, tmp_path)
    shutil.copytree(project.folder / "template", tmp_path / "template")
    suite = (project.folder / "suite.py").read_text()
    (tmp_path / "suite.py").write_text(suite.replace('id="dated",', 'id="dated", expected_fail=True,'))
    run = run_suite(tmp_path, "suite.py", "--runner", "hasty", "--case", "dated")

    with viewed(tmp_path) as viewer, visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        visitor.go(f"/runs/{run}/cases/dated", "dated")

        trials = visitor.page.get_by_role("list", name="Trials of hasty")
        expect(trials.get_by_text("failed, as expected")).to_have_attribute("title", re.compile("expected_fail"))


def test_the_keyboard_walks_the_lines_filters_and_opens_the_first_failure(visitor: Visit, project: Project) -> None:
    visitor.go(f"/runs/{project.before}", "Run of suite")
    visitor.page.keyboard.press("j")
    visitor.page.keyboard.press("j")
    expect(_rows(visitor).nth(1).get_by_role("link").first).to_be_focused()
    visitor.page.keyboard.press("k")
    expect(_rows(visitor).first.get_by_role("link").first).to_be_focused()
    visitor.page.keyboard.press("f")
    expect(_rows(visitor)).to_have_count(2)
    visitor.page.keyboard.press("/")
    expect(visitor.page.get_by_label("Search cases")).to_be_focused()
    visitor.page.keyboard.press("Escape")
    visitor.page.keyboard.press("?")
    expect(visitor.page.get_by_role("dialog", name="Keyboard")).to_contain_text("First trial that is not as expected")
    visitor.page.keyboard.press("Escape")
    visitor.page.keyboard.press("n")

    expect(visitor.page.get_by_role("heading", name=re.compile("dated"), level=1)).to_be_focused()


def test_charts_show_what_success_takes(visitor: Visit, project: Project) -> None:
    visitor.go(f"/runs/{project.decided}", "Run of suite")
    visitor.page.get_by_role("tab", name="Charts").click()

    chart = visitor.page.get_by_role("img", name=re.compile("old: 33.3"))
    expect(chart).to_be_visible()
    expect(visitor.page.get_by_role("list", name="Tokens of each case").get_by_role("listitem")).to_have_count(3)
    assert visitor.page.url.endswith("show=charts")


def test_two_trials_of_a_case_stand_side_by_side_from_where_they_differ(visitor: Visit, project: Project) -> None:
    visitor.go(f"/runs/{project.decided}/cases/dated", "dated")
    visitor.page.get_by_label("Choose old on hasty, trial 1").check()
    visitor.page.get_by_label("Choose new on careful, trial 2").check()
    visitor.page.get_by_role("link", name="Side by side").click()

    expect(visitor.page.get_by_role("heading", name="dated: two trials side by side")).to_be_visible()
    told = "Both begin with the same 4 steps, and differ from here on. 5 later steps are the same."
    expect(visitor.page.get_by_role("note")).to_have_text(told)
    expect(visitor.page.get_by_role("list", name="The second session")).to_contain_text("Skill")
    visitor.page.get_by_text("The 5 steps that are the same").click()
    for name in ("The first session", "The second session"):
        again = visitor.page.get_by_role("list", name=name).last.get_by_role("listitem").first
        expect(again).to_contain_text("git describe")
    visitor.page.get_by_role("tab", name="Checks").click()
    expect(visitor.page.get_by_role("tabpanel")).to_contain_text('assert "## 1.4.0"')


def _beside(visitor: Visit, runs: list[str]) -> None:
    trials = "/".join(f"{run}/played/player/default/1" for run in runs)
    visitor.go(f"/beside/{trials}", "played: two trials side by side")


def test_two_sessions_stand_beside_each_other_again_after_each_difference(browser: Browser, tmp_path: Path) -> None:
    def steps(*commands: str) -> list[dict[str, object]]:
        return [{"run": f"echo {word}"} for word in commands] + [{"answer": "Done."}]

    runs = make_scripted(
        tmp_path,
        steps("a", "only", "b", "left", "c", "d", "e"),
        steps("a", "b", "right", "more", "c", "d", "e", "late"),
    )

    with viewed(tmp_path) as viewer, visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        _beside(visitor, runs)

        told = "Both begin with the same 2 steps, and differ from here on. 5 later steps are the same."
        expect(visitor.page.get_by_role("note")).to_have_text(told)
        rows = visitor.page.locator("[role=tabpanel] .beside")
        expect(rows).to_contain_text(
            [
                re.compile("only.*No step here", re.DOTALL),
                re.compile("echo b.*echo b", re.DOTALL),
                re.compile("left.*right.*more", re.DOTALL),
                re.compile("No step here.*late", re.DOTALL),
                re.compile("Done.*Done", re.DOTALL),
            ]
        )
        visitor.page.get_by_text("The 3 steps that are the same").click()
        expect(visitor.page.locator("details.same .beside .step")).to_have_count(6)
        expect(visitor.page.get_by_role("region", name="The second trial")).to_contain_text(runs[1])


def test_of_two_long_sessions_the_first_steps_stand_beside_each_other(browser: Browser, tmp_path: Path) -> None:
    def steps(name: str) -> list[dict[str, object]]:
        said = [f"same {number}" if number % 10 else f"{name} {number}" for number in range(5000)]
        return [*({"say": text, "phase": "commentary"} for text in said), {"answer": "Done."}]

    runs = make_scripted(tmp_path, steps("left"), steps("right"))

    with viewed(tmp_path) as viewer, visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        _beside(visitor, runs)

        expect(visitor.page.get_by_text("The 9 steps that are the same").first).to_be_visible()
        expect(visitor.page.get_by_text(re.compile("and [0-9,]+ more steps, on the page of the trial"))).to_have_count(
            2
        )
        assert visitor.page.locator(".step").count() <= 2 * 400


def test_on_a_phone_each_of_two_trials_says_which_it_is(browser: Browser, viewer: Viewer, project: Project) -> None:
    one, other = f"{project.decided}/dated/hasty/old/1", f"{project.decided}/dated/careful/new/1"

    with visit(browser, viewer, PHONE) as visitor:  # type: ignore[arg-type]
        visitor.go(f"/beside/{one}/{other}", "dated: two trials side by side")

        shown = visitor.page.locator(".which:visible")
        expect(shown).to_have_text(["old · hasty · trial 1", "new · careful · trial 1"])
        visitor.page.set_viewport_size(DESK)  # type: ignore[arg-type]
        expect(shown).to_have_count(0)


def test_history_shows_the_runs_of_a_suite_and_leads_to_them(visitor: Visit, project: Project) -> None:
    visitor.go("/history/suite", "History of suite")

    expect(visitor.page.locator(".history svg a")).to_have_count(3)
    table = visitor.page.get_by_role("table", name="Runs of the suite, newest first")
    expect(table.get_by_role("row")).to_have_count(4)
    expect(visitor.page.get_by_text("or, where the content is the same, than all runs on it before")).to_be_visible()
    visitor.page.locator(".history svg a").first.focus()
    visitor.page.keyboard.press("Enter")
    expect(visitor.page.get_by_role("region", name="Rate")).to_contain_text("1 of 3")


def test_what_does_not_exist_is_said(visitor: Visit, project: Project) -> None:
    for address, reason in {
        "/runs/nothing": 'there is no run "nothing"',
        "/elsewhere": "There is no such view.",
        "/runs/%": "There is no such view.",
        f"/runs/{project.before}/cases/nothing": "nothing",
        f"/runs/{project.before}/trials/dated/hasty/default/9": "there is no such trial",
        f"/compare/{project.before}/nothing": 'there is no run "nothing"',
    }.items():
        visitor.go(address, "Not found")
        expect(visitor.page.get_by_role("alert")).to_contain_text(reason)


def test_a_run_says_what_to_type_for_one_file_of_it(visitor: Visit, project: Project) -> None:
    visitor.go(f"/runs/{project.before}", "Run of suite")

    visitor.page.locator("summary", has_text="Export").click()

    told = visitor.page.get_by_role("group", name="Command")
    expect(told).to_have_text(re.compile(rf"^whet report \S*{project.before} --html {project.before}\.html$"))
    assert visitor.page.get_by_role("button", name="Copy the command: All of it in one file").is_visible()
