"""The terminal reporter: what will be done, how it goes, and how it went, for a person or a log."""

from __future__ import annotations

from typing import assert_never

from whet.errors import UsageError
from whet.model.event import Notice, RunEnded, RunEvent, RunStarted, SessionSeen, TrialEnded, TrialStarted
from whet.report.base import ReporterContext
from whet.report.digest import read_digest
from whet.report.ending import ending_lines
from whet.report.header import header_lines
from whet.report.live import LiveProgress
from whet.report.plain import CallProgress, PlainProgress, notice_line
from whet.report.screen import Screen
from whet.report.session import session_line

ROWS = 60


class TerminalReporter:
    """Live on a terminal, plain lines elsewhere."""

    def __init__(self, context: ReporterContext) -> None:
        if context.target is not None:
            raise UsageError(
                'reporter "terminal" writes to the screen and takes no file',
                hint="for a file choose markdown=FILE, or send the output on: whet run ... > FILE",
            )
        self._screen = Screen(context.stdout, context.environ)
        self._cwd = context.cwd
        self._progress: LiveProgress | PlainProgress | None = None

    @property
    def live(self) -> bool:
        """Whether a screen is being redrawn just now."""
        return self._progress is not None and self._progress.live

    def __call__(self, event: RunEvent) -> None:
        """Show *event*."""
        match event:
            case RunStarted():
                self._start(event)
            case TrialStarted():
                if self._progress is not None:
                    self._progress.started(event.trial)
            case SessionSeen():
                self._watch(event)
            case TrialEnded():
                if self._progress is not None:
                    self._progress.ended(event.trial, event.result)
            case Notice():
                self._notice(event)
            case RunEnded():
                self._end(event)
            case _:
                assert_never(event)

    def close(self) -> None:
        """Give the terminal back."""
        progress, self._progress = self._progress, None
        if progress is not None:
            progress.stop()

    def _start(self, event: RunStarted) -> None:
        for line in header_lines(event, self._screen, self._cwd):
            self._screen.line(line)
        plain = CallProgress if event.info.command == "eval" else PlainProgress
        self._progress = (LiveProgress if self._screen.live else plain)(event, self._screen)

    def _watch(self, event: SessionSeen) -> None:
        line = session_line(event, self._screen)
        if line is not None and self._progress is not None:
            self._progress.line(line)

    def _notice(self, event: Notice) -> None:
        if self._progress is not None:
            self._progress.notice(event)
        else:
            self._screen.line(notice_line(event, self._screen))

    def _end(self, event: RunEnded) -> None:
        self.close()
        digest = read_digest(event.results, event.info, cwd=self._cwd, rows=ROWS)
        if event.interrupted:
            self._screen.line(f"\n{self._screen.paint('Interrupted.', 'warn')} What had ended is kept.")
        for line in ending_lines(digest, event.info, self._screen, self._cwd, event.evaluated):
            self._screen.line(line)
