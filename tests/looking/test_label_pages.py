"""The queue of labels in a real browser: by keyboard, by everybody, and blind."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import axe
import pytest
from browsing import visit
from notes_project import HOSTILE, Viewer, viewed
from playwright.sync_api import Browser, expect

from whet.record.judging.labels_file import read_labels

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from judged_run import JudgedTrial, make_judged_run

HIDDEN = ("hidden-arm", "other-arm", "secret-runner", "a-judge", "Because.")
STATEMENT = "It names Jupiter."


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a judged run; one of its texts is an attack."""
    trials = [
        JudgedTrial(case=case, arm=arm, number=1, answer=f"Jupiter, {case}. {HOSTILE}", ratings={STATEMENT: [rating]})
        for case, rating in (("a", 9), ("b", 2))
        for arm in ("hidden-arm", "other-arm")
    ]
    make_judged_run(tmp_path / ".whet" / "runs" / "one", tmp_path / "s.json", trials, runner="secret-runner")
    return tmp_path


@pytest.fixture
def queue(project: Path) -> Iterator[Viewer]:
    with viewed(project, "--by", "ada", command=("judge", "label", "one")) as viewer:
        yield viewer


def test_a_person_labels_by_keyboard_and_sees_the_judge_only_afterwards(
    browser: Browser, queue: Viewer, project: Path
) -> None:
    with visit(browser, queue) as visitor:  # type: ignore[arg-type]
        page = visitor.page
        bodies: list[str] = []
        page.on("response", lambda response: bodies.append(response.text()) if "/api/" in response.url else None)
        visitor.go("/labels", "Is this true?")
        statement = page.locator(".statement")
        expect(statement).to_have_text(STATEMENT)
        assert [word for word in HIDDEN if word in "".join([*bodies, page.content()])] == []

        page.keyboard.press("t")
        expect(page.get_by_text("1 of 4 labelled")).to_be_visible()
        page.keyboard.press("b")
        expect(page.get_by_text("0 of 4 labelled")).to_be_visible()
        page.keyboard.press("f")
        page.get_by_role("button", name="What did the judge say?").click()
        expect(page.get_by_text("Because.")).to_be_visible()
        for key in ("u", "s", "t", "f"):
            before = page.locator(".label-card").get_attribute("data-item")
            page.keyboard.press(key)
            expect(page.locator(f'[data-item="{before}"]')).to_have_count(0)
        expect(page.get_by_text("All 4 statements are labelled.")).to_be_visible()

        assert page.locator("main script, main img").count() == 0

    labels = [(line.label.by, line.label.label) for line in read_labels(project / "labels.jsonl")]
    assert labels == [("ada", "false"), ("ada", "unsure"), ("ada", "true"), ("ada", "false")]


def test_everybody_can_use_it(browser: Browser, queue: Viewer) -> None:
    with visit(browser, queue) as visitor:  # type: ignore[arg-type]
        for width in (390, 1024, 1440):
            for scheme in ("light", "dark"):
                visitor.page.set_viewport_size({"width": width, "height": 900})
                visitor.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
                visitor.go("/labels", "Is this true?")
                expect(visitor.page.locator(".statement")).to_be_visible()

                assert visitor.page.evaluate("document.documentElement.scrollWidth") <= width
                assert axe.violations(visitor.page, axe.source()) == []
