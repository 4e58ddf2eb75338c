"""However much was observed, a message is short."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from whet import Changes, CheckContext, Session, ToolCall, command, expect
from whet.checks.message import Pointer, describe, nearest, shorten
from whet.model.events import CommandRun, FileRead, SkillSignal

_HUGE = 100_000_000
_SHORT = 6_000


@pytest.fixture(scope="module")
def huge() -> str:
    return "x" * _HUGE


def _said(call: Callable[[], object]) -> str:
    with pytest.raises(AssertionError) as caught:
        call()
    return str(caught.value)


def _session(*events: CommandRun | FileRead | ToolCall | SkillSignal, output: str = "") -> Session:
    return Session(runner="demo", agent="scripted", prompt="Go.", final_output=output, events=events)


def test_a_huge_command_is_shortened_in_its_middle() -> None:
    report = _session(CommandRun(command="begin " + "x" * 10_000 + " end"))

    said = _said(lambda: expect.commands.includes(report, "cargo"))

    line = said.splitlines()[2]
    assert line.startswith("  1. begin xxx")
    assert " ... " in line
    assert line.endswith("xxx end")
    assert len(line) < 210


@pytest.mark.parametrize(
    "call",
    [
        lambda text: expect.commands.includes(_session(CommandRun(command=text)), "yyy"),
        lambda text: expect.commands.includes(_session(CommandRun(command=text)), command("yyy")),
        lambda text: expect.commands.succeeded(_session(CommandRun(command=text)), "yyy"),
        lambda text: expect.file_reads.first(_session(FileRead(path=text)), "yyy"),
        lambda text: expect.tool_calls.has(_session(ToolCall(tool="write", args={"text": text})), "yyy"),
        lambda text: expect.skills.has(_session(SkillSignal(skill=text)), "yyy"),
        lambda text: expect.output.includes(_session(output=text), "yyy"),
        lambda text: expect.output.json(_session(output=text)),
        lambda text: expect.commands.includes(_session(CommandRun(command="ls")), text),
        lambda text: expect.equal(text, "yyy"),
        lambda text: expect.match(text, "yyy"),
        lambda text: expect.does_not_match(text, "x+"),
    ],
    ids=[
        "command", "command-read", "exit-code", "file-read", "tool-call", "skill", "output", "json", "matcher", "equal",
        "match", "no-match",
    ],
)  # fmt: skip
def test_a_hundred_megabytes_make_a_short_message(huge: str, call: Callable[[str], object]) -> None:
    said = _said(lambda: call(huge))

    assert len(said) < _SHORT


def test_a_huge_file_makes_a_short_message(huge: str, tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_text(huge[:60_000_000])
    ctx = CheckContext(_session(), tmp_path, Changes(), lambda argv, timeout_s: pytest.fail("nothing runs"))

    said = _said(lambda: expect.files.contains(ctx, "big.txt", "yyy"))

    assert said.startswith('expected big.txt to contain "yyy"\nit has 60000000 characters: xxx')
    assert len(said) < _SHORT


def test_a_file_above_the_bound_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "hole.txt").open("wb") as file:
        file.truncate(8 * 1024**3)
    ctx = CheckContext(_session(), tmp_path, Changes(), lambda argv, timeout_s: pytest.fail("nothing runs"))

    said = _said(lambda: expect.files.contains(ctx, "hole.txt", "yyy"))

    assert "hole.txt has more than 64 MiB, too much to be read" in said


def test_of_very_many_lines_the_first_and_the_last_are_shown_with_their_numbers() -> None:
    report = _session(*(CommandRun(command=f"echo {number}") for number in range(1, 100_001)))

    lines = _said(lambda: expect.commands.includes(report, "cargo")).splitlines()

    assert lines[1] == "observed 100000 commands:"
    assert lines[2] == "  1. echo 1"
    assert lines[11] == "  10. echo 10"
    assert lines[12] == "  ... 99980 more ..."
    assert lines[13] == "  99991. echo 99991"
    assert lines[-1] == "  100000. echo 100000"
    assert len(lines) == 23


def test_twenty_lines_are_all_shown() -> None:
    report = _session(*(ToolCall(tool=f"tool-{number}") for number in range(20)))

    said = _said(lambda: expect.tool_calls.has(report, "web"))

    assert len(said.splitlines()) == 22
    assert "more" not in said


def test_very_many_tool_calls_with_large_arguments_make_a_short_message() -> None:
    report = _session(*(ToolCall(tool="write", args={"text": "x" * 1000}) for _ in range(10_000)))

    assert len(_said(lambda: expect.tool_calls.not_has(report, "write"))) < _SHORT


def test_the_nearest_of_very_many_long_lines_is_found() -> None:
    lines = [f"{number} {'x' * 300}" for number in range(1000)]

    found = nearest(f"77 {'x' * 299}", lines)

    assert found == Pointer(77)


def test_a_text_is_shown_on_one_line() -> None:
    assert shorten("a\nb") == "a\\nb"
    assert describe("x", "commands", ["a\nb"]) == "expected x\nobserved 1 command:\n  1. a\\nb"


def test_what_moves_a_terminal_s_cursor_is_shown_and_not_sent() -> None:
    report = _session(CommandRun(command="echo \x1b[2J\r\x07"))

    said = _said(lambda: expect.commands.includes(report, "cargo"))

    assert all(char.isprintable() or char == "\n" for char in said)


def test_huge_words_of_an_author_are_shortened_too(huge: str) -> None:
    assert len(_said(lambda: expect.ok(False, huge))) < _SHORT
