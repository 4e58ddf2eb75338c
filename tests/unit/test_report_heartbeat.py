"""A log that would be silent says what is running."""

from __future__ import annotations

import threading

import pytest
from reporting import Pipe, all_pass, make_info, make_plan, trial_of

from whet.model.run_events import RunStarted
from whet.report.screen import Screen
from whet.report.terminal import progress as heartbeat
from whet.report.terminal.progress import Heartbeat, PlainProgress


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def begin():
    """Starts a progress on a pipe, and stops it whatever happens."""
    begun: list[PlainProgress] = []

    def go(plan, clock) -> tuple[PlainProgress, Pipe]:
        pipe = Pipe()
        progress = PlainProgress(RunStarted(info=make_info(), plan=plan), Screen(pipe, {}), clock=clock)
        begun.append(progress)
        return progress, pipe

    yield go
    for progress in begun:
        progress.stop()


def test_a_sign_of_life_says_what_is_running_and_for_how_long(begin):
    plan, clock = make_plan(["add", "sort"], trials=2), Clock()
    progress, pipe = begin(plan, clock)
    progress.started(trial_of(plan, 0))
    clock.now += 40
    progress.started(trial_of(plan, 2))
    clock.now += 22

    progress.beat()

    assert pipe.text() == "  0/4  still running: add @ claude #1 (1 min 02 s), sort @ claude #1 (22.0 s)\n"


def test_trials_that_ended_are_not_among_those_that_run(begin):
    plan = make_plan(["add", "sort"])
    progress, pipe = begin(plan, Clock())
    for trial in plan.trials():
        progress.started(trial)
    progress.ended(trial_of(plan, 0), all_pass(trial_of(plan, 0).key))

    progress.beat()

    assert pipe.text().splitlines()[-1] == "  1/2  still running: sort @ claude (0.0 s)"


def test_of_many_trials_the_oldest_are_named(begin):
    plan = make_plan([f"case-{number}" for number in range(9)])
    progress, pipe = begin(plan, Clock())
    for trial in plan.trials():
        progress.started(trial)

    progress.beat()

    assert "case-3 @ claude (0.0 s), and 5 more\n" in pipe.text()
    assert "case-4" not in pipe.text()


def test_where_nothing_runs_nothing_is_said(begin):
    progress, pipe = begin(make_plan(), Clock())

    progress.beat()

    assert pipe.text() == ""


def test_silence_is_broken_again_and_again(monkeypatch):
    monkeypatch.setattr(heartbeat, "FIRST_S", 0.01)
    monkeypatch.setattr(heartbeat, "LONGEST_S", 0.03)
    said, enough = [], threading.Event()

    def tell() -> None:
        said.append(1)
        if len(said) == 4:
            enough.set()

    beating = Heartbeat(tell)

    assert enough.wait(300)
    beating.stop()


def test_after_its_end_nothing_is_said(monkeypatch):
    monkeypatch.setattr(heartbeat, "FIRST_S", 0.001)
    said: list[int] = []
    beating = Heartbeat(lambda: said.append(1))

    beating.stop()
    before = len(said)

    assert threading.Event().wait(0.05) is False
    assert len(said) == before


def test_a_stream_that_is_gone_does_not_end_it(monkeypatch):
    monkeypatch.setattr(heartbeat, "FIRST_S", 0.001)
    tried = threading.Semaphore(0)

    def tell() -> None:
        tried.release()
        raise BrokenPipeError

    beating = Heartbeat(tell)

    assert all(tried.acquire(timeout=300) for _ in range(3))
    beating.stop()
