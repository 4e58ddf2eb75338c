"""The search over the sessions of a run in `whet view`."""

from __future__ import annotations

import re

import axe
import pytest
from browsing import Visit
from notes_project import Project
from playwright.sync_api import expect


def test_a_search_counts_sessions_by_arm_and_leads_to_the_event(visitor: Visit, project: Project) -> None:
    visitor.go(f"/runs/{project.decided}", "Run of suite")
    visitor.page.get_by_role("link", name="in its sessions").click()
    visitor.page.get_by_role("searchbox").fill("tool:*")
    visitor.page.get_by_role("button", name="Search").click()

    arms = visitor.page.get_by_role("table", name="Sessions by arm")
    expect(arms.get_by_role("row")).to_have_count(3)
    expect(visitor.page).to_have_url(f"{visitor.page.url.partition('#')[0]}#/runs/{project.decided}/search?q=tool%3A*")
    visitor.page.get_by_role("table", name="Trials in which it was found").get_by_role("link").first.click()
    expect(visitor.page).to_have_url(re.compile("/trials/.*event="))


def test_a_mistake_in_a_query_is_said_and_nothing_breaks(visitor: Visit, project: Project) -> None:
    visitor.go(f"/runs/{project.decided}/search?q=toll%3Ax", "Search the sessions")

    expect(visitor.page.locator("main")).to_contain_text('there is no "toll:" to look in')


@pytest.mark.parametrize("width", [390, 1024, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_use_it(visitor: Visit, project: Project, width: int, scheme: str) -> None:
    visitor.page.set_viewport_size({"width": width, "height": 900})
    visitor.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    visitor.go(f"/runs/{project.decided}/search?q=the", "Search the sessions")
    expect(visitor.page.get_by_role("table", name="Sessions by arm")).to_be_visible()

    assert visitor.page.evaluate("document.documentElement.scrollWidth") <= width
    assert axe.violations(visitor.page, axe.source()) == []


def test_attacks_in_sessions_stay_text(visitor: Visit, project: Project) -> None:
    visitor.go(f"/runs/{project.hostile}/search?q=text%3A%22%3C%22", "Search the sessions")

    expect(visitor.page.get_by_role("table", name="Sessions by arm")).to_be_visible()
    assert visitor.page.locator("main script, main img").count() == 0
