"""Cases over runs: where a change of content changed one, how sure that is, and how it is printed."""

from __future__ import annotations

import random

import pytest
from reporting import Tty

from whet.decide.difference import discoveries
from whet.model.comparison import ArmSamples, RunSamples, Sampled
from whet.reading.text import width
from whet.report.decisions.case_history import case_histories
from whet.report.screen import STYLES, Screen, plain_screen
from whet.view.history.documents import HistoryDocument, HistoryPoint
from whet.view.history_table import history_lines


def run_of(name, rates, *, trials=5, chance=None, digests=None, arm="new"):
    """Return a run in which each case passes as often as *rates* say, or by chance."""
    draws = [
        Sampled(case=case, value=float(number < rate * trials if chance is None else chance.random() < rate))
        for case, rate in rates.items()
        for number in range(trials)
    ]
    samples = ArmSamples(arm=arm, runner="sh", trials=tuple(draws))
    return RunSamples(name=name, arms=(samples,), weights={}, digests=digests or {})


def document(segments, runs):
    contents = {run.name: str(number) for number, segment in enumerate(segments) for run in segment}
    points = [
        HistoryPoint(
            run=run, started_at=None, commit=None, skill=None, rate=None, arms=("new",), cases=2, cases_of_suite=2,
            counts={}, cost_usd=None, changed=None, content=contents[run], problem=None,
        )
        for run in runs
    ]  # fmt: skip
    return HistoryDocument(suite="suite", points=tuple(points), cases=case_histories([segments], runs))


LINKS = "links-pull-requests-日本語の名前"
SEGMENTS = [
    [run_of("r1", {"easy": 1, LINKS: 1}), run_of("r2", {"easy": 1, LINKS: 1})],
    [run_of("r3", {"easy": 1, LINKS: 0}), run_of("r4", {"easy": 0.8, LINKS: 0})],
    [run_of("r5", {"easy": 1, LINKS: 1})],
]
RUNS = ["r1", "r2", "r3", "r4", "r5"]


def test_a_case_that_got_worse_with_a_content_is_decided_and_comes_first():
    first, second = case_histories([SEGMENTS], RUNS)

    assert (first.case, second.case) == (LINKS, "easy")
    assert [(step.run, step.before, step.after, step.decided) for step in first.steps] == [
        ("r3", 1.0, 0.0, True),
        ("r5", 0.0, 1.0, True),
    ]
    assert [cell and cell.value for cell in first.cells] == [1.0, 1.0, 0.0, 0.0, 1.0]
    assert not any(step.decided for step in second.steps)


def test_a_run_without_a_case_has_no_cell_and_the_next_content_is_compared_with_the_last_that_has_it():
    segments = [
        [run_of("r1", {"a": 1, "b": 1}, trials=9)],
        [run_of("r2", {"a": 1})],
        [run_of("r3", {"a": 1, "b": 0}, trials=9)],
    ]

    b = next(each for each in case_histories([segments], ["r1", "r2", "r3"]) if each.case == "b")

    assert [cell is None for cell in b.cells] == [False, True, False]
    assert [(step.run, step.before, step.after) for step in b.steps] == [("r3", 1.0, 0.0)]


def test_a_case_that_asks_something_else_is_edited_and_not_compared():
    segments = [[run_of("r1", {"a": 1}, digests={"a": "1"})], [run_of("r2", {"a": 0}, digests={"a": "2"})]]

    [a] = case_histories([segments], ["r1", "r2"])

    assert (a.edited, a.steps) == (("r2",), ())


def test_arms_of_other_names_are_rows_of_their_own_those_that_ran_last_first():
    segments = [[run_of("r1", {"a": 1}, arm="one")]], [[run_of("r2", {"a": 0}, arm="two")]]

    assert [(each.arm, each.steps) for each in case_histories(segments, ["r1", "r2"])] == [("two", ()), ("one", ())]


def test_chances_count_by_their_rank():
    assert discoveries([0.01, 0.04, 0.03, 0.9]) == pytest.approx([0.04, 0.16 / 3, 0.16 / 3, 0.9])
    assert discoveries([]) == []
    assert discoveries([1.0, 1.0]) == [1.0, 1.0]


