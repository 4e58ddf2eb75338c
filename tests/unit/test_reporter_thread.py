"""Somebody else's reporter may hang anywhere: it is named and left behind, and nothing waits for it twice."""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from reporting import Pipe, all_pass, make_plan, play

from whet.errors import PluginError
from whet.model.run_events import Notice
from whet.report._thread import BACKLOG, Hangs, Patience, ReporterThread, ThreadedReporter
from whet.report.choose import make_reporters
from whet.report.contract import Reporters

HELLO = Notice(level="info", message="hello")
# Long enough for whatever does not hang, on any machine.
LONG = Patience(event_s=30, whole_s=30)
SHORT = Patience(event_s=0.2, whole_s=0.2)


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """What a hanging reporter waits for, so that its thread ends with the test."""
    event = threading.Event()
    yield event
    event.set()


class Hanging:
    """A reporter that hangs on one kind of event, or when it is closed."""

    def __init__(self, where: str, release: threading.Event) -> None:
        self.where = where
        self.release = release
        self.seen: list[str] = []

    def __call__(self, event: object) -> None:
        self.seen.append(type(event).__name__)
        if type(event).__name__ == self.where:
            self.release.wait()

    def close(self) -> None:
        self.seen.append("close")
        if self.where == "close":
            self.release.wait()


def guarded(reporter, patience: Patience = LONG) -> ThreadedReporter:
    return ThreadedReporter(reporter, ReporterThread("mine"), patience)


def taken_until(error: type[Exception], reporter: ThreadedReporter) -> int:
    """How many events a reporter takes before it raises *error*."""
    for taken in range(1_000_000):
        try:
            reporter(HELLO)
        except error:
            return taken
    raise AssertionError("it takes any number")


def wait_for_threads_since(before: set[threading.Thread]) -> None:
    for thread in set(threading.enumerate()) - before:
        thread.join(300)
        assert not thread.is_alive()


def theirs(text: str, folder: Path, monkeypatch, *, patience: Patience = LONG, stderr=None) -> tuple[Reporters, Pipe]:
    """The reporter `factory` of a module that does not belong to whet."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"theirs_{folder.name}".replace("-", "_")
    (folder / f"{name}.py").write_text(text)
    stdout = Pipe()
    made = make_reporters(
        [f"{name}:factory"],
        base=folder,
        stdout=stdout,
        stderr=stderr or io.StringIO(),
        environ={},
        patience=patience,
    )
    return made, stdout


@pytest.mark.parametrize("where", ["RunStarted", "RunEnded"])
def test_a_reporter_that_hangs_where_it_is_waited_for_is_dropped(where, release):
    stderr, mine = io.StringIO(), Hanging(where, release)
    reporters = Reporters([("mine", guarded(mine, SHORT))], stderr=stderr)

    play(reporters, make_plan(["add"]), all_pass)
    reporters.close()

    assert stderr.getvalue() == 'warning: reporter "mine" did not return within 0.2 s and was dropped\n'
    assert mine.seen[-1] == where


@pytest.mark.parametrize("where", ["TrialStarted", "TrialEnded"])
def test_one_that_hangs_on_the_way_is_dropped_at_the_end_at_the_latest(where, release):
    stderr, mine, other = io.StringIO(), Hanging(where, release), []
    reporters = Reporters([("mine", guarded(mine, SHORT)), ("other", other.append)], stderr=stderr)

    play(reporters, make_plan(["add", "sort"]), all_pass)

    assert stderr.getvalue().count('reporter "mine"') == 1
    assert "close" not in mine.seen
    names = [type(event).__name__ for event in other]
    assert sorted(names) == sorted(["RunStarted", *["TrialStarted", "TrialEnded"] * 2, "RunEnded", "Notice"])


def test_one_that_hangs_when_it_is_closed_is_named(release):
    stderr = io.StringIO()
    reporters = Reporters([("mine", guarded(Hanging("close", release), SHORT))], stderr=stderr)

    reporters.close()

    assert stderr.getvalue() == 'warning: reporter "mine" did not return within 0.2 s when it was closed\n'


def test_one_that_raises_when_it_is_closed_is_named_whoever_it_belongs_to():
    class Broken:
        def __call__(self, event: object) -> None: ...

        def close(self) -> None:
            raise OSError("no space left")

    stderr = io.StringIO()

    Reporters([("ours", Broken()), ("theirs", guarded(Broken()))], stderr=stderr).close()

    assert stderr.getvalue() == "".join(
        f'warning: reporter "{name}" raised OSError: no space left when it was closed\n' for name in ("ours", "theirs")
    )


def test_what_is_raised_on_the_way_is_told_with_the_next_event():
    seen = []

    def breaks(event):
        seen.append(event)
        raise ValueError("broken")

    reporter = guarded(breaks)

    taken_until(ValueError, reporter)
    reporter.close()

    assert len(seen) == 1


def test_a_keyboard_interrupt_that_a_reporter_raises_is_not_taken_for_ctrl_c():
    def breaks(event):
        raise KeyboardInterrupt

    stderr = io.StringIO()
    reporters = Reporters([("mine", guarded(breaks))], stderr=stderr)

    play(reporters, make_plan(["add"]), all_pass)

    assert stderr.getvalue().startswith('warning: reporter "mine" raised ')


def test_the_run_does_not_wait_for_a_slow_reporter_while_agents_run(release):
    mine = Hanging("Notice", release)
    reporter = guarded(mine)

    for _ in range(BACKLOG):
        reporter(HELLO)
    waited = list(mine.seen)
    release.set()
    reporter.close()

    assert len(waited) <= 1
    assert mine.seen == ["Notice"] * BACKLOG + ["close"]


def test_no_more_events_than_the_backlog_are_held_for_it(release):
    mine = Hanging("Notice", release)
    reporter = guarded(mine, SHORT)

    taken = taken_until(Hangs, reporter)

    assert taken <= BACKLOG + 1


def test_a_loop_without_an_end_is_ended_when_it_is_left_behind():
    def spins(event):
        while True:
            time.sleep(0.001)

    before = set(threading.enumerate())
    reporters = Reporters([("mine", guarded(spins, SHORT))], stderr=io.StringIO())

    play(reporters, make_plan(["add"]), all_pass)

    wait_for_threads_since(before)


def test_all_of_a_reporter_happens_on_one_thread_that_ends_with_it(tmp_path, monkeypatch):
    text = """
