"""The pages of improve runs: what came of each, its candidates, while it runs, and in a file, for everybody."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import axe
import pytest
from browsing import CONTRAST, DESK, Visit, visit
from msgspec.structs import replace
from notes_project import Viewer, viewed
from playwright.sync_api import Browser, Page, expect

import improve_documents as documents
from whet.record.folder import lock
from whet.record.improve.document import ImproveDocument
from whet.record.improve.folder import ImproveFolder
from whet.view.improve.page import write_report

SCREENS = {"phone": 390, "laptop": 1024, "desk": 1440}
STATES = (*documents.ENDED, documents.HOSTILE, *documents.RUNNING)
# What differs enough to be checked on every screen.
SHAPES = (documents.TWO_ROUNDS, documents.OBJECTION, documents.REFUSED, documents.HOSTILE, documents.running("racing"))


def _write(project: Path, document: ImproveDocument) -> Path:
    folder = project / ".whet" / "improve" / document.id
    folder.mkdir(parents=True, exist_ok=True)
    ImproveFolder(folder).write(document)
    return folder


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project with an improve run in every state; those under way are locked, as by a process that works on them."""
    project = tmp_path_factory.mktemp("improve") / "notes"
    locks = []
    for document in STATES:
        folder = _write(project, document)
        if document in documents.RUNNING:
            locks.append(lock(folder))
    yield project
    for descriptor in locks:
        os.close(descriptor)


@pytest.fixture(scope="module")
def viewer(project: Path) -> Iterator[Viewer]:
    """`whet view` over the project."""
    with viewed(project) as viewer:
        yield viewer


@pytest.fixture
def visitor(browser: Browser, viewer: Viewer) -> Iterator[Visit]:
    """Somebody with a large screen."""
    with visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        yield visitor


def _load(visitor: Visit, address: str) -> Page:
    visitor.page.goto("about:blank")
    visitor.page.goto(f"{visitor.server.url}/#{address}")
    visitor.page.locator("main:not([aria-busy]) h1").wait_for()
    return visitor.page


def _show(visitor: Visit, document: ImproveDocument) -> Page:
    return _load(visitor, f"/improve/{document.id}")


def test_the_list_of_runs_leads_to_improve_runs_and_each_of_them_to_its_page(visitor: Visit) -> None:
    page = _load(visitor, "/")

    page.get_by_role("link", name=f"{len(STATES)} improve runs").click()
    row = page.get_by_role("row").filter(has_text=documents.TWO_ROUNDS.id)
    expect(row).to_contain_text("accepted")
    expect(row).to_contain_text("+33.4 points")
    expect(row).to_contain_text("$0.184 for each point")
    row.get_by_role("link").click()

    expect(page.get_by_role("heading", level=1)).to_contain_text("Improve release-notes")


@pytest.mark.parametrize(
    ("document", "words", "next_step"),
    [
        (documents.SUCCEEDED, "r1-1 is accepted", "whet improve skills/release-notes --resume"),
        (documents.NO_WINNER, "no winner: the skill stays as it is", "Add cases that fail"),
        (documents.UNDECIDED, "not known yet whether a candidate is better", "8 more held-out cases"),
        (documents.REFUSED, "not ready to be improved", "Write 4 cases more"),
        (documents.FAILED, "the run failed", "--resume"),
    ],
)
def test_an_outcome_says_what_came_of_it_and_what_to_do_next(
    visitor: Visit, document: ImproveDocument, words: str, next_step: str
) -> None:
    outcome = _show(visitor, document).get_by_role("region", name="Outcome")

    expect(outcome).to_contain_text(words)
    expect(outcome).to_contain_text(str(document.reason))
    expect(outcome).to_contain_text(next_step)


def test_a_decision_has_its_interval_and_the_difference_of_each_held_out_case(visitor: Visit) -> None:
    decision = _show(visitor, documents.SUCCEEDED).get_by_role("region", name="Decision of round 1")

    expect(decision).to_contain_text("+21.4 points (97 % interval +6 to +36)")
    expect(decision).to_contain_text("+2 to +41 points on other cases like these: holds")
    cases = decision.get_by_role("list", name="Difference of each held-out case")
    expect(cases.get_by_role("listitem").filter(has_text="revert")).to_contain_text("+100")


def test_a_better_version_that_was_not_accepted_says_why(visitor: Visit) -> None:
    page = _show(visitor, documents.OBJECTION)

    expect(page.get_by_role("region", name="Decision of round 1")).to_contain_text("fell from all passed to none")
    expect(page.get_by_role("region", name="Candidates")).to_contain_text("not accepted")


def test_a_candidate_shows_its_changes_and_its_diff_and_the_address_keeps_it_open(visitor: Visit) -> None:
    page = _show(visitor, documents.SUCCEEDED)
    line = page.locator("summary").filter(has_text="r1-1").first
    expect(line).to_contain_text("81 % in 36 trials")

    line.click()

    expect(page.get_by_text("Names the four groups.")).to_be_visible()
    expect(page.get_by_label("What r1-1 changes")).to_contain_text("Read CHANGELOG.md first, and group what changed")
    expect(page.get_by_label("What r1-1 changes")).to_contain_text("1 file +3")
    page.reload()
    expect(page.get_by_text("Names the four groups.")).to_be_visible()


