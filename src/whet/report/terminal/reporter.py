"""The terminal reporter: a header with the plan, then progress, then the end of the run."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from math import inf, prod
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, assert_never

from whet.errors import UsageError
from whet.model.event import Looked, Notice, RunEnded, RunEvent, RunStarted, SessionSeen, TrialEnded, TrialStarted
from whet.model.grade import STATUSES, Status
from whet.model.run import Plan, RunInfo, Trial, TrialKey, TrialResult
from whet.model.suite import WorkspaceSpec
from whet.reading.text import count, duration, left, number, one_line, path_for_people, right
from whet.report.digest import Words, read_digest, words_of
from whet.report.finding import session_line
from whet.report.plain import CALLS_SHOWN, STATUS_STYLES, CallProgress, PlainProgress, TrialLines, notice_line
from whet.report.reporter import ReporterContext
from whet.report.screen import Screen

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text


def header_lines(started: RunStarted, screen: Screen, cwd: Path) -> Iterator[str]:
    """Yield what people want to see before the first agent starts."""
    info, plan = started.info, started.plan
    words, runs = words_of(info.command), not started.shards
    suite = f"{one_line(plan.suite.name)} ({path_for_people(info.suite_path, cwd)})"
    yield f"{screen.paint(f'whet {one_line(info.version, 40)}', 'bold')}"
    facts = {
        words.suite: suite,
        "settings": _settings(info, cwd),
        "project": _project(started, cwd),
        "plan": _size(plan, words),
        "done": f"{count(started.done, words.trial)} by an earlier run" if started.done and runs else "",
        "merged": "" if runs else count(started.shards, "shard"),
        "retries": f"up to {plan.retries:,} per {words.trial} that fails or errors" if plan.retries and runs else "",
        "schedule": _schedule(plan) if runs else "",
        # A callable skill has no workspace.
        "workspace": "" if info.command == "eval" else _workspaces(plan),
        "cluster": one_line(info.cluster),
        "sandbox": one_line(info.sandbox),
        "ceilings": " and ".join(info.ceilings.words()),
        "record": path_for_people(info.run_dir, cwd),
    }
    for label, fact in facts.items():
        if fact:
            yield f"  {screen.paint(left(label, 10), 'dim')} {fact}"
    if runs and shares_at_once(plan):
        yield notice_line(Notice(level="warning", message=_SHARED), screen)
    yield ""


def _settings(info: RunInfo, cwd: Path) -> str:
    """The settings files in force; they decide what runs, so you should not have to guess."""
    if info.settings_files:
        return " and ".join(path_for_people(file, cwd) for file in info.settings_files)
    return f"none found up to {path_for_people(info.searched_to, cwd)}" if info.searched_to else "none found"


def _project(started: RunStarted, cwd: Path) -> str:
    """The folder that each workspace of a bench suite is a copy of, and why it is that one."""
    info, spec = started.info, started.plan.suite.workspace
    # A Python suite names its template itself.
    if info.suite_path.suffix == ".py" or spec is None or spec.template_dir is None:
        return ""
    folder = spec.template_dir
    settings = next((file.name for file in info.settings_files if file.parent == folder), None)
    reason = f"the folder of {settings}" if settings else "the folder of the suite"
    shown = path_for_people(folder, cwd)
    return f"{shown} ({reason})" if settings or folder == info.suite_path.parent else shown


_SHARED = (
    "several trials run at the same time in one shared workspace and can disturb each other; "
    "use the workspace mode isolated, or the schedule serial"
)


def shares_at_once(plan: Plan) -> bool:
    """Return whether two trials can be in one shared workspace at the same time."""
    shared = [execution for execution in plan.executions if execution.workspace.mode == "shared"]
    if plan.max_parallel <= 1 or plan.schedule == "serial":
        return False
    if plan.schedule == "parallel":
        return sum(execution.trials for execution in shared) > 1
    return len({execution.runner.id for execution in shared}) > 1


def _workspaces(plan: Plan) -> str:
    """Such as "isolated, empty"."""
    return " and ".join(sorted({_workspace(execution.workspace) for execution in plan.executions}))


def _workspace(spec: WorkspaceSpec) -> str:
    bare = spec.template_dir is None and spec.package is None and spec.bootstrap is None and not spec.placed
    return f"{spec.mode}, empty" if bare and spec.cwd is None else spec.mode


def _size(plan: Plan, words: Words) -> str:
    """Such as "4 cases x 2 runners x 3 trials = 24 trials"; without the product if it is not the total."""
    factors = [
        (len({execution.case.id for execution in plan.executions}), words.case),
        (len({execution.runner.id for execution in plan.executions}), words.runner),
        (len({execution.arm for execution in plan.executions}), "arm"),
    ]
    samples = {execution.trials for execution in plan.executions}
    each = max(samples, default=1)
    shown = [count(amount, noun) for amount, noun in factors if amount > 1 or noun != "arm"]
    total = count(plan.trial_count, words.trial)
    if len(samples) > 1 or prod(amount for amount, _ in factors) * each != plan.trial_count:
        return f"{', '.join(shown)}: {total}"
    most = "at most " if plan.until else ""
    return f"{' x '.join([*shown, most + count(each, words.sample)])} = {most}{total}"


def _schedule(plan: Plan) -> str:
    match plan.schedule:
        case "serial":
            return "serial"
        case "parallel":
            return "one at a time" if plan.max_parallel == 1 else f"parallel, up to {plan.max_parallel} at once"
        case "isolated-by-runner":
            return f"isolated by runner, up to {plan.max_parallel} runners at once"


_RUNNING_ROWS = 8
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
            done = self._before + self._counts.total()
        if not result.passed and self._left:
            self._left -= 1
            self.line(self._lines.ended(trial, result, done))

    def line(self, text: str) -> None:
        """Show a line above the bar."""
        # rich is loaded by now.
        from rich.text import Text  # noqa: PLC0415

        self._live.console.print(Text.from_ansi(self._screen.fit(text)), soft_wrap=True)

    def looked(self, text: str) -> None:
        """Keep what was seen after the last round below the bar."""
        with self._lock:
            self._look = text

    def stop(self) -> None:
        """Remove the bar and release the terminal."""
        self._live.stop()

    def _draw(self) -> Text:
        # As above.
        from rich.text import Text  # noqa: PLC0415

        with self._lock:
            counts = self._counts.copy()
            running = list(self._running.values())
            look = self._look
        now = self._clock()
        drawn = Text(no_wrap=True, overflow="ellipsis")
        for text, style in self._bar(counts, now):
            drawn.append(self._screen.fit(text), style)
        if look:
            drawn.append(f"\n    {self._screen.fit(look)}", "bold")
        # The oldest first: people wonder about those.
        for name, since in running[:_RUNNING_ROWS]:
            drawn.append(f"\n    {name}  {right(duration(now - since), 11)}", "")
        if len(running) > _RUNNING_ROWS:
            drawn.append(f"\n    and {len(running) - _RUNNING_ROWS} more running", "dim")
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


_TABLE_ROWS = 60


class TerminalReporter:
    """Shows a run live on a terminal, and in plain lines elsewhere."""

    def __init__(self, context: ReporterContext) -> None:
        if context.target is not None:
            raise UsageError(
                'reporter "terminal" writes to the screen and takes no file',
                hint="for a file use markdown=FILE, or redirect the output: whet run ... > FILE",
            )
        self._screen = Screen(context.stdout, context.environ)
        self._cwd = context.cwd
        self._progress: LiveProgress | PlainProgress | None = None

    @property
    def live(self) -> bool:
        """Whether the screen is being redrawn."""
        return self._progress is not None and self._progress.live

    def __call__(self, event: RunEvent) -> None:
        """Show *event*."""
        match event:
            case RunStarted():
                self._start(event)
            case TrialStarted() | TrialEnded():
                self._trial(event)
            case SessionSeen():
                if line := session_line(event, self._screen):
                    self._line(line)
            case Looked():
                self._look(event)
            case Notice():
                self._line(notice_line(event, self._screen))
            case RunEnded():
                self._end(event)
            case _:
                assert_never(event)

    def close(self) -> None:
        """Release the terminal."""
        progress, self._progress = self._progress, None
        if progress is not None:
            progress.stop()

    def _start(self, event: RunStarted) -> None:
        for line in header_lines(event, self._screen, self._cwd):
            self._screen.line(line)
        plain = CallProgress if event.info.command == "eval" else PlainProgress
        self._progress = (LiveProgress if self._screen.live else plain)(event, self._screen)

    def _trial(self, event: TrialStarted | TrialEnded) -> None:
        if self._progress is None:
            return
        if isinstance(event, TrialStarted):
            self._progress.started(event.trial)
        else:
            self._progress.ended(event.trial, event.result)

    def _line(self, text: str) -> None:
        (self._progress or self._screen).line(text)

    def _look(self, event: Looked) -> None:
        from whet.report.comparison import look_line  # noqa: PLC0415 - most runs compare nothing

        text = look_line(event)
        self._line(f"  {self._screen.paint(self._screen.fit(text), 'bold')}")
        if isinstance(self._progress, LiveProgress):
            self._progress.looked(text)

    def _end(self, event: RunEnded) -> None:
        self.close()
        # Only here: the run imports it while an agent works.
        from whet.report.ending import ending_lines  # noqa: PLC0415

        digest = read_digest(event.results, event.info, cwd=self._cwd, rows=_TABLE_ROWS)
        if event.interrupted:
            self._screen.line(f"\n{self._screen.paint('Interrupted.', 'warn')} Finished trials are kept.")
        for line in ending_lines(digest, event.info, self._screen, self._cwd, event.evaluated):
            self._screen.line(line)
