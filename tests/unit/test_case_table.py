"""Cases of arms as a table: the worst first, what is certain is marked, and it fits on the terminal."""

from __future__ import annotations

import pytest
from reporting import Tty

from whet.decide.comparison import comparisons_of
from whet.model.comparison import ArmSamples, RunSamples, Sampled
from whet.reading.text import width
from whet.report.decisions.case_table import case_table
from whet.report.decisions.words import painted_lines, rates_text
from whet.report.screen import STYLES, Screen, plain_screen

PASSES = {
    "old": {"links": 10, "tests": 10, "日本語の名前を持つ場合": 2, "same": 5},
    "new": {"links": 0, "tests": 9, "日本語の名前を持つ場合": 4, "same": 5},
    "best": {"links": 10, "tests": 10, "日本語の名前を持つ場合": 10, "same": 5},
}


def compare(*arms, trials=10, passes=PASSES):
    samples = tuple(
        ArmSamples(
            arm=arm,
            runner="sh",
            trials=tuple(
                Sampled(case=case, value=float(number < passed))
                for case, passed in passes[arm].items()
                for number in range(trials)
            ),
        )
        for arm in arms
    )
    weights = dict.fromkeys(passes[arms[0]], 1.0)
    return comparisons_of(RunSamples(name="run", arms=samples, weights=weights))


def table(*arms, columns=None, reasons=None, environ=None):
    screen = plain_screen() if columns is None else Screen(Tty(), {"COLUMNS": str(columns), **(environ or {})})
    return list(case_table(compare(*arms), reasons or {}, screen))


def test_losses_come_first_then_gains_and_then_what_is_the_same():
    lines = table("old", "new")

    assert [line[4:].split()[0] for line in lines[1:5]] == ["links", "tests", "日本語の名前を持つ場合", "same"]
    assert lines[1].split()[:5] == ["✗", "links", "10/10", "0/10", "-100"]
    assert lines[-1].strip() == "✓ ✗ certain by itself; other differences of single cases may be chance"


def test_each_candidate_has_columns_of_its_own():
    heading, *lines = table("old", "new", "best")

    assert heading.split()[:6] == ["case", "old", "new", "points", "best", "points"]
    assert lines[0].split()[2:7] == ["10/10", "0/10", "-100", "10/10", "0"]


def test_a_row_says_why_the_candidate_failed():
    reasons = {("new", "links"): "every entry has its link"}

    wide, narrow = (table("old", "new", columns=columns, reasons=reasons) for columns in (120, 40))

    assert wide[1].rstrip().endswith("every entry has its link")
    assert any(line.strip().endswith("│ every entry has its link") or "│" in line for line in narrow)


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_no_row_is_wider_than_the_terminal(columns):
    reasons = {("new", case): "a reason that has many words " * 9 for case in PASSES["new"]}
    lines = table("old", "new", columns=columns, reasons=reasons)

    rows = [STYLES.sub("", line).rstrip() for line in lines if "│" not in line and "certain" not in line]
    assert max(map(width, rows)) <= columns


def test_columns_stand_below_one_another_whatever_a_name_is_written_in():
    lines = table("old", "new")

    assert len({width(line.split("/10")[0]) for line in lines[1:5]}) == 1


def test_of_very_many_cases_those_that_moved_most_both_ways_are_shown():
    cases = [f"case-{number}" for number in range(200)]
    passes = {
        "old": dict.fromkeys(cases, 5),
        "new": {case: 10 if number < 40 else 0 if number >= 160 else 5 for number, case in enumerate(cases)},
    }
    lines = list(case_table(compare("old", "new", passes=passes), {}, plain_screen()))

    assert sum("-50" in line for line in lines) > 0
    assert sum("+50" in line for line in lines) > 0
    assert any("and 140 more cases, from " in line for line in lines)


def test_a_row_and_the_rates_of_one_comparison_say_the_same():
    [comparison] = compare("old", "new")

    lines = list(painted_lines(comparison, {}, plain_screen()))

    assert f"  rates       {rates_text(comparison)}" in lines
    assert [line for line in lines if line in table("old", "new")] == table("old", "new")


def test_a_name_of_a_stranger_is_one_harmless_line():
    evil = "x\x1b[2J\r\n\x07y"
    passes = {"old": {evil: 1}, "new": {evil: 0}}
    lines = list(case_table(compare("old", "new", passes=passes), {("new", evil): evil}, plain_screen()))

    assert not any(character in line for line in lines for character in "\x1b\r\n\x07")
