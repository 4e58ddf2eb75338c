"""The page of a trial that did not pass: why in one line, what a judge said, pictures, and what to copy."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from pathlib import Path

import pytest
from browsing import visit
from notes_project import RUNNER, make_told, run_suite, viewed
from playwright.sync_api import Browser, expect

SUITE = """
from whet import Case, Workspace

workspace = Workspace(mode="isolated")


def is_short(session, ctx):
    assert len(session.final_output) < 3, "the answer is too long"


def opens_it(session, ctx):
    open("/no/such/file")


suite = [
    Case(id="long", prompt="Answer.", check=is_short),
    Case(id="crashes", prompt="Crash.", check=is_short),
    Case(id="explodes", prompt="Explode.", check=opens_it),
]
"""
AGENT = """
import os
print("A long answer.")
if os.environ["WHET_CASE_ID"] == "crashes":
    raise FileNotFoundError("notes.toml is not there")
"""
JUDGE = """
import json
verdicts = [
    {"number": 1, "rationale": "It greets nobody.", "evidence": "", "rating": 3, "manipulation": False},
    {"number": 2, "rationale": "It is plain.", "evidence": "A long", "rating": 9, "manipulation": True},
]
print(json.dumps({"verdicts": verdicts}))
"""
RUBRIC = {
    "name": "letters",
    "source_kind": "manual",
    "verifier_kind": "llm_judge",
    "cases_json": [
        {
            "case_kind": "llm_rubric",
            "task_id": "letter",
            "instruction": "Write a letter.",
            "rubric": [{"description": "It greets", "weight": 2, "required": True}, {"description": "It is clear"}],
        }
    ],
}


def picture(width: int, height: int) -> bytes:
    """Return a PNG of one colour."""
    rows = (b"\0" + bytes([20, 120, 130]) * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A project, with a run of Python checks and one with a judge."""
    folder = tmp_path_factory.mktemp("failing")
    (folder / "suite.py").write_text(SUITE)
    (folder / "letters.json").write_text(json.dumps(RUBRIC))
    (folder / "agent.py").write_text(AGENT)
    (folder / "judge.py").write_text(JUDGE)
    runners = (
        RUNNER.format(name=name, args=f'["./{name}.py"]').replace('"events"', '"text"') for name in ("agent", "judge")
    )
    (folder / "whet.toml").write_text("\n".join(runners) + '\n[judge]\nrunner = "judge"\n')
    return (
        folder,
        run_suite(folder, "suite.py", "--runner", "agent"),
        run_suite(folder, "letters.json", "--runner", "agent"),
    )


def test_a_failed_trial_says_why_below_its_title_with_the_name_and_source_of_its_check(
    browser: Browser, failing: tuple[Path, str, str]
) -> None:
    folder, run, _ = failing

    with viewed(folder) as viewer, visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        visitor.go(f"/runs/{run}/trials/long/agent/default/1", "long")

        expect(visitor.page.locator(".why-line")).to_have_text("the answer is too long")
        expect(visitor.page.locator(".check-name code")).to_have_text("is_short")
        source = visitor.page.get_by_role("group", name="Source of the check")
        expect(source.locator(".here")).to_contain_text("assert len(session.final_output) < 3")
        expect(source).not_to_contain_text("opens_it")


def test_the_source_of_a_check_is_that_of_the_run_also_once_its_file_has_changed(
    browser: Browser, tmp_path: Path
) -> None:
    (tmp_path / "suite.py").write_text(SUITE)
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "whet.toml").write_text(
        RUNNER.format(name="agent", args='["./agent.py"]').replace('"events"', '"text"')
    )
    run = run_suite(tmp_path, "suite.py", "--case", "long")
    (tmp_path / "suite.py").write_text("# changed\n" * 100)

    with viewed(tmp_path) as viewer, visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        visitor.go(f"/runs/{run}/trials/long/agent/default/1", "long")

        source = visitor.page.get_by_role("group", name="Source of the check")
        expect(source.locator(".here")).to_contain_text("assert len(session.final_output) < 3")
        expect(source).not_to_contain_text("# changed")


