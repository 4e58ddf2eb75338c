"""On a terminal a bar and the running trials are drawn, and taken away again."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections import Counter

import pytest
from reporting import (
    Stage,
    Tty,
    all_pass,
    by_case,
    errored,
    failed,
    make_info,
    make_plan,
    passed,
    play,
    trial_of,
    usage,
)

from whet.model.run_events import Notice, RunStarted, TrialEnded, TrialStarted
from whet.report.screen import Screen
from whet.report.terminal._live import _RUNNING_ROWS, LiveProgress, _segments
from whet.report.terminal.reporter import TerminalReporter

HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


@pytest.fixture
def stage():
    return Stage(stdout=Tty())


@pytest.fixture
def start():
    """Starts a progress with a clock that stands still, and stops it whatever happens."""
    begun: list[LiveProgress] = []

    def go(plan, *, done=0, now=lambda: 100.0):
        progress = LiveProgress(
            RunStarted(info=make_info(), plan=plan, done=done), Screen(Tty(), {"NO_COLOR": "1"}), clock=now
        )
        begun.append(progress)
        return progress

    yield go
    for progress in begun:
        progress.stop()


def test_the_terminal_is_given_back_before_the_ending(stage):
    play(TerminalReporter(stage.context), make_plan(["a"]), all_pass)

    assert stage.printed.index(HIDE_CURSOR) < stage.printed.index(SHOW_CURSOR)
    assert stage.printed.index(SHOW_CURSOR) < stage.printed.index("1 of 1 trial went as expected")


def test_only_trials_that_did_not_go_as_expected_are_printed_above_the_bar(stage):
    play(TerminalReporter(stage.context), make_plan(["a", "b", "c"]), by_case({"b": failed, "c": errored}))

    above = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stage.printed.split(SHOW_CURSOR)[0])
    assert "2/3  ✗ b  claude       12.3 s  failed: expected 3, got 4\n" in above
    assert "3/3  ! c  claude       12.3 s  errored: the provider answered 529: overloaded\n" in above
    assert "✓ a" not in above


def test_the_bar_tells_how_many_are_done_and_how_they_went(start):
    plan = make_plan(["a", "b", "c", "d"])
    progress = start(plan)

    for number, make in enumerate([all_pass, failed]):
        trial = trial_of(plan, number)
        progress.started(trial)
        progress.ended(trial, make(trial.key))

    assert progress._draw().plain == f"\n  {'━' * 15}{'─' * 15}  2/4 trials  0.0 s  1 passed  1 failed"


def test_the_bar_tells_what_was_spent_and_about_how_long_the_rest_takes(start):
    times = iter([0.0])
    plan = make_plan([f"case-{number}" for number in range(9)])
    progress = start(plan, done=1, now=lambda: next(times, 6.0))

    for number in range(2):
        progress.ended(trial := trial_of(plan, number), passed(trial.key, usage=usage(10, 2, 0.5)))
    early = progress._draw().plain
    progress.ended(trial := trial_of(plan, 2), passed(trial.key))
    late = progress._draw().plain

    assert early.endswith("  3/9 trials  6.0 s  2 passed  $1.00")
    assert late.endswith("  4/9 trials  6.0 s, 10.0 s left  3 passed  $1.00")


def test_trials_of_an_earlier_run_count_as_done(start):
    assert "3/4 trials" in start(make_plan(["a", "b", "c", "d"]), done=3)._draw().plain


def test_running_trials_are_listed_with_their_time_up_to_a_limit(start):
    times = iter([0.0, *[1.0] * 12])
    plan = make_plan([f"case-{number}" for number in range(11)])
    progress = start(plan, now=lambda: next(times, 13.3))

    for trial in plan.trials():
        progress.started(trial)

    drawn = progress._draw().plain.splitlines()
    assert len(drawn) == 2 + _RUNNING_ROWS + 1
    assert drawn[2].startswith("    case-0   claude")
    assert drawn[2].endswith(" s")
    assert drawn[-1] == "    and 3 more running"


def test_every_status_has_a_place_in_the_bar_and_the_whole_comes_out_even():
    counts = Counter({"passed": 9_998, "failed": 1, "errored": 1})

    segments = [(len(text), colour) for text, colour in _segments(counts, 0, 10_000, 30)]

    assert segments == [(28, "green"), (1, "yellow"), (1, "red"), (0, "dim")]
    assert "".join(text for text, _ in _segments(Counter(passed=36), 0, 36, 30)) == "━" * 30


def test_notices_and_hostile_names_stay_words(stage):
    evil = "x\x1b[2J\x1b]0;owned\x07[bold]y[/bold]:smile:"
    reporter = TerminalReporter(stage.context)
    plan = make_plan([evil])
    trial = trial_of(plan)

    for event in (
        RunStarted(info=make_info(), plan=plan),
        TrialStarted(trial=trial),
        Notice(level="warning", message=evil),
        TrialEnded(trial=trial, result=failed(trial.key, evil)),
    ):
        reporter(event)
    reporter.close()

    assert "x[bold]y[/bold]:smile:" in stage.printed
    assert "\x1b[2J" not in stage.printed
    assert "owned" not in stage.printed


def test_closing_early_gives_the_terminal_back_and_ends_the_drawing_thread(stage):
    before = set(threading.enumerate())
    reporter = TerminalReporter(stage.context)

    reporter(RunStarted(info=make_info(), plan=make_plan()))
    assert reporter.live
    reporter.close()
    reporter.close()

    assert not reporter.live
    assert SHOW_CURSOR in stage.printed
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=300)
    assert set(threading.enumerate()) <= before


def test_no_colour_is_used_on_a_terminal_whose_owner_wants_none():
    stage = Stage(stdout=Tty(), environ={"NO_COLOR": "1"})

    play(TerminalReporter(stage.context), make_plan(["a"]), failed)

    assert not re.search(r"\x1b\[[0-9;]*m", stage.printed)


def test_plain_output_never_loads_rich():
    code = "import sys, whet.report.terminal.reporter; sys.exit('rich' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