import sqlite3

class Store:
    def __init__(self, context):
        # Its connection may be used on the thread that made it, and on no other.
        self.out, self.rows = context.stdout, sqlite3.connect(":memory:")
        self.rows.execute("create table seen (name)")
    def __call__(self, event):
        self.rows.execute("insert into seen values (?)", (type(event).__name__,))
    def close(self):
        self.out.write(str(self.rows.execute("select count(*) from seen").fetchone()[0]))

factory = Store
"""
    before = set(threading.enumerate())
    reporters, stdout = theirs(text, tmp_path, monkeypatch)

    play(reporters, make_plan(["add"]), all_pass)
    reporters.close()

    assert stdout.text() == "4"
    wait_for_threads_since(before)


def test_ours_have_no_thread(tmp_path):
    before = threading.active_count()

    make_reporters(
        ["junit=a", "json=b", "markdown=c", "whet.report.terminal.reporter:TerminalReporter"],
        base=tmp_path,
        stdout=Pipe(),
        stderr=io.StringIO(),
        environ={},
    )

    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import time\nwhile True: time.sleep(0.01)", "cannot be loaded: its code did not return within"),
        ("import sys\nsys.exit(3)", "cannot be loaded: it tried to end the program, with exit code 3"),
        ("raise SystemExit", "cannot be loaded: it tried to end the program, with exit code 0"),
        ("import os\nos._exit(0)", "cannot be loaded: it tried to end the program, with exit code 0"),
        ("import os\ndef factory(context): os._exit(4)", "cannot be created: SystemExit: 4"),
        ("import time\ndef factory(context):\n    while True: time.sleep(0.01)", "cannot be created: its code did not"),
    ],
)
def test_a_module_that_hangs_or_exits_is_one_clear_error(text, told, tmp_path, monkeypatch):
    before = set(threading.enumerate())
    # What hangs when it is created has been loaded before.
    patience = {"cannot be loaded: its": SHORT, "cannot be created: its": Patience(event_s=2, whole_s=2)}

    with pytest.raises(PluginError, match=f"theirs_.*{told}"):
        theirs(text, tmp_path, monkeypatch, patience=patience.get(told.partition(" code")[0], LONG))

    wait_for_threads_since(before)
    assert os._exit.__module__ == "posix"