def test_of_a_traceback_the_last_line_is_shown_and_the_rest_is_folded(
    browser: Browser, failing: tuple[Path, str, str]
) -> None:
    folder, run, _ = failing

    with viewed(folder) as viewer, visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        visitor.go(f"/runs/{run}/trials/crashes/agent/default/1", "crashes")

        expect(visitor.page.locator(".why-line")).to_have_text(
            "The program of the agent crashed. FileNotFoundError: notes.toml is not there"
        )
        expect(visitor.page.locator(".last-line")).to_have_text("FileNotFoundError: notes.toml is not there")
        expect(visitor.page.get_by_text("Traceback (most recent call last)")).to_be_hidden()
        visitor.page.get_by_text("Traceback", exact=True).click()
        expect(visitor.page.get_by_text("Traceback (most recent call last)")).to_be_visible()


def test_a_rubric_is_shown_item_by_item_the_weakest_first(browser: Browser, failing: tuple[Path, str, str]) -> None:
    folder, _, run = failing

    with viewed(folder) as viewer, visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        visitor.go(f"/runs/{run}/trials/letter/agent/no_skill/1", "letter")

        items = visitor.page.locator(".rubric > ul > li")
        expect(items).to_have_count(2)
        expect(items.first).to_contain_text(
            re.compile("It greets.*required.*weight 2.*3 of 10.*It greets nobody", re.DOTALL)
        )
        expect(items.last).to_contain_text("9 of 10")
        expect(items.last).to_contain_text("Flagged: the answer")
        expect(visitor.page.locator(".rubric")).to_contain_text("Judged by judge with 1 vote on each of 2 items,")

        visitor.go(f"/runs/{run}/cases/letter", "letter")
        checks = visitor.page.get_by_role("table", name="How often each check held")
        expect(checks.get_by_role("row", name="It greets")).to_contain_text("3.0 of 10")
        reasons = visitor.page.get_by_role("region", name="Why trials did not pass")
        expect(reasons.locator("strong")).to_have_text('"It greets" is required and missing')


def test_the_command_that_runs_a_case_again_can_be_copied(browser: Browser, failing: tuple[Path, str, str]) -> None:
    folder, run, _ = failing

    with viewed(folder) as viewer, visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        visitor.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        visitor.go(f"/runs/{run}/trials/long/agent/default/1", "long")
        visitor.page.get_by_text("Copy, or run again").click()
        visitor.page.get_by_role("button", name="Copy the command: Run this case again").click()

        expect(visitor.page.get_by_role("button", name="Copy the command: Run this case again")).to_have_text("Copied")
        assert visitor.page.evaluate("navigator.clipboard.readText()") == (
            "whet run --sandbox local suite.py --runner agent --case long"
        )


def test_pictures_that_an_agent_read_are_shown_as_pictures(browser: Browser, tmp_path: Path) -> None:
    data = base64.b64encode(picture(30, 20)).decode()
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    script = {"type": "image", "source": {"type": "base64", "media_type": "image/svg+xml", "data": data}}
    run = make_told(
        tmp_path,
        [
            {"type": "tool_call", "id": "a", "tool": "Read", "args": {"file_path": "shot.png"}},
            {
                "type": "tool_result",
                "id": "a",
                "output": f"Here:\n{json.dumps(block)}\n{json.dumps(script)}",
                "ok": True,
            },
        ],
    )

    with viewed(tmp_path) as viewer, visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        visitor.go(f"/runs/{run}/trials/told/told/default/1", "told")
        visitor.page.locator(".step.call summary").click()

        shown = visitor.page.locator("figure.picture-part")
        expect(shown).to_have_count(1)
        expect(shown).to_contain_text(re.compile("30 . 20 pixels"))
        # Only formats that hold nothing but a picture are shown as one.
        expect(visitor.page.locator(".step.call")).to_contain_text("svg+xml")


