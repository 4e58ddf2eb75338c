"""The cases of a suite over its runs in `whet view`: what changed with which content."""

from __future__ import annotations

import re
from collections.abc import Iterator

import axe
import pytest
from browsing import Visit
from notes_project import Viewer, run_suite, viewed
from playwright.sync_api import expect

SETTINGS = """
[runners.sh.agent]
type = "command"
command = "sh"
args = ["./agent.sh"]
"""
SUITE = """
from whet import Case

def answers(session, ctx):
    assert session.final_output == "yes"

suite = [Case(id=name, prompt=name, check=answers) for name in ("easy", "links")]
"""
RIGHT, WRONG = "echo yes\n", 'read p; test "$p" = links && echo no || echo yes\n'


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewer]:
    """`whet view` over a project with a case that got worse with the second content and better with the third."""
    folder = tmp_path_factory.mktemp("grid")
    (folder / "whet.toml").write_text(SETTINGS)
    (folder / "suite.py").write_text(SUITE)
    for agent in (RIGHT, WRONG, f"{RIGHT}# again\n"):
        (folder / "agent.sh").write_text(agent)
        run_suite(folder, "suite.py", "--trials", "6")
    with viewed(folder) as viewer:
        yield viewer


def test_a_case_that_got_worse_comes_first_and_is_marked_where_it_did(visitor: Visit) -> None:
    visitor.go("/history/suite", "History of suite")

    rows = visitor.page.get_by_role("group", name="Cases by runs").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("links")
    expect(rows.first.locator("td")).to_have_text(["100", "0", "100", re.compile("▼.*▲")])
    expect(rows.nth(1)).not_to_contain_text("▼")
    rows.first.get_by_role("link").first.click()
    expect(visitor.page).to_have_url(re.compile("/runs/[^/]+/cases/links"))


@pytest.mark.parametrize("width", [390, 1024, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_read_it(visitor: Visit, width: int, scheme: str) -> None:
    visitor.page.set_viewport_size({"width": width, "height": 900})
    visitor.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    visitor.go("/history/suite", "History of suite")

    assert visitor.page.evaluate("document.documentElement.scrollWidth") <= width
    assert axe.violations(visitor.page, axe.source()) == []
