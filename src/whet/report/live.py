"""Show live progress on a terminal: a bar, the running trials, and failures above them as they happen."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from math import inf
from threading import Lock
from typing import TYPE_CHECKING

from whet.model.event import Notice, RunStarted
from whet.model.grade import STATUSES, Status
from whet.model.run import Trial, TrialKey, TrialResult
from whet.reading.text import duration, number, right
from whet.report.digest import words_of
from whet.report.plain import CALLS_SHOWN, STATUS_STYLES, TrialLines, notice_line
from whet.report.screen import Screen

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text


ROWS = 8
_REFRESHES_PER_S = 8
_WIDEST_BAR, _NARROWEST_BAR = 30, 6
_USUAL_COLUMNS = 80
_COLOURS = {"good": "green", "bad": "red", "warn": "yellow", "dim": "dim", "bold": "bold"}
_BAR_COLOURS = ("green", "yellow", "red")


class LiveProgress:
    """Keeps a few counters, which the thread of rich draws, so that an event costs next to nothing."""

    live = True

    def __init__(self, started: RunStarted, screen: Screen, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._screen = screen
        self._lines = TrialLines(started.plan, screen)
        self._clock = clock
        self._begun = clock()
        self._total = started.plan.trial_count
        self._before = started.done
        self._noun = words_of(started.info.command).trial
        # There may be many calls, and they often fail for one reason.
        self._left: float = CALLS_SHOWN if started.info.command == "eval" else inf
        self._counts: Counter[Status] = Counter()
        self._running: dict[TrialKey, tuple[str, float]] = {}
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
            done = self._before + self._counts.total()
        if not result.passed and self._left:
            self._left -= 1
            self._above(self._lines.ended(trial, result, done))

    def notice(self, notice: Notice) -> None:
        """Show *notice* above the bar."""
        self._above(notice_line(notice, self._screen))

    def line(self, text: str) -> None:
        """Show a line above the bar."""
        self._above(text)

    def stop(self) -> None:
        """Remove the bar and release the terminal."""
        self._live.stop()

    def _above(self, line: str) -> None:
        # rich is loaded by now.
        from rich.text import Text  # noqa: PLC0415

        self._live.console.print(Text.from_ansi(self._screen.fit(line)), soft_wrap=True)

    def _draw(self) -> Text:
        # As above.
        from rich.text import Text  # noqa: PLC0415

        with self._lock:
            counts = self._counts.copy()
            running = list(self._running.values())
        now = self._clock()
        drawn = Text(no_wrap=True, overflow="ellipsis")
        for text, style in self._bar(counts, now):
            drawn.append(self._screen.fit(text), style)
        # The oldest first: people wonder about those.
        for name, since in running[:ROWS]:
            drawn.append(f"\n    {name}  {right(duration(now - since), 11)}", "")
        if len(running) > ROWS:
            drawn.append(f"\n    and {len(running) - ROWS} more running", "dim")
        return drawn

    def _bar(self, counts: Counter[Status], now: float) -> Iterator[tuple[str, str]]:
        done = self._before + counts.total()
        facts = [(f"  {number(done)}/{number(self._total)} {self._noun}s  {duration(now - self._begun)}", "")]
        facts += [
            (f"  {number(counts[status])} {status}", _COLOURS[STATUS_STYLES[status]])
            for status in STATUSES
            if counts[status]
        ]
        # The bar takes the room that the words leave.
        room = (self._screen.columns or _USUAL_COLUMNS) - 2 - sum(len(text) for text, _ in facts)
        yield "\n  ", ""
        yield from _segments(counts, self._before, self._total, max(_NARROWEST_BAR, min(_WIDEST_BAR, room)))
        yield from facts


def _segments(counts: Counter[Status], before: int, total: int, width: int) -> Iterator[tuple[str, str]]:
    """Yield the bar: each status has its share, and at least one cell."""
    amounts = {"dim": before} | dict.fromkeys(_BAR_COLOURS, 0)
    for status, amount in counts.items():
        amounts[_COLOURS[STATUS_STYLES[status]]] += amount
    cells = {colour: max(1, width * amount // total) for colour, amount in amounts.items() if amount}
    filled = max(width * sum(amounts.values()) // max(1, total), len(cells))
    if cells:
        # The largest share takes the rounding error, where it shows least.
        cells[max(cells, key=cells.__getitem__)] += filled - sum(cells.values())
    for colour, size in cells.items():
        yield "━" * size, colour
    yield "─" * (width - filled), "dim"


def _start(screen: Screen, draw: Callable[[], Text]) -> Live:
    # Loading rich is the slowest part of a start, and only a live terminal needs it.
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415

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