def test_the_text_of_a_skill_is_shown_in_the_call_that_loaded_it(browser: Browser, tmp_path: Path) -> None:
    run = make_told(
        tmp_path,
        [
            {"type": "tool_call", "id": "a", "tool": "Skill", "args": {"skill": "notes"}},
            {"type": "skill_signal", "skill": "notes"},
            {"type": "tool_result", "id": "a", "output": "Launching skill: notes", "ok": True},
            {"type": "context", "text": "Write a heading for each version."},
            {"type": "context", "text": "The plan mode ended."},
        ],
    )

    with viewed(tmp_path) as viewer, visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        visitor.go(f"/runs/{run}/trials/told/told/default/1", "told")
        visitor.page.locator(".step.call summary").click()

        expect(visitor.page.get_by_role("group", name="Text of the skill")).to_have_text(
            "Write a heading for each version."
        )
        expect(visitor.page.locator(".step.context")).to_contain_text("Added by the program")


def test_paths_start_at_the_workspace_whichever_trial_they_are_of(browser: Browser, tmp_path: Path) -> None:
    paths = ["/tmp/whet-a1b2c3d4/w3/CHANGELOG.md", "/tmp/whet-a1b2c3d4/h3/.claude/skills/notes/SKILL.md"]
    run = make_told(
        tmp_path,
        [
            {"type": "tool_call", "id": str(place), "tool": "Read", "args": {"file_path": path}}
            for place, path in enumerate(paths)
        ],
    )

    with viewed(tmp_path) as viewer, visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        visitor.go(f"/runs/{run}/trials/told/told/default/1", "told")

        shown = visitor.page.locator(".step.call .summary-text")
        expect(shown).to_have_text(["CHANGELOG.md", "~/.claude/skills/notes/SKILL.md"])


def test_what_you_look_for_in_a_session_is_in_the_address(browser: Browser, tmp_path: Path) -> None:
    calls = [("Bash", "make test"), ("Read", "notes"), ("Bash", "ls")]
    run = make_told(
        tmp_path,
        [
            {"type": "tool_call", "id": str(place), "tool": tool, "args": {"command": text}}
            for place, (tool, text) in enumerate(calls)
        ],
    )

    with viewed(tmp_path) as viewer, visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        visitor.go(f"/runs/{run}/trials/told/told/default/1", "told")
        visitor.page.get_by_label("Which events").select_option(label="Bash")
        visitor.page.get_by_label("Search events").fill("make")
        address = visitor.page.evaluate("location.href")
        visitor.page.goto("about:blank")
        visitor.page.goto(address)

        expect(visitor.page.locator(".step.call")).to_have_count(2)
        expect(visitor.page.locator(".step.call.hit")).to_contain_text("make test")
        expect(visitor.page.get_by_label("Search events")).to_have_value("make")


JUDGE_OF_ARMS = """
import json, sys
greets, clear = (9, 9) if "Warm regards" in sys.stdin.read() else (4, 2)
verdicts = [
    {"number": number, "rationale": "r", "evidence": "", "rating": rating, "manipulation": False}
    for number, rating in ((1, greets), (2, clear))
]
print(json.dumps({"verdicts": verdicts}))
"""


def test_what_went_wrong_names_the_items_of_a_rubric_that_fell_the_largest_fall_first(
    browser: Browser, tmp_path: Path
) -> None:
    (tmp_path / "letters.json").write_text(json.dumps(RUBRIC))
    (tmp_path / "warm.py").write_text("print('Warm regards')")
    (tmp_path / "cold.py").write_text("print('Noted')")
    (tmp_path / "judge.py").write_text(JUDGE_OF_ARMS)
    runners = (
        RUNNER.format(name=name, args=f'["./{name}.py"]').replace('"events"', '"text"')
        for name in ("warm", "cold", "judge")
    )
    (tmp_path / "whet.toml").write_text("\n".join(runners) + '\n[judge]\nrunner = "judge"\n')
    run = run_suite(tmp_path, "letters.json", "--arm", "old=runner:warm", "--arm", "new=runner:cold")

    with viewed(tmp_path) as viewer, visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        visitor.go(f"/runs/{run}", "Run of letters")

        fallen = visitor.page.get_by_role("list", name="Criteria that fell").get_by_role("listitem")
        expect(fallen).to_have_text(["9.0 to 2.0▼ fell most It is clear", "9.0 to 4.0It greets"])
