"""What a trial left is shown where it failed: notes, what its check printed, and what its agent did last."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace
from reporting import Stage, all_pass, end, failed, make_info, make_plan

from whet.model.grade import Failure
from whet.model.run import TrialKey, TrialResult
from whet.model.spending import BUDGET_NOT_ENFORCED
from whet.report.files.github import GithubReporter
from whet.report.files.junit import JunitReporter
from whet.report.files.markdown import MarkdownReporter
from whet.report.terminal.reporter import TerminalReporter

STOPPED = Failure(phase="agent", code="timeout", cause="agent", message="was still running after 60 s")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the only attempt, in a run folder of its own."""
    found = tmp_path / "trials/a/claude/default/1"
    found.mkdir(parents=True)
    return found


def shown(reporter: type, tmp_path: Path, outcome=failed, cases=("a",)) -> str:
    stage = Stage(cwd=tmp_path)
    end(reporter(stage.context), make_plan(cases), outcome, make_info(run_dir=tmp_path))
    return stage.printed


def stopped(key: TrialKey) -> TrialResult:
    return failed(key, failure=STOPPED)


def events(*written: dict[str, object]) -> str:
    return "".join(json.dumps(each) + "\n" for each in written)


def system_out(document: str) -> str:
    return ET.fromstring(document).findtext(".//system-out") or ""


def test_the_last_lines_that_a_check_printed_stand_with_its_failure(tmp_path, folder):
    (folder / "check.log").write_text("".join(f"line {number}\n" for number in range(8)))

    terminal, markdown, junit = (
        shown(reporter, tmp_path) for reporter in (TerminalReporter, MarkdownReporter, JunitReporter)
    )

    lines = ["… more in check.log …", *(f"line {number}" for number in range(3, 8))]
    assert "      printed   │ " + "\n                │ ".join(lines) + "\n" in terminal
    assert "The check printed:\n\n```text\n" + "\n".join(lines) + "\n```\n" in markdown
    assert system_out(junit).endswith("the check printed:\n" + "\n".join(f"line {number}" for number in range(8)))


def test_what_a_check_printed_is_harmless(tmp_path, folder):
    (folder / "check.log").write_bytes(b"\x1b[2Jred\x00\xff ```\n]]><x>\n" + b"y" * 100_000)

    terminal, markdown, junit = (
        shown(reporter, tmp_path) for reporter in (TerminalReporter, MarkdownReporter, JunitReporter)
    )

    assert "\x1b" not in terminal + markdown + junit
    assert max(len(line) for line in terminal.splitlines()) < 300
    assert "yyy" in system_out(junit)


def test_a_check_that_printed_nothing_has_no_such_line(tmp_path, folder):
    (folder / "check.log").write_text("\n  \n")

    assert "printed" not in shown(TerminalReporter, tmp_path)
    assert "printed" not in shown(MarkdownReporter, tmp_path)


def test_notes_stand_with_the_failure_and_one_that_is_told_once_for_all_does_not(tmp_path):
    def outcome(key):
        notes = (
            "classify_failure raised KeyError: 'x'\n(suite.py:3)",
            f"{BUDGET_NOT_ENFORCED}: it is $1",
            "again",
            "again",
        )
        return failed(key, notes=notes)

    terminal, markdown, junit, github = (
        shown(reporter, tmp_path, outcome)
        for reporter in (TerminalReporter, MarkdownReporter, JunitReporter, GithubReporter)
    )

    assert "      note      classify_failure raised KeyError: 'x' (suite.py:3)\n      note      again\n" in terminal
    assert "- note: `classify_failure raised KeyError: 'x' (suite.py:3)`\n- note: `again`\n" in markdown
    assert "note: classify_failure raised KeyError: 'x' (suite.py:3)\nnote: again" in system_out(junit)
    assert github.count("%0Anote: again") == 1
    assert BUDGET_NOT_ENFORCED not in terminal + markdown + junit + github


def test_a_note_that_another_failure_has_already_is_not_said_again(tmp_path):
    terminal = shown(TerminalReporter, tmp_path, lambda key: failed(key, notes=("twice",)), cases=("a", "b"))

    assert terminal.count("twice") == 1


def test_many_notes_are_counted(tmp_path):
    terminal = shown(TerminalReporter, tmp_path, lambda key: failed(key, notes=tuple(map(str, range(9)))))

    assert "      note      4\n      note      and 4 more notes in the record\n" in terminal


def test_a_note_of_a_trial_that_passed_is_in_junit(tmp_path):
    junit = shown(JunitReporter, tmp_path, lambda key: replace(all_pass(key), notes=("mind this",)))

    assert "note: mind this" in system_out(junit)


@pytest.mark.parametrize(
    ("file", "written", "seen"),
    [
        (
            "events.jsonl",
            events(
                {"type": "message", "role": "assistant", "text": "I start."},
                {"type": "command", "command": "npm test"},
                {"type": "usage", "input_tokens": 3},
            ),
            "$ npm test",
        ),
        ("events.jsonl", events({"type": "file_read", "path": "a.py"}) + '{"type": "mess', "reads a.py"),
        ("transcript.jsonl", events({"type": "file_edit", "path": "a.py"}), "writes a.py"),
        ("transcript.txt", "one\ntwo\n\n", "printed: two"),
    ],
)
def test_what_an_agent_did_last_before_its_time_was_up_is_told(tmp_path, folder, file, written, seen):
    (folder / file).write_text(written)

    terminal, markdown, junit, github = (
        shown(reporter, tmp_path, stopped)
        for reporter in (TerminalReporter, MarkdownReporter, JunitReporter, GithubReporter)
    )

    assert f"      last seen {seen}\n" in terminal
    assert f"- last seen: `{seen}`\n" in markdown
    assert f"last seen: {seen}" in system_out(junit)
    assert f"%0Alast seen: {seen}%0A" in github


@pytest.mark.parametrize("written", ["", "\n", "nonsense\n", '{"type": "usage", "input_tokens": 3}\n'])
def test_an_agent_that_was_not_seen_to_do_anything_has_no_such_line(tmp_path, folder, written):
    (folder / "transcript.jsonl").write_text(written)

    assert "last seen" not in shown(TerminalReporter, tmp_path, stopped)


def test_what_an_agent_did_last_says_nothing_about_a_check_that_does_not_hold(tmp_path, folder):
    (folder / "transcript.txt").write_text("done\n")

    assert "last seen" not in shown(TerminalReporter, tmp_path, failed)
