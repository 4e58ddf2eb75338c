"""Progress on a live terminal: a bar, and the trials that are running. It imports rich, the slowest part of a start."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from math import inf
from threading import Lock

from rich.console import Console
from rich.live import Live
from rich.text import Text

from whet.model.grade import STATUSES, Status
from whet.model.run import Trial, TrialKey, TrialResult
from whet.model.run_events import RunStarted
from whet.reading.text import duration, money, number, right
from whet.report.digest import words_of
from whet.report.screen import Screen
from whet.report.terminal.progress import CALLS_SHOWN, STATUS_STYLES, TrialLines

_RUNNING_ROWS = 8
_REFRESHES_PER_S = 8
# With fewer trials that have ended, an estimate would jump.
_LEAST_ENDED = 3
_WIDEST_BAR, _NARROWEST_BAR = 30, 6
_USUAL_COLUMNS = 80
_COLOURS = {"good": "green", "bad": "red", "warn": "yellow", "dim": "dim", "bold": "bold"}
_BAR_COLOURS = ("green", "yellow", "red")


class LiveProgress:
    """Keeps a few counters, which the thread of rich draws, so that an event costs next to nothing."""

    live = True

    def __init__(self, start: RunStarted, screen: Screen, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._screen = screen
        self._lines = TrialLines(start.plan, screen)
        self._clock = clock
        self._begun = clock()
        self._total = start.plan.trial_count
        self._before = start.done
        self._until = start.plan.until is not None
        self._noun = words_of(start.info.command).trial
        # There may be many calls, and they often fail for one reason.
        self._left: float = CALLS_SHOWN if start.info.command == "eval" else inf
        self._counts: Counter[Status] = Counter()
        self._cost_usd: float | None = None
        self._running: dict[TrialKey, tuple[str, float]] = {}
        self._look = ""
        # The drawing thread reads what other threads change.
        self._lock = Lock()
        self._live = _start(screen, self._draw)

    def started(self, trial: Trial) -> None:
        """Add *trial* to the running ones."""
        row = (self._lines.name(trial), self._clock())
        with self._lock:
            self._running[trial.key] = row

    def ended(self, trial: Trial, result: TrialResult) -> None:
        """Count *trial*, and show it above the bar if it did not go as expected."""
        with self._lock:
            self._running.pop(trial.key, None)
            self._counts[result.status] += 1
            if (cost := result.spending.cost_usd) is not None:
                self._cost_usd = (self._cost_usd or 0) + cost
            count = self._before + self._counts.total()
        if not result.passed and self._left:
            self._left -= 1
            self.line(self._lines.ended(trial, result, count))

    def line(self, text: str) -> None:
        """Show a line above the bar."""
        self._live.console.print(Text.from_ansi(self._screen.fit(text)), soft_wrap=True)

    def looked(self, text: str) -> None:
        """Keep what was seen after the last round below the bar."""
        with self._lock:
            self._look = text

    def stop(self) -> None:
        """Remove the bar and release the terminal."""
        self._live.stop()

    def _draw(self) -> Text:
        with self._lock:
            counts = self._counts.copy()
            running = list(self._running.values())
            look = self._look
        now = self._clock()
        canvas = Text(no_wrap=True, overflow="ellipsis")
        for text, style in self._bar(counts, now):
            canvas.append(self._screen.fit(text), style)
        if look:
            canvas.append(f"\n    {self._screen.fit(look)}", "bold")
        # The oldest first: people wonder about those.
        for name, since in running[:_RUNNING_ROWS]:
            canvas.append(f"\n    {name}  {right(duration(now - since), 11)}", "")
        if len(running) > _RUNNING_ROWS:
            canvas.append(f"\n    and {len(running) - _RUNNING_ROWS} more running", "dim")
        return canvas

    def _bar(self, counts: Counter[Status], now: float) -> Iterator[tuple[str, str]]:
        count = self._before + counts.total()
        facts = [(f"  {number(count)}/{number(self._total)} {self._noun}s  {self._times(counts.total(), now)}", "")]
        facts += [
            (f"  {number(counts[status])} {status}", _COLOURS[STATUS_STYLES[status]])
            for status in STATUSES
            if counts[status]
        ]
        if self._cost_usd is not None:
            facts.append((f"  {money(self._cost_usd)}", ""))
        # The bar takes the room that the words leave.
        room = (self._screen.columns or _USUAL_COLUMNS) - 2 - sum(len(text) for text, _ in facts)
        yield "\n  ", ""
        yield from _segments(counts, self._before, self._total, max(_NARROWEST_BAR, min(_WIDEST_BAR, room)))
        yield from facts

    def _times(self, ended: int, now: float) -> str:
        """Return how long it has taken, and about how long it will."""
        gone = now - self._begun
        missing = self._total - self._before - ended
        if ended < _LEAST_ENDED or not missing:
            return duration(gone)
        # Of a run until decided, the plan has the most trials.
        most = "at most " if self._until else ""
        return f"{duration(gone)}, {most}{duration(gone / ended * missing)} left"


def _segments(counts: Counter[Status], before: int, total: int, width: int) -> Iterator[tuple[str, str]]:
    """Yield the bar: each status has its share, and at least one cell."""
    amounts = {"dim": before} | dict.fromkeys(_BAR_COLOURS, 0)
    for status, amount in counts.items():
        amounts[_COLOURS[STATUS_STYLES[status]]] += amount
    cells = {colour: max(1, width * amount // total) for colour, amount in amounts.items() if amount}
    filled_cells = max(width * sum(amounts.values()) // max(1, total), len(cells))
    if cells:
        # The largest share takes the rounding error, where it shows least.
        cells[max(cells, key=cells.__getitem__)] += filled_cells - sum(cells.values())
    for colour, size in cells.items():
        yield "━" * size, colour
    yield "─" * (width - filled_cells), "dim"


def _start(screen: Screen, draw: Callable[[], Text]) -> Live:
    console: Console = Console(
        file=screen.stream,
        force_terminal=True,
        color_system="standard" if screen.colour else None,
        no_color=not screen.colour,
        highlight=False,
        markup=False,
        emoji=False,
    )
    live = Live(
        console=console,
        get_renderable=draw,
        refresh_per_second=_REFRESHES_PER_S,
        transient=True,
        # Other output on the same terminal would tear the bar; output to a file stays there.
        redirect_stdout=sys.stdout.isatty(),
        redirect_stderr=sys.stderr.isatty(),
    )
    live.start()
    return live
