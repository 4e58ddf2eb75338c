"""Every page for everybody: roles and names, contrast, small screens, both colour schemes, and texts that attack."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import axe
import pytest
from browsing import CONTRAST, DESK, PHONE, Visit, visit
from notes_project import HOSTILE, Project, Viewer, make_told, viewed
from playwright.sync_api import Browser, expect

from whet.view.pages import page_files

# Where tables are still cards, where they are no longer, and a screen that is not wide.
BETWEEN = (320, 640, 832, 960, 1152, 1280)
ADDRESSES: dict[str, Callable[[Project], str]] = {
    "runs": lambda _: "/",
    "decided": lambda made: f"/runs/{made.decided}",
    "rate": lambda made: f"/runs/{made.before}",
    "charts": lambda made: f"/runs/{made.decided}?show=charts",
    "about": lambda made: f"/runs/{made.decided}?show=about",
    "case": lambda made: f"/runs/{made.decided}/cases/dated",
    "trial": lambda made: f"/runs/{made.before}/trials/dated/hasty/default/1?event=5",
    "changes": lambda made: f"/runs/{made.before}/trials/dated/hasty/default/1?show=changes",
    "answer": lambda made: f"/runs/{made.before}/trials/dated/hasty/default/1?show=answer",
    "files": lambda made: f"/runs/{made.before}/trials/dated/hasty/default/1?show=files",
    "beside": lambda made: f"/beside/{made.decided}/dated/hasty/old/1/{made.decided}/dated/careful/new/1",
    "compare": lambda made: f"/compare/{made.before}/{made.after}",
    "history": lambda _: "/history/suite",
    "hostile run": lambda made: f"/runs/{made.hostile}",
    "hostile trial": lambda made: f"/runs/{made.hostile}/trials/odd/attacker/default/1",
    "hostile changes": lambda made: f"/runs/{made.hostile}/trials/odd/attacker/default/1?show=changes",
    "wide case": lambda made: f"/runs/{made.hostile}/trials/wide/attacker/default/1",
    "not found": lambda _: "/runs/nothing",
}


def _load(visitor: Visit, address: str) -> None:
    visitor.page.goto("about:blank")
    visitor.page.goto(f"{visitor.server.url}/#{address}")
    visitor.page.locator("main:not([aria-busy]) h1").wait_for()
    if "/trials/" in address:
        expect(visitor.page.locator("main")).to_contain_text("Where it went")
        if "show=" not in address:
            visitor.page.locator(".step").first.wait_for()


@pytest.mark.parametrize(("scheme", "screen"), [("light", DESK), ("dark", PHONE)], ids=["desk", "phone"])
def test_axe_finds_nothing_that_keeps_people_out(
    browser: Browser, viewer: Viewer, project: Project, scheme: str, screen: dict[str, int]
) -> None:
    script, found = axe.source(), {}
    with visit(browser, viewer, screen, scheme) as visitor:  # type: ignore[arg-type]
        for name, address in ADDRESSES.items():
            _load(visitor, address(project))
            found[name] = axe.violations(visitor.page, script)

    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_and_nothing_is_wider_than_the_screen(
    browser: Browser, viewer: Viewer, project: Project, scheme: str
) -> None:
    faint, wide = {}, {}
    with visit(browser, viewer, PHONE, scheme) as visitor:  # type: ignore[arg-type]
        for name, address in ADDRESSES.items():
            visitor.page.set_viewport_size(PHONE)
            _load(visitor, address(project))
            visitor.unfold()
            faint[name] = visitor.page.evaluate(CONTRAST)
            for width in (PHONE["width"], *BETWEEN):
                visitor.page.set_viewport_size({**PHONE, "width": width})
                wide[f"{name} at {width}"] = visitor.overflow()

    assert {name: texts for name, texts in faint.items() if texts} == {}
    assert {place: by for place, by in wide.items() if by} == {}


def test_texts_of_others_are_never_markup(visitor: Visit, project: Project) -> None:
    for name in ("hostile run", "hostile trial", "hostile changes"):
        _load(visitor, ADDRESSES[name](project))
        visitor.unfold()
        expect(visitor.page.get_by_text(HOSTILE).first).to_be_visible()
        assert visitor.page.locator("img[src=x], main b, main script").count() == 0, name
    _load(visitor, ADDRESSES["hostile trial"](project))
    # The sign that turns text around is shown instead of obeyed.
    expect(visitor.page.locator(".checks")).to_contain_text("safe\u2039U+202E\u203atxt.exe")
    assert visitor.page.get_by_text(HOSTILE).count() > 8
    assert visitor.page.evaluate("window.hacked") is None


def test_the_browser_itself_refuses_markup_and_scripts_in_the_page(visitor: Visit, project: Project) -> None:
    visitor.go(f"/runs/{project.before}", "Run of suite")

    with pytest.raises(Exception, match="TrustedHTML"):
        visitor.page.evaluate("document.body.innerHTML = '<p>no</p>'")

    assert visitor.complaints
    visitor.complaints.clear()


def test_after_moving_the_heading_has_the_focus_and_the_title_names_the_view(visitor: Visit, project: Project) -> None:
    visitor.go("/", "Runs of notes")
    visitor.page.keyboard.press("Tab")
    expect(visitor.page.get_by_role("link", name="Skip to the content")).to_be_focused()
    visitor.page.keyboard.press("Enter")
    visitor.page.keyboard.press("Tab")
    expect(visitor.page.get_by_label("Search runs")).to_be_focused()
    visitor.page.locator(f"a[href='#/runs/{project.before}']").press("Enter")

    expect(visitor.page.get_by_role("heading", name="Run of suite", level=1)).to_be_focused()
    expect(visitor.page).to_have_title("Run of suite · whet")
    visitor.page.go_back()
    expect(visitor.page.get_by_role("heading", name="Runs of notes", level=1)).to_be_focused()


def test_the_page_loads_all_its_modules_at_once() -> None:
    index = page_files()["index.html"].content.decode()
    modules = {name for name in page_files() if name.endswith(".js")}

    # The colours come before the page is drawn, which no module does.
    assert {name for name in modules if f'<script type="module" src="page/{name}"></script>' in index} == modules - {
        "theme.js"
    }


def test_who_chooses_other_colours_than_their_system_sees_them_from_the_first_drawing_on(visitor: Visit) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    visitor.go("/", "Runs of notes")
    light = visitor.page.evaluate(paper)
    visitor.page.get_by_label("Colours").select_option("dark")
    dark = visitor.page.evaluate(paper)
    # A page without its modules shows what is drawn before them.
    visitor.page.route("**/app.js", lambda route: route.abort())
    visitor.page.reload(wait_until="domcontentloaded")
    first_drawn, kept = visitor.page.evaluate(paper), visitor.page.get_by_label("Colours").input_value()
    visitor.page.get_by_label("Colours").select_option("system")

    assert (first_drawn, kept) == (dark, "dark")
    assert visitor.page.evaluate(paper) == light != dark
    assert visitor.page.evaluate("localStorage.length") == 0


def test_figures_that_an_agent_makes_up_are_not_wider_than_a_phone(browser: Browser, tmp_path: Path) -> None:
    spent = {"type": "usage", "input_tokens": 10**15, "output_tokens": 10**15, "cost_usd": 1e15}
    run = make_told(tmp_path, [{"type": "message", "role": "assistant", "text": "I spend."}, spent])
    at = f"/runs/{run}"

    with viewed(tmp_path) as viewer, visit(browser, viewer, PHONE) as visitor:  # type: ignore[arg-type]
        widths = {}
        for address in ("/", at, f"{at}?show=charts", f"{at}/cases/told", f"{at}/trials/told/told/default/1"):
            _load(visitor, address)
            expect(visitor.page.locator("main")).to_contain_text("1.0e+15")
            widths[address] = visitor.overflow()

    assert {place: width for place, width in widths.items() if width} == {}
