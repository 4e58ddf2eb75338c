"""Reporters are chosen by name, checked before anything runs, and cannot harm the run."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from reporting import MemoryResults, Pipe, Tty, all_pass, make_info, make_plan, play

from whet.errors import PluginError, UnknownName, UsageError
from whet.model.run_events import Notice, RunEnded, RunStarted
from whet.report.choose import ReporterChoice, make_reporters, parse_reporter
from whet.report.contract import Reporters


def make(*specs, base: Path, stdout=None, stderr=None, environ=None) -> Reporters:
    return make_reporters(
        specs, base=base, stdout=stdout or Pipe(), stderr=stderr or io.StringIO(), environ=environ or {}
    )


class Recorder:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.events: list[object] = []

    def __call__(self, event: object) -> None:
        self.events.append(event)


class Breaking:
    """A reporter that breaks on every event."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.calls = 0
        self.closed = False

    def __call__(self, event: object) -> None:
        self.calls += 1
        raise self.error

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("terminal", ReporterChoice("terminal", None)),
        ("junit=out.xml", ReporterChoice("junit", "out.xml")),
        ("junit=a=b.xml", ReporterChoice("junit", "a=b.xml")),
        ("json=-", ReporterChoice("json", None)),
        ("mine.reports:Mine=out", ReporterChoice("mine.reports:Mine", "out")),
    ],
)
def test_a_reporter_is_a_name_with_an_optional_target(text, choice):
    assert parse_reporter(text) == choice


@pytest.mark.parametrize("text", ["", "=out.xml", "junit="])
def test_half_a_choice_is_refused(text):
    with pytest.raises(UsageError):
        parse_reporter(text)


def test_an_unknown_name_is_answered_with_the_nearest(tmp_path):
    with pytest.raises(UnknownName) as caught:
        make("jnit=out.xml", base=tmp_path)

    assert caught.value.hint == 'did you mean "junit"?'


def test_a_missing_folder_is_found_before_anything_runs(tmp_path):
    with pytest.raises(UsageError, match="no such folder") as caught:
        make("junit=reports/out.xml", base=tmp_path)

    assert f"mkdir -p {tmp_path}/reports" in caught.value.hint


def test_a_folder_is_no_target(tmp_path):
    with pytest.raises(UsageError, match="is a folder"):
        make(f"junit={tmp_path}", base=tmp_path)


def test_one_file_cannot_be_written_by_two(tmp_path):
    with pytest.raises(UsageError, match='"junit" and "json" would both write to'):
        make("junit=out", "json=./out", base=tmp_path)


def test_two_documents_cannot_share_stdout(tmp_path):
    with pytest.raises(UsageError, match="both write to stdout"):
        make("junit", "json", base=tmp_path)


@pytest.mark.parametrize("name", ["terminal", "github"])
def test_reporters_of_the_screen_take_no_file_and_come_once(tmp_path, name):
    with pytest.raises(UsageError, match="takes no file"):
        make(f"{name}=out.txt", base=tmp_path)
    with pytest.raises(UsageError, match="the screen"):
        make(name, name, base=tmp_path)


def test_relative_targets_start_at_the_base_folder(tmp_path):
    reporters = make("markdown=out.md", base=tmp_path)

    play(reporters, make_plan(), all_pass)

    assert (tmp_path / "out.md").read_text().startswith("# core\n")


def test_only_file_reporters_leave_stdout_and_stderr_empty(tmp_path):
    stdout, stderr = Pipe(), io.StringIO()
    reporters = make("markdown=out.md", "junit=out.xml", base=tmp_path, stdout=stdout, stderr=stderr)

    play(reporters, make_plan(), all_pass)

    assert stdout.text() == ""
    assert stderr.getvalue() == ""


def test_a_document_on_stdout_is_alone_there(tmp_path):
    stdout, stderr = Pipe(), io.StringIO()
    reporters = make("terminal", "markdown", base=tmp_path, stdout=stdout, stderr=stderr)

    play(reporters, make_plan(), all_pass)

    assert stdout.text().startswith("# core\n")
    assert stderr.getvalue().startswith("whet 0.1.0\n")