def test_of_a_suite_that_has_not_changed_hardly_anything_is_called_a_change():
    chance = random.Random(7)
    wrong = 0
    for _ in range(60):
        rates = {str(case): chance.choice((0.2, 0.5, 0.8, 0.95)) for case in range(20)}
        segments = [[run_of(f"r{number}", rates, chance=chance)] for number in range(6)]
        histories = case_histories([segments], [f"r{number}" for number in range(6)])
        wrong += any(step.decided for each in histories for step in each.steps)

    # A family in which nothing is real is wrong as soon as anything is called decided: 5 % of 60 are 3.
    assert wrong <= 6


def test_real_changes_are_found_and_few_others_beside_them():
    chance = random.Random(3)
    real, false = 0, 0
    for _ in range(20):
        before = {str(case): 0.9 for case in range(30)}
        after = {case: 0.1 if int(case) < 10 else rate for case, rate in before.items()}
        segments = [[run_of("r1", before, chance=chance, trials=8)], [run_of("r2", after, chance=chance, trials=8)]]
        decided = [
            each.case for each in case_histories([segments], ["r1", "r2"]) if any(step.decided for step in each.steps)
        ]
        real += sum(int(case) < 10 for case in decided)
        false += sum(int(case) >= 10 for case in decided)

    assert real > 140
    assert false / (real + false) < 0.05


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_the_grid_fits_on_the_terminal_and_keeps_the_newest_runs(columns):
    runs = [f"r{number}" for number in range(30)]
    segments = [[run_of(run, {LINKS: number % 2, "easy": 1})] for number, run in enumerate(runs)]
    screen = Screen(Tty(), {"COLUMNS": str(columns), "NO_COLOR": "1"})

    lines = list(history_lines(document(segments, runs), screen))

    start = next(number for number, line in enumerate(lines) if line.startswith("cases by run"))
    heading, row = lines[start + 1], lines[start + 2]
    assert heading.split()[-1] == "30"
    assert width(heading) <= columns
    assert row.startswith("  links")
    assert "25 earlier, worse with 27, better with 28" in row
    assert any("are left out" in line for line in lines)


def test_a_narrow_terminal_goes_without_the_columns_that_say_least_and_no_row_wraps():
    lines = list(history_lines(document(SEGMENTS, RUNS), Screen(Tty(), {"COLUMNS": "40", "NO_COLOR": "1"})))

    assert lines[1].split() == ["#", "run", "arm", "cases", "rate", "cost", "change"]
    assert max(map(width, lines[1 : 2 + len(RUNS)])) <= 40


def test_a_rule_stands_where_the_content_changed_and_words_say_which_change_is_decided():
    lines = list(history_lines(document(SEGMENTS, RUNS), plain_screen()))

    start = next(number for number, line in enumerate(lines) if line.startswith("cases by run"))
    assert lines[start + 1].split() == ["case", "1", "2", "│", "3", "4", "│", "5"]
    assert lines[start + 2].split()[1:] == [
        "100",
        "100",
        "│",
        "0",
        "0",
        "│",
        "100",
        "worse",
        "with",
        "3,",
        "better",
        "with",
        "5",
    ]
    assert lines[start + 4].strip() == "of the changes that are called better or worse here, at most 5 % are chance"


def test_colour_says_no_more_than_the_words():
    plain = list(history_lines(document(SEGMENTS, RUNS), plain_screen()))
    coloured = list(history_lines(document(SEGMENTS, RUNS), Screen(Tty(), {"COLUMNS": "200"})))

    assert [STYLES.sub("", line) for line in coloured] == plain
    assert coloured != plain


def test_a_name_of_a_stranger_is_one_harmless_line():
    evil = "x\x1b[2J\r\n\x07y"
    segments = [[run_of("r1", {evil: 1})], [run_of("r2", {evil: 0})]]

    lines = list(history_lines(document(segments, ["r1", "r2"]), plain_screen()))

    assert not any(character in line for line in lines for character in "\x1b\r\n\x07")
