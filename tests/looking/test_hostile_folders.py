"""Folders of strangers in `whet view`: whatever is in a record is shown, breaks nothing and runs nowhere."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import DESK, PHONE, Visit, visit
from msgspec.structs import replace
from notes_project import HOSTILE, TURNED, Project, Viewer, viewed
from playwright.sync_api import Browser, expect
from test_exported_pages import _export

from whet.model.codec import EVENT_NAMES
from whet.model.events import EVENT_TYPES
from whet.record.journal.chain import read_line
from whet.record.journal.journal import Journal

FIELDS = sorted({name for kind in EVENT_TYPES for name in kind.__struct_fields__} - {"type"})
# One of everything that a program of ours would never write: each field a number, an object, nothing, or an attack.
SHAPES: list[dict[str, object]] = [
    {},
    {"type": 5},
    *({"type": name} for name in ("constructor", "__proto__", "add", "push", "toString")),
    *({"type": kind} for kind in EVENT_NAMES),
    *({**dict.fromkeys(FIELDS, value), "type": kind} for kind in EVENT_NAMES for value in (7, None, HOSTILE)),
    *({**{name: {"a": [1]} for name in FIELDS}, "type": kind, "i": "x"} for kind in EVENT_NAMES),
    *({"type": kind, wrong: 7} for kind in EVENT_NAMES for wrong in FIELDS),
]
# What is valid JSON only if two lines are put together, and then holds what is no object.
ACROSS = '{"a":[1\n{"b":2}]},null\n'
# Signs that hide or turn text, anywhere that people read or hear.
UNSEEN = """() => {
  const odd = /[\\u202a-\\u202e\\u2066-\\u2069\\u200e\\u200f]/;
  const texts = [document.title, ...[...document.querySelectorAll("body, body *")].flatMap((one) => [
    ...[...one.childNodes].filter((child) => child.nodeType === 3).map((child) => child.data),
    ...["aria-label", "title", "placeholder", "alt"].map((name) => one.getAttribute(name) ?? ""),
  ])];
  return texts.filter((text) => odd.test(text)).map((text) => text.slice(0, 80));
}"""


@pytest.fixture
def foreign(project: Project, tmp_path: Path) -> Path:
    """The folder of a run that somebody sent; whoever gets it can change all of it."""
    folder = tmp_path / "sent" / ".whet" / "runs" / project.before
    shutil.copytree(project.folder / ".whet" / "runs" / project.before, folder)
    return folder


@pytest.fixture
def viewer(foreign: Path) -> Iterator[Viewer]:
    with viewed(foreign.parents[2]) as viewer:
        yield viewer


def _events_of(foreign: Path) -> Path:
    return next(foreign.glob("trials/dated/hasty/default/1/1/transcript.jsonl"))


@pytest.mark.parametrize("more", ["", ACROSS], ids=["each line", "across lines"])
def test_events_of_any_shape_are_shown_and_break_nothing(
    browser: Browser, viewer: Viewer, foreign: Path, tmp_path: Path, more: str
) -> None:
    _events_of(foreign).write_text("".join(f"{json.dumps(shape)}\n" for shape in SHAPES) + more)
    file = _export(foreign.parents[2], str(foreign), tmp_path / "hostile.html")
    trial, other = (f"runs/{foreign.name}/trials/{case}/hasty/default/1" for case in ("dated", "easy"))
    for address in (f"/{trial}?event=3", f"/beside/{trial}/{other}".replace("runs/", "").replace("trials/", "")):
        for server in (viewer, Viewer(file.as_uri().removesuffix("/"), viewer.process)):
            context = browser.new_context(viewport=DESK)  # type: ignore[arg-type]
            visitor = Visit(context.new_page(), server)  # type: ignore[arg-type]
            visitor.page.goto(f"{server.url}{'' if server is not viewer else '/'}#{address}")
            visitor.page.locator(".step").nth(5).wait_for()
            visitor.unfold()

            assert visitor.page.get_by_text("This page has a bug").count() == 0
            assert visitor.page.evaluate("window.hacked") is None
            assert visitor.complaints == []
            context.close()


def _renamed(foreign: Path, name: str) -> None:
    """Give every case, runner and arm of a record another name, with a journal that fits."""
    path = foreign / "journal.jsonl"
    lines = [read_line(raw, number, 0) for number, raw in enumerate(path.read_bytes().splitlines(keepends=True), 1)]
    path.unlink()
    (foreign / "results.json").unlink()
    journal = Journal(path)
    for number, line in enumerate(lines):
        key = replace(line.result.key, case=f"{name}{number}", runner=f"r{name}", arm=f"a{name}")
        journal.append(replace(line.result, key=key), line.files)


@pytest.mark.parametrize(
    "name", [f"{HOSTILE}{TURNED}", "w" * 4000, "\u202e" * 50 + "x/../y"], ids=["script", "giant", "bidi"]
)
def test_names_of_any_kind_hide_nothing_and_fit_every_screen(browser: Browser, foreign: Path, name: str) -> None:
    _renamed(foreign, name)
    with viewed(foreign.parents[2]) as viewer:
        for screen in (DESK, PHONE):
            with visit(browser, viewer, screen) as visitor:  # type: ignore[arg-type]
                visitor.load(f"/runs/{foreign.name}")
                seen = {"run": visitor.page.evaluate(UNSEEN), "run by": visitor.overflow()}
                # Those that were planned come first, and have no trials any more.
                visitor.page.locator("table.cases tbody a").last.click()
                visitor.page.get_by_text("Where it went").wait_for()
                seen |= {"trial": visitor.page.evaluate(UNSEEN), "trial by": visitor.overflow()}
                visitor.page.get_by_role("navigation", name="You are here").get_by_role("link").last.click()
                visitor.page.get_by_role("link", name="Trial 1").first.wait_for()
                seen |= {"case": visitor.page.evaluate(UNSEEN), "case by": visitor.overflow()}
                visitor.load("/")
                seen |= {"runs": visitor.page.evaluate(UNSEEN), "runs by": visitor.overflow()}

                assert {place: found for place, found in seen.items() if found} == {}
                assert visitor.page.evaluate("window.hacked") is None


def test_a_record_that_changes_below_the_page_is_shown_as_it_is_then(
    browser: Browser, viewer: Viewer, foreign: Path
) -> None:
    with visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        visitor.go(f"/runs/{foreign.name}", "Run of suite")
        journal = foreign / "journal.jsonl"
        journal.write_bytes(journal.read_bytes().replace(b'"failed"', b'"passed"', 1))
        visitor.load(f"/runs/{foreign.name}")
        expect(visitor.page.get_by_text("Not all of it can be shown")).to_be_visible()
        shutil.rmtree(foreign)
        visitor.load(f"/runs/{foreign.name}/trials/dated/hasty/default/1")

        expect(visitor.page.get_by_role("heading", name="Not found")).to_be_visible()


def test_two_viewers_of_one_run_keep_the_notes_of_both(browser: Browser, viewer: Viewer, foreign: Path) -> None:
    with viewed(foreign.parents[2]) as second:
        for number, server in enumerate((viewer, second, viewer)):
            with visit(browser, server) as visitor:  # type: ignore[arg-type]
                visitor.go(f"/runs/{foreign.name}/trials/easy/hasty/default/1", "easy")
                visitor.page.get_by_text("Add a note or your own verdict").click()
                visitor.page.get_by_label("What you saw").fill(f"note {number} {HOSTILE}")
                visitor.page.get_by_role("button", name="Add the note").click()
                expect(visitor.page.locator(".notes-list li")).to_have_count(number + 1)
                assert visitor.page.evaluate("window.hacked") is None
    notes = (foreign / "notes.jsonl").read_text().splitlines()
    assert re.findall(r"note \d", "".join(notes)) == ["note 0", "note 1", "note 2"]
