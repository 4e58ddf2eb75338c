"""Show progress in plain lines, one for each finished trial: for logs, pipes and simple terminals."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Lock

from whet.model.grade import AS_EXPECTED
from whet.model.run import Plan, Trial, TrialKey, TrialResult
from whet.model.run_events import Notice, RunStarted
from whet.reading.text import count, duration, fitted, left, one_line, right, width
from whet.report.failed_cases import reason_of
from whet.report.finding import ShownStatus, class_of, execution_name, own_label, trial_name
from whet.report.screen import Screen, Style

# The first sign of life comes after this much silence, and each further one after twice as much, up to the longest:
# CI systems end jobs that are silent for ten minutes.
FIRST_S = 30.0
LONGEST_S = 240.0


class Heartbeat:
    """Calls *beat* on its own thread when nothing was printed for too long; *beat* must not call it back."""

    def __init__(self, beat: Callable[[], None]) -> None:
        self._call = beat
        self._changed = threading.Condition()
        self._heard = 0
        self._over = False
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        # Without a thread the log is silent, and the run goes on.
        with suppress(RuntimeError):
            self._thread.start()

    def heard(self) -> None:
        """Start waiting again, because something was printed."""
        with self._changed:
            self._heard += 1
            self._changed.notify_all()

    def stop(self) -> None:
        """End the thread; nothing is printed after this."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def _beat(self) -> None:
        wait_s = FIRST_S
        while not self._over:
            if not self._is_silent_for(wait_s):
                wait_s = FIRST_S
                continue
            # Printing the next trial notices a broken stream.
            with suppress(OSError, ValueError):
                self._call()
            wait_s = min(2 * wait_s, LONGEST_S)

    def _is_silent_for(self, seconds: float) -> bool:
        """Wait up to *seconds* and return whether nothing was printed."""
        with self._changed:
            before = self._heard
            return not self._changed.wait_for(lambda: self._over or self._heard != before, seconds)


STATUS_STYLES: dict[ShownStatus, Style] = {
    "passed": "good",
    "failed": "bad",
    "expected-failed": "good",
    "unexpected-passed": "bad",
    "errored": "warn",
    "not-run": "dim",
    "void": "dim",
}
_WIDEST_CASE = 48
_WIDEST_RUNNER = 24
_WIDEST_NOTE = 120
_NARROWEST_CASE = 16
# Such as "failed: Runner crash".
_USUAL_NOTE = 22
_TIME_WIDTH = 11
# How many calls of an evaluation get a line of their own; there may be many.
CALLS_SHOWN = 20
# How many running trials a sign of life names.
_RUNNING_NAMED = 4


def symbol(status: ShownStatus) -> str:
    """Return one character for *status*, which can be read without colour."""
    if status == "errored":
        return "!"
    if status in {"not-run", "void"}:
        return "·"
    return "✓" if status in AS_EXPECTED else "✗"


def mark_of(status: ShownStatus, *, baseline: bool) -> tuple[str, Style]:
    """Return the sign of *status* and its style; a baseline that failed has failed, although nothing counts it."""
    if baseline and status == "expected-failed":
        return "✗", "dim"
    return symbol(status), STATUS_STYLES[status]


def notice_line(notice: Notice, screen: Screen) -> str:
    """Return the line of *notice*."""
    lead = screen.paint("warning:", "warn") if notice.level == "warning" else "note:"
    return f"  {lead} {one_line(notice.message, 1000)}"


class TrialLines:
    """Formats trials as lines, in columns that fit the whole plan."""

    def __init__(self, plan: Plan, screen: Screen) -> None:
        self._screen = screen
        self._total = plan.trial_count
        self._baseline = plan.baseline
        self._numbered = any(execution.trials > 1 for execution in plan.executions)
        self._number_width = max((len(str(execution.trials)) for execution in plan.executions), default=1) + 1
        cases = (width(execution_name(each.case.id, each.arm)) for each in plan.executions)
        self._case_width = min(max(cases, default=0), _WIDEST_CASE)
        runners = {execution.runner.id for execution in plan.executions}
        self._runner_width = min(max((width(one_line(each)) for each in runners), default=0), _WIDEST_RUNNER)
        self._note_width = _WIDEST_NOTE
        if screen.columns is not None:
            self._narrow(screen.columns)

    def _narrow(self, columns: int) -> None:
        """Shorten names, and then notes, so that a line fits on the terminal."""
        place = 2 * len(str(self._total)) + 1
        number = self._number_width + 2 if self._numbered else 0
        taken_width = 2 + place + 4 + 2 + self._runner_width + number + 2 + _TIME_WIDTH + 2
        self._case_width = min(self._case_width, max(_NARROWEST_CASE, columns - taken_width - _USUAL_NOTE))
        self._note_width = min(_WIDEST_NOTE, max(_USUAL_NOTE, columns - taken_width - self._case_width))

    def name(self, trial: Trial) -> str:
        """Return case, runner and number of *trial*, in columns."""
        key = trial.key
        case = self._screen.fit(fitted(execution_name(key.case, key.arm), self._case_width))
        runner = self._screen.fit(fitted(one_line(key.runner), self._runner_width))
        number = f"  {left(f'#{key.number}', self._number_width)}" if self._numbered else ""
        return f"{left(case, self._case_width)}  {left(runner, self._runner_width)}{number}"

    def ended(self, trial: Trial, result: TrialResult, count: int) -> str:
        """Return the line of a finished trial."""
        is_baseline = result.key.arm == self._baseline
        sign, style = mark_of(result.status, baseline=is_baseline)
        place = self._place(count)
        time = right(duration(result.duration_s), _TIME_WIDTH)
        note = self._screen.fit(_note(result, self._note_width, baseline=is_baseline))
        painted_note = self._screen.paint(note, style) if note else ""
        mark = self._screen.paint(self._screen.fit(sign), style)
        return f"  {self._screen.paint(place, 'dim')}  {mark} {self.name(trial)}  {time}  {painted_note}"

    def running(self, names: list[str], count: int) -> str:
        """Return the line that names the running trials."""
        more = len(names) - _RUNNING_NAMED
        shown_names = [*names[:_RUNNING_NAMED], *([f"and {more} more"] if more > 0 else [])]
        return self._screen.paint(f"  {self._place(count)}  still running: {', '.join(shown_names)}", "dim")

    def _place(self, count: int) -> str:
        return right(f"{count}/{self._total}", 2 * len(str(self._total)) + 1)


