"""Pages that open from disk: one file for a run, and a folder for a large one."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import axe
import pytest
from browsing import DESK, Visit
from notes_project import HOSTILE, PATIENCE_S, Project, Viewer
from playwright.sync_api import Browser, expect

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

from large_run import make_run


def _export(folder: Path, run: str, target: Path) -> Path:
    argv = [sys.executable, "-m", "whet", "report", run, "--html", str(target)]
    ended = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE_S * 3)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return target


@contextmanager
def _opened(browser: Browser, file: Path) -> Iterator[Visit]:
    """The file in a browser; fails if it asks for anything but its own files, or complains."""
    context = browser.new_context(viewport=DESK, locale="en-GB", timezone_id="UTC")  # type: ignore[arg-type]
    visitor = Visit(context.new_page(), Viewer(file.as_uri(), None))  # type: ignore[arg-type]
    visitor.page.goto(file.as_uri())
    yield visitor
    context.close()
    assert [url for url in visitor.asked if not url.startswith((file.parent.as_uri(), "data:", "blob:"))] == []
    assert visitor.complaints == []


@pytest.fixture(scope="module")
def exported(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of two arms in one file."""
    return _export(project.folder, project.decided, tmp_path_factory.mktemp("one") / "report.html")


def test_one_file_shows_the_run_its_trials_and_their_events(browser: Browser, exported: Path) -> None:
    with _opened(browser, exported) as visitor:
        expect(visitor.page.get_by_role("region", name="Decision")).to_contain_text("new is better than old")
        visitor.page.get_by_label("Lines", exact=True).select_option("arms")
        visitor.page.get_by_label("Status", exact=True).select_option("expected-failed")
        visitor.page.locator("table.cases tbody a").first.click()
        visitor.page.get_by_role("link", name="Trial 2").first.click()
        expect(visitor.page.get_by_role("region", name="The check does not hold")).to_be_visible()
        expect(visitor.page.locator(".step").filter(has_text="git describe")).to_contain_text("exit 128")
        visitor.page.keyboard.press("2")
        expect(visitor.page.locator(".hunk.beside .added mark")).to_have_text("and keeps ")
        address = visitor.page.url

        visitor.page.goto("about:blank")
        visitor.page.goto(address)

        expect(visitor.page.locator(".hunk.beside")).to_be_visible()


def test_a_file_cannot_do_what_needs_a_server_and_does_not_offer_it(browser: Browser, exported: Path) -> None:
    with _opened(browser, exported) as visitor:
        visitor.page.get_by_role("region", name="Decision").wait_for()
        assert visitor.page.get_by_role("link", name=re.compile("with the run before|of this suite")).count() == 0
        visitor.page.get_by_role("list", name="Difference of each case").get_by_role("link").first.click()
        visitor.page.get_by_role("link", name="Trial 1").first.click()
        expect(visitor.page.get_by_text("Where it went")).to_be_visible()
        assert visitor.page.get_by_text("Add a note").count() == 0


def test_a_file_says_once_that_raw_files_are_not_in_it(browser: Browser, exported: Path, project: Project) -> None:
    with _opened(browser, exported) as visitor:
        visitor.page.goto(f"{exported.as_uri()}#/runs/{project.decided}/trials/dated/hasty/old/1?show=files")
        panel = visitor.page.get_by_role("tabpanel")
        expect(panel.get_by_role("listitem").filter(has_text="session.json")).to_be_visible()

        expect(panel.get_by_text("not part of the exported file")).to_have_count(1)
        assert panel.get_by_role("button").count() == 0


def test_axe_finds_nothing_in_a_file(browser: Browser, exported: Path) -> None:
    script = axe.source()
    with _opened(browser, exported) as visitor:
        visitor.page.get_by_role("region", name="Decision").wait_for()

        assert axe.violations(visitor.page, script) == []


def test_in_a_file_texts_of_others_are_never_markup(browser: Browser, project: Project, tmp_path: Path) -> None:
    file = _export(project.folder, project.hostile, tmp_path / "hostile.html")
    with _opened(browser, file) as visitor:
        visitor.page.goto(f"{file.as_uri()}#/runs/{project.hostile}/trials/odd/attacker/default/1")
        expect(visitor.page.locator(".step.trouble")).to_contain_text(HOSTILE)

        assert visitor.page.evaluate("window.hacked") is None
        assert visitor.page.locator("img[src=x], main b, main script").count() == 0


def test_a_large_run_is_a_folder_whose_parts_load_when_they_are_looked_at(browser: Browser, tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / "20260105T101530-a00001", trials=2400, events=20)
    target = _export(tmp_path, str(run), tmp_path / "large.html")
    index = target.with_suffix("") / "index.html"
    with _opened(browser, index) as visitor:
        expect(visitor.page.locator("table.cases tbody tr").first).to_be_visible()
        assert not any("/parts/" in url for url in visitor.asked)
        visitor.page.goto(f"{index.as_uri()}#/runs/{run.name}/trials/case-0003/agent/new/2")
        expect(visitor.page.locator(".step").filter(has_text="ls part-1").first).to_be_visible()

        assert len({url for url in visitor.asked if "/parts/" in url}) == 1


def test_the_file_before_a_folder_leads_to_the_view_that_its_address_names(browser: Browser, tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / "20260105T101530-a00001", trials=2400, events=2)
    target = _export(tmp_path, str(run), tmp_path / "large & old.html")
    with _opened(browser, target) as visitor:
        visitor.page.goto("about:blank")
        visitor.page.goto(f"{target.as_uri()}#/runs/{run.name}/trials/case-0003/agent/new/2?event=1")

        expect(visitor.page.get_by_role("heading", name=re.compile("case-0003"), level=1)).to_be_visible()
        expect(visitor.page.locator("[aria-current=true].step")).to_contain_text("Done.")
        assert visitor.page.url.endswith(
            "/large%20%26%20old/index.html#/runs/" + visitor.page.url.partition("#/runs/")[2]
        )
