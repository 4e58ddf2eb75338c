"""Strangers' words are made harmless, and numbers carry their units."""

from __future__ import annotations

from pathlib import Path

import pytest

from whet.reading.text import clean, count, duration, excerpt, middle, money, one_line, path_for_people, width


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[1;1Hgone", "gone"),
        ("\x1b]0;new title\x07text", "text"),
        ("\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\", "click"),
        ("\x1b]52;c;cm0gLXJm\x07paste", "paste"),
        ("\x9b31mC1", "C1"),
        ("\x1bcreset", "reset"),
        ("bell\x07 back\x08 null\x00 delete\x7f", "bell back null delete"),
        ("turn\u202earound\u2066", "turnaround"),
        ("half \ud800 a character", "half  a character"),
        ("over\rwritten", "over\nwritten"),
    ],
)
def test_escape_sequences_and_control_characters_are_removed(hostile, harmless):
    assert clean(hostile) == harmless


def test_an_escape_sequence_without_an_end_hides_nothing():
    assert clean("\x1b]0;the rest of the message") == "]0;the rest of the message"


def test_one_line_has_no_line_breaks_and_keeps_both_ends():
    text = one_line("first\nsecond\r\n\tthird " + "x" * 500 + " last", 40)

    assert len(text) == 40
    assert text.startswith("first second third")
    assert text.endswith("last")


def test_an_excerpt_leaves_out_the_middle_and_says_how_much():
    lines = excerpt("\n".join(f"line {number}" for number in range(100)), lines=15)

    assert len(lines) == 15
    # Most of the room is for the beginning.
    assert (lines[0], lines[9]) == ("line 0", "line 9")
    assert lines[11:] == ("line 96", "line 97", "line 98", "line 99")
    assert "… 86 lines left out …" in lines


def test_a_message_of_a_megabyte_becomes_a_few_short_lines():
    lines = excerpt("x" * 1_000_000)

    assert len(lines) <= 15
    assert max(map(len, lines)) <= 200
    assert any("980,000 characters left out" in line for line in lines)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0.0 s"),
        (0.42, "0.4 s"),
        (12.34, "12.3 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (102, "1 min 42 s"),
        (3599.7, "1 h 00 min"),
        (7500, "2 h 05 min"),
    ],
)
def test_durations_have_units(seconds, shown):
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    ("dollars", "shown"),
    [(0, "$0.00"), (0.0007, "$0.0007"), (0.041, "$0.041"), (12.3, "$12.30"), (1234.5, "$1,234.50")],
)
def test_small_sums_have_more_digits(dollars, shown):
    assert money(dollars) == shown


def test_counts_agree_with_their_noun():
    assert [count(number, "trial") for number in (0, 1, 1200)] == ["0 trials", "1 trial", "1,200 trials"]


def test_wide_characters_take_two_columns():
    assert width("日本語") == 6
    assert width("e\u0301") == 1


@pytest.mark.parametrize("limit", [1, 2, 3, 10])
def test_shortening_never_exceeds_its_limit(limit):
    assert len(middle("a long piece of text", limit)) == limit


def test_paths_are_relative_below_the_current_folder_and_absolute_elsewhere():
    cwd = Path("/project")

    assert path_for_people(Path("/project/.whet/runs/1"), cwd) == ".whet/runs/1"
    assert path_for_people(Path("/elsewhere/1"), cwd) == "/elsewhere/1"
    assert path_for_people(Path("/project/a\x1b[31m\nb"), cwd) == "ab"