class PlainProgress:
    """Prints each trial when it ends, and the running ones if that takes long."""

    live = False

    def __init__(self, start: RunStarted, screen: Screen, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._screen = screen
        self._lines = TrialLines(start.plan, screen)
        self._done = start.done
        self._clock = clock
        self._running: dict[TrialKey, tuple[str, float]] = {}
        # The thread of the heartbeat reads and prints too.
        self._lock = Lock()
        self._heartbeat = Heartbeat(self.beat)

    def started(self, trial: Trial) -> None:
        """Remember *trial*; its line is printed when it ends."""
        row = (trial_name(trial.key, trials=trial.execution.trials), self._clock())
        with self._lock:
            self._running[trial.key] = row

    def ended(self, trial: Trial, result: TrialResult) -> None:
        """Print the line of *trial*."""
        self._count(trial)
        self.line(self._lines.ended(trial, result, self._done))

    def line(self, text: str) -> None:
        """Print a line as it is."""
        with self._lock:
            self._screen.line(text)
        self._heartbeat.heard()

    def beat(self) -> None:
        """Print what is running and for how long, the oldest first."""
        with self._lock:
            now = self._clock()
            names = [f"{name} ({duration(now - since)})" for name, since in self._running.values()]
            if names:
                self._screen.line(self._lines.running(names, self._done))

    def looked(self, text: str) -> None:
        """Keep nothing below a bar: the line was printed."""

    def stop(self) -> None:
        """Stop the heartbeat."""
        self._heartbeat.stop()

    def _count(self, trial: Trial) -> None:
        with self._lock:
            self._running.pop(trial.key, None)
            self._done += 1


class CallProgress(PlainProgress):
    """Prints every call if there are few; else the first that do not pass, and the progress at each tenth."""

    def __init__(self, start: RunStarted, screen: Screen) -> None:
        super().__init__(start, screen)
        self._total = start.plan.trial_count
        self._few = self._total <= CALLS_SHOWN
        self._shown = 0

    def ended(self, trial: Trial, result: TrialResult) -> None:
        """Count the call, and print its line if it gets one."""
        if self._few:
            super().ended(trial, result)
            return
        self._count(trial)
        if not result.passed and self._shown < CALLS_SHOWN:
            self._shown += 1
            self.line(self._lines.ended(trial, result, self._done))
            if self._shown == CALLS_SHOWN:
                self.line("  the reports list further calls that do not pass, and --verbose shows them")
        if self._done * 10 // self._total > (self._done - 1) * 10 // self._total:
            self.line(f"  {self._done:,} of {count(self._total, 'call')} made")


def _note(result: TrialResult, limit: int, *, baseline: bool) -> str:
    """Return a few words about a trial; nothing if it simply passed, and why also of a baseline that failed."""
    if result.status == "passed":
        if result.vacuous:
            return "passed, as it would have without the agent (vacuous)"
        return f"passed on attempt {len(result.attempts)}" if result.flaky else ""
    if result.status == "unexpected-passed":
        return "" if baseline else result.status
    if result.status == "expected-failed" and not baseline:
        return result.status
    note = f"{'failed' if baseline and result.status == 'expected-failed' else result.status}: {_why(result)}"
    # The sign of the line says the status already, and the end of the run shows the whole reason.
    fitting = note if width(note) <= limit else _why(result)
    return fitting if width(fitting) <= limit else fitting[: limit - 1] + "…"


def _why(result: TrialResult) -> str:
    """Return what the author calls a failure, or else the line that says most of why."""
    return own_label(result) or reason_of(result) or class_of(result)[1]
