"""A run under way in `whet view`: the page fills as trials end, and says when the run has ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from browsing import visit
from notes_project import PATIENCE_S, run_suite, viewed
from playwright.sync_api import Browser, expect

SUITE = """
from whet import case

@case(prompt="echo done")
def quick(session, ctx):
    assert session.final_output == "done"

@case(prompt="while [ ! -e GATE ]; do sleep 0.02; done; echo other")
def waits(session, ctx):
    assert session.final_output == "done"
"""
SETTINGS = """
[run]
max_parallel = 2
[runners.sh.agent]
type = "command"
command = "sh"
args = ["-c", "{prompt}"]
"""


def test_a_run_under_way_is_followed_to_its_end(browser: Browser, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    (tmp_path / "suite.py").write_text(SUITE.replace("GATE", str(gate)))
    (tmp_path / "whet.toml").write_text(SETTINGS)
    argv = [sys.executable, "-m", "whet", "run", "suite.py", "--sandbox", "local"]
    with (
        subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.DEVNULL) as running,
        viewed(tmp_path) as viewer,
        visit(browser, viewer) as visitor,  # type: ignore[arg-type]
    ):
        visitor.page.goto(f"{viewer.url}/#/")
        expect(visitor.page.locator("h1")).to_contain_text("Runs of")
        expect(visitor.page.get_by_role("table")).to_contain_text("running")
        visitor.page.get_by_role("table").get_by_role("link").first.click()
        expect(visitor.page.get_by_text("1 of 2 trials ended.")).to_be_visible()
        expect(visitor.row("Cases", "waits")).to_contain_text("not run")
        expect(visitor.page.get_by_role("region", name="Rate")).to_contain_text("1 of 1 trial went as expected so far")
        visitor.page.evaluate("window.stayed = true")

        gate.touch()

        expect(visitor.row("Cases", "waits")).to_contain_text("failed")
        expect(visitor.page.locator(".headline")).to_contain_text("failed")
        expect(visitor.page.locator("#announced")).to_have_text("The run has ended: failed.")
        assert visitor.page.evaluate("window.stayed") is True
        assert running.wait(PATIENCE_S) == 1


def test_the_list_of_runs_shows_one_that_begins_later(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "suite.py").write_text(SUITE.replace("GATE", str(tmp_path)))
    (tmp_path / "whet.toml").write_text(SETTINGS)
    with viewed(tmp_path) as viewer, visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        visitor.page.goto(f"{viewer.url}/#/")
        expect(visitor.page.get_by_text("There is nothing here yet")).to_be_visible()
        visitor.page.evaluate("window.stayed = true")

        first = run_suite(tmp_path, "suite.py")
        link = visitor.page.locator(f"a[href='#/runs/{first}']")
        expect(visitor.row("Runs, newest first", first)).to_contain_text("failed")
        expect(visitor.page.get_by_role("link", name="Compare two")).to_have_count(0)
        link.focus()
        second = run_suite(tmp_path, "suite.py")

        expect(visitor.row("Runs, newest first", second)).to_contain_text("failed")
        expect(link).to_be_focused()
        expect(visitor.page.get_by_role("link", name="Compare two")).to_be_visible()
        assert visitor.page.evaluate("window.stayed") is True


EVENTS_SUITE = """
import json
from whet import case

FIRST, LAST = ({"type": "message", "role": "assistant", "text": "I begin."}, {"type": "final_output", "text": "done"})
WAIT = "while [ ! -e GATE ]; do sleep 0.02; done"

@case(prompt=f"echo '{json.dumps(FIRST)}'; {WAIT}; echo '{json.dumps(LAST)}'")
def told(session, ctx):
    assert session.final_output == "done"
"""


def test_a_trial_under_way_is_followed_event_by_event(browser: Browser, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    (tmp_path / "suite.py").write_text(EVENTS_SUITE.replace("GATE", str(gate)))
    (tmp_path / "whet.toml").write_text(SETTINGS + 'output = "events"\n')
    argv = [sys.executable, "-m", "whet", "run", "suite.py", "--sandbox", "local"]
    with (
        subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.DEVNULL) as running,
        viewed(tmp_path) as viewer,
        visit(browser, viewer) as visitor,  # type: ignore[arg-type]
    ):
        visitor.page.goto(f"{viewer.url}/#/")
        visitor.page.get_by_role("table").get_by_role("link").first.click()
        visitor.page.locator(".running-now").get_by_role("link", name="told #1").click()
        expect(visitor.page.get_by_role("heading", name="told", level=1)).to_contain_text("under way")
        expect(visitor.page.locator(".step")).to_contain_text("I begin.")
        expect(visitor.page.get_by_role("region", name="What was asked")).to_contain_text("sleep 0.02")

        gate.touch()

        expect(visitor.page.get_by_role("heading", name="told", level=1)).to_contain_text("passed")
        expect(visitor.page.get_by_role("list", name="What happened")).to_contain_text("I begin.")
        assert running.wait(PATIENCE_S) == 0
