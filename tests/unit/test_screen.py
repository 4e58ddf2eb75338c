"""The screen: lines break between words, and nothing but styles reaches a terminal."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from reporting import Pipe, Tty

from whet.reading.text import width
from whet.report.screen import STYLES, Screen, unbroken

SENTENCE = "not known yet whether v2 is better or worse than v1 on claude: -21 points (95 % interval -46.6 to +18.6)"


def screen_of(columns, **environ):
    return Screen(Tty(), {"COLUMNS": str(columns), **environ})


def lines_of(text, columns, **environ):
    return screen_of(columns, **environ).lay_out(text).split("\n")


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_lines_break_between_words_and_lose_none(columns):
    lines = lines_of(f"  decision    {SENTENCE}", columns)

    assert max(map(width, lines)) <= columns
    assert " ".join(line.strip() for line in lines).split() == f"decision {SENTENCE}".split()


@pytest.mark.parametrize("columns", [40, 80])
def test_further_lines_begin_below_the_text_and_not_below_its_label(columns):
    _, *others = lines_of(f"  decision    {SENTENCE}", columns)

    assert others
    assert all(line.startswith(" " * 14) and line[14] != " " for line in others)


@pytest.mark.parametrize("columns", range(30, 60))
def test_a_number_and_its_percent_stay_together(columns):
    lines = lines_of(f"  means       new passes less often (100 % to 61 %); {SENTENCE}", columns)

    assert not any(line.strip().startswith("%") for line in lines)


def test_words_of_strangers_keep_their_bar_on_every_line():
    lines = lines_of(f"      │ {SENTENCE}", 40)

    assert len(lines) > 1
    assert all(line.startswith("      │ ") for line in lines)


@pytest.mark.parametrize("columns", [40, 80])
def test_wide_characters_take_two_columns(columns):
    lines = lines_of("  日本語の 長い説明 " * 12, columns)

    assert len(lines) > 1
    assert max(map(width, lines)) <= columns


def test_a_style_ends_with_its_line_and_goes_on_in_the_next():
    screen = screen_of(40)
    lines = screen.lay_out(f"  decision    {screen.paint(SENTENCE, 'bad')}").split("\n")

    assert len(lines) > 1
    assert all(line.count("\x1b[31m") == line.count("\x1b[0m") == 1 for line in lines)


def test_a_command_to_copy_stays_on_one_line():
    command = "whet run suite.py --resume .whet/runs/20260105T101530-a1b2c3 --max-cost 3"

    lines = lines_of(f"  3 trials are missing. To resume: {unbroken(command)}", 40)

    assert command in [line.strip() for line in lines]


@pytest.mark.parametrize("columns", [1, 10, 40])
def test_a_word_that_is_longer_than_a_line_stays_whole(columns):
    path = "/a" * 60

    assert path in [line.strip() for line in lines_of(f"  Results in {path} now", columns)]


def test_a_pipe_gets_whole_lines_without_styles():
    screen = Screen(Pipe(), {"COLUMNS": "40"})

    assert screen.lay_out(screen.paint(SENTENCE, "bad")) == SENTENCE


@pytest.mark.parametrize("stream", [Tty, Pipe])
@pytest.mark.parametrize(
    "name", ["\x1b[2Jgone", "\x1b]0;title\x07", "\x1b]52;c;eA==\x07", "a\rb", "\x9b31m", "\x07\x08", "\x1b[8mhidden"]
)
def test_no_control_character_of_a_name_reaches_a_stream(stream, name):
    text = Screen(stream(), {"COLUMNS": "40"}).lay_out(f"  {name} {SENTENCE}")

    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", STYLES.sub("", text))


LINK = re.compile(r"\x1b\]8;;([^\x1b]*)\x1b\\([^\x1b]*)\x1b\]8;;\x1b\\")


def test_a_path_is_a_link_that_names_the_machine_and_stays_on_one_line(tmp_path):
    folder = tmp_path / "a folder" / "größe#1"
    screen = screen_of(30, FORCE_HYPERLINK="1")

    printed = screen.lay_out(f"  Results in {screen.path(folder, tmp_path)} and {SENTENCE}")

    [(address, text)] = LINK.findall(printed)
    assert address == f"file://{os.uname().nodename}{tmp_path}/a%20folder/gr%C3%B6%C3%9Fe%231"
    assert text == "a folder/größe#1"


@pytest.mark.parametrize("columns", [30, 60, 90])
def test_the_address_of_a_link_takes_no_room(columns):
    screen = screen_of(columns, FORCE_HYPERLINK="1")
    path = Path("/a/rather/long/path/that/nobody/sees")

    with_link = screen.lay_out(f"  {SENTENCE} {screen.link('here', path)} {SENTENCE}")

    assert LINK.sub(r"\2", with_link) == screen.lay_out(f"  {SENTENCE} here {SENTENCE}")


@pytest.mark.parametrize(
    ("environ", "stream", "linked"),
    [
        ({}, Tty, False),
        ({"TERM": "xterm-kitty"}, Tty, True),
        ({"TERM_PROGRAM": "WezTerm"}, Tty, True),
        ({"VTE_VERSION": "7600"}, Tty, True),
        ({"VTE_VERSION": "4600"}, Tty, False),
        ({"VTE_VERSION": "7600", "TERM": "tmux-256color"}, Tty, False),
        ({"TERM": "xterm-kitty", "FORCE_HYPERLINK": "0"}, Tty, False),
        ({"TERM": "screen", "FORCE_HYPERLINK": "1"}, Tty, True),
        ({"TERM": "dumb", "FORCE_HYPERLINK": "1"}, Tty, False),
        ({"TERM": "xterm-kitty", "FORCE_HYPERLINK": "1"}, Pipe, False),
    ],
)
def test_links_are_for_terminals_that_open_them(environ, stream, linked):
    screen = Screen(stream(), environ)

    text = screen.lay_out(screen.path(Path("/runs/one"), Path("/runs")))

    assert bool(LINK.search(text)) is linked
    assert LINK.sub(r"\2", text) == "one"


@pytest.mark.parametrize("address", ["https://example.org/", "javascript:alert(1)", "file:///a\x07", "file:///a b"])
def test_no_link_of_a_stranger_reaches_a_terminal(address):
    text = screen_of(80, FORCE_HYPERLINK="1").lay_out(f"\x1b]8;;{address}\x1b\\name\x1b]8;;\x1b\\")

    assert "\x1b]8;;file" not in text
    assert "\x1b]8;;http" not in text
    assert "\x1b]8;;java" not in text