def test_why_a_candidate_went_no_further_is_seen_without_opening_it(visitor: Visit) -> None:
    candidates = _show(visitor, documents.SUCCEEDED).get_by_role("region", name="Candidates")

    expect(candidates.get_by_role("listitem").filter(has_text="r1-4").last).to_contain_text("repeats text of a case")
    expect(candidates.get_by_role("listitem").filter(has_text="r1-5").last).to_contain_text("changed nothing")


def test_a_later_round_is_below_the_version_that_it_started_from(visitor: Visit) -> None:
    page = _show(visitor, documents.TWO_ROUNDS)

    below = page.locator(".version:has(> details > [data-name='r1-1'])")
    expect(below.get_by_role("list", name="Candidates of round 2")).to_contain_text("r2-1")
    expect(page.get_by_role("region", name="Sealed cases")).to_contain_text("+28 points on sealed cases")


def test_a_run_under_way_grows_while_somebody_looks_and_what_they_opened_stays_open(
    browser: Browser, viewer: Viewer, project: Path
) -> None:
    begun = replace(documents.running("racing"), id="20261119-235900-live-d6e7")
    descriptor = lock(_write(project, begun))
    try:
        with visit(browser, viewer) as visitor:  # type: ignore[arg-type]
            page = _show(visitor, begun)
            expect(page.get_by_role("region", name="Outcome")).to_contain_text("race of round 1 under way")
            page.locator("summary").filter(has_text="r1-1").first.click()
            expect(page.get_by_text("Names the four groups.")).to_be_visible()

            _write(project, replace(documents.running("confirming"), id=begun.id))

            expect(page.get_by_role("region", name="Outcome")).to_contain_text("confirm of round 1 under way")
            expect(page.get_by_text("Names the four groups.")).to_be_visible()
            expect(page.locator("summary").filter(has_text="r1-1").first).to_be_focused()

            _write(project, replace(documents.SUCCEEDED, id=begun.id))
            os.close(descriptor)

            expect(page.get_by_role("region", name="Outcome")).to_contain_text("r1-1 is accepted")
    finally:
        (project / ".whet" / "improve" / begun.id / "improve.json").unlink()


def test_a_run_that_was_killed_is_not_said_to_run(browser: Browser, tmp_path: Path) -> None:
    killed = documents.running("racing")
    _write(tmp_path, killed)

    with viewed(tmp_path, killed.id) as viewer, visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        page = _show(visitor, killed)

        expect(page.get_by_role("heading", level=1)).to_contain_text("not ended")
        expect(page.get_by_role("region", name="Outcome")).to_contain_text("killed in race of round 1")
        expect(page.get_by_label("Command")).to_have_text(f"whet improve --resume {killed.id}")


def test_a_record_that_cannot_be_read_says_so_and_hides_no_other(browser: Browser, tmp_path: Path) -> None:
    _write(tmp_path, documents.SUCCEEDED)
    broken = _write(tmp_path, documents.NO_WINNER)
    (broken / "improve.json").write_text("{}")

    with viewed(tmp_path) as viewer, visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        page = _load(visitor, "/improve")

        expect(page.get_by_role("row").filter(has_text=broken.name)).to_contain_text("cannot be read")
        expect(page.get_by_role("row").filter(has_text=documents.SUCCEEDED.id)).to_contain_text("accepted")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
def test_every_page_fits_every_screen_and_keeps_nobody_out(
    browser: Browser, viewer: Viewer, scheme: str, screen: str
) -> None:
    script, wrong = axe.source(), {}
    size = {"width": SCREENS[screen], "height": 900}
    with visit(browser, viewer, size, scheme) as visitor:  # type: ignore[arg-type]
        for name in ("", *(f"/{document.id}?open=r1-1" for document in SHAPES)):
            page = _load(visitor, f"/improve{name}")
            problems = axe.violations(page, script)
            problems += page.evaluate(CONTRAST)
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                problems.append("it is wider than the screen")
            if problems:
                wrong[name] = problems

    assert wrong == {}


def test_report_html_is_the_page_in_one_file(browser: Browser, tmp_path: Path) -> None:
    file = write_report(documents.TWO_ROUNDS, tmp_path)

    with visit(browser, Viewer(tmp_path.as_uri(), None), DESK) as visitor:  # type: ignore[arg-type]
        visitor.page.goto(file.as_uri())

        expect(visitor.page.get_by_role("region", name="Outcome")).to_contain_text("r2-1 is accepted")
        visitor.page.locator("summary").filter(has_text="r2-1").first.click()
        expect(visitor.page.get_by_label("What r2-1 changes")).to_contain_text("Read CHANGELOG.md first")
        assert axe.violations(visitor.page, axe.source()) == []
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_texts_of_others_are_never_markup(browser: Browser, visitor: Visit, tmp_path: Path) -> None:
    page = _load(visitor, f"/improve/{documents.HOSTILE.id}?open=r1-1")
    _expect_text(page)

    file = write_report(documents.HOSTILE, tmp_path)
    with visit(browser, Viewer(tmp_path.as_uri(), None)) as reader:  # type: ignore[arg-type]
        reader.page.goto(file.as_uri())
        _expect_text(reader.page)


def _expect_text(page: Page) -> None:
    expect(page.get_by_role("heading", level=1)).to_contain_text("<img src=x onerror=alert(1)>")
    assert page.locator("main img, main a[href^=http]").count() == 0