def test_a_reporter_of_ones_own_is_named_as_module_and_object(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    lines = ["def factory(context):", "    return lambda event: context.stdout.write(type(event).__name__ + ' ')"]
    (tmp_path / "house_reports.py").write_text("\n".join(lines))
    stdout = Pipe()
    reporters = make("house_reports:factory", base=tmp_path, stdout=stdout)

    play(reporters, make_plan(["add"]), all_pass)

    assert stdout.text() == "RunStarted TrialStarted TrialEnded RunEnded "


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("no.such.module:thing", "cannot be loaded"),
        ("math:pi", "not a callable"),
        ("math:sqrt", "cannot be created: TypeError"),
        ("builtins:repr", "cannot be called with events"),
    ],
)
def test_a_reporter_that_cannot_be_made_is_a_plug_in_error(tmp_path, name, problem, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))

    with pytest.raises(PluginError, match=problem):
        make(name, base=tmp_path)


def test_a_reporter_that_raises_is_named_and_dropped_and_the_others_go_on():
    stderr, first, last, broken = io.StringIO(), Recorder(), Recorder(), Breaking(KeyError("cost"))
    reporters = Reporters([("first", first), ("mine", broken), ("last", last)], stderr=stderr)

    play(reporters, make_plan(["add"]), all_pass)

    told = "reporter \"mine\" raised KeyError: 'cost' and was dropped"
    assert stderr.getvalue() == f"warning: {told}\n"
    assert broken.calls == 1
    assert broken.closed
    for recorder in (first, last):
        names = [type(event).__name__ for event in recorder.events]
        assert names == ["RunStarted", "Notice", "TrialStarted", "TrialEnded", "RunEnded"]
        assert recorder.events[1] == Notice(level="warning", message=told)


def test_reporters_that_all_raise_are_each_named_once():
    stderr = io.StringIO()
    reporters = Reporters([(name, Breaking(ValueError("no\x1b[2J\ngood"))) for name in ("one", "two")], stderr=stderr)

    play(reporters, make_plan(["add"]), all_pass)

    assert stderr.getvalue().splitlines() == [
        f'warning: reporter "{name}" raised ValueError: no good and was dropped' for name in ("one", "two")
    ]


def test_a_closed_stderr_does_not_end_the_run():
    stderr = io.StringIO()
    stderr.isatty = lambda: False
    stderr.close()
    broken, other = Breaking(KeyError("x")), Recorder()
    reporters = Reporters([("mine", broken), ("other", other)], stderr=stderr)

    play(reporters, make_plan(["add"]), all_pass)

    assert broken.calls == 1
    assert type(other.events[-1]).__name__ == "RunEnded"


def test_an_interrupt_is_not_taken_for_a_broken_reporter():
    reporters = Reporters([("mine", Breaking(KeyboardInterrupt()))], stderr=io.StringIO())

    with pytest.raises(KeyboardInterrupt):
        reporters(Notice(level="info", message="hello"))


def test_a_live_screen_tells_of_a_broken_reporter_itself():
    stderr, live = Tty(), Recorder()
    live.live = True
    reporters = Reporters([("live", live), ("mine", Breaking(KeyError("x")))], stderr=stderr)

    reporters(RunStarted(info=make_info(), plan=make_plan()))

    assert stderr.getvalue() == ""
    assert isinstance(live.events[-1], Notice)


def test_leaving_lets_every_reporter_go():
    broken = Breaking(KeyError("x"))

    with Reporters([("mine", broken)], stderr=io.StringIO()):
        pass

    assert broken.closed


def test_a_failing_writer_leaves_the_old_file_whole(tmp_path):
    (tmp_path / "out.xml").write_text("old")
    reporters = make("junit=out.xml", base=tmp_path)
    asked = []

    def breaks(key):
        asked.append(key)
        raise OSError("the record cannot be read")

    results = MemoryResults(make_plan(), breaks)
    reporters(RunEnded(info=make_info(), results=results, interrupted=False))

    assert asked
    assert [path.name for path in tmp_path.iterdir()] == ["out.xml"]
    assert (tmp_path / "out.xml").read_text() == "old"
