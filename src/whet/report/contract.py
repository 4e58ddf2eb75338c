"""The contract of reporters, and `Reporters`, which passes them events and keeps them from harming the run."""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol, Self, TextIO

from msgspec import Struct, field

from whet.model.run_events import Notice, RunEvent
from whet.reading.text import one_line
from whet.report._thread import Hangs, close_reporter


class Reporter(Protocol):
    """Shows run events. May have a `close()` that releases what it holds, such as the screen, when the run is over."""

    def __call__(self, event: RunEvent) -> None:
        """Show *event*."""


class ReporterContext(Struct, frozen=True, kw_only=True):
    """What a reporter may use: its target file if it has one, and the streams."""

    target: Path | None
    stdout: TextIO
    stderr: TextIO
    environ: Mapping[str, str]
    cwd: Path
    # The files that all reporters of the run write, by the names of the reporters.
    files: Mapping[str, Path] = field(default_factory=dict)


# A factory whose `document` attribute is true writes one whole document; without a target it has stdout to itself.
# The target of one whose `folder` attribute is true is a folder.
ReporterFactory = Callable[[ReporterContext], Reporter]


class NotWritten(OSError):
    """A report could not be written to its file or its stream."""


class Reporters:
    """Passes each event to every reporter; one that raises or hangs is dropped with a warning, and the run goes on."""

    def __init__(
        self,
        reporters: Iterable[tuple[str, Reporter]],
        *,
        stderr: TextIO,
        stdout: TextIO | None = None,
        screen: TextIO | None = None,
    ) -> None:
        self._active = list(reporters)
        # For words to people: stdout, unless it holds a document.
        self.screen = screen or stderr
        self._stderr = stderr
        self._stdout = stdout
        # Whether a report could not be written.
        self.unwritten = False
        # Whether the reader of stdout went away, as `head` does.
        self.unread = False

    def __call__(self, event: RunEvent) -> None:
        """Pass *event* to every reporter, and a notice about each that breaks to the others."""
        waiting: deque[RunEvent] = deque([event])
        while waiting:
            current = waiting.popleft()
            for name, reporter in tuple(self._active):
                try:
                    reporter(current)
                except (Exception, SystemExit) as error:  # noqa: BLE001 - the one catch-all: showing a run must not end it
                    if not self._leave_unread(reporter, error):
                        waiting.append(self._drop(name, reporter, error))

    def close(self) -> None:
        """Close every reporter, whether or not the run ended."""
        leaving, self._active = self._active, []
        # Close all of them before printing: one may still hold the screen.
        troubles = [(name, _close(reporter)) for name, reporter in leaving]
        for name, error in troubles:
            if error is not None:
                self._warn(f'reporter "{name}" {_said(error)} when it was closed')

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _leave_unread(self, reporter: Reporter, error: BaseException) -> bool:
        """Return whether *reporter* broke only because its reader went away; if so, drop it without a warning."""
        streams = [stream for stream in (self._stdout, self._stderr) if stream and reader_is_gone(stream)]
        if not isinstance(error, BrokenPipeError) or not streams:
            return False
        self.unread = self.unread or self._stdout in streams
        self._remove(reporter)
        return True

    def _remove(self, reporter: Reporter) -> None:
        self._active = [entry for entry in self._active if entry[1] is not reporter]
        _close(reporter)

    def _drop(self, name: str, reporter: Reporter, error: BaseException) -> Notice:
        self.unwritten = self.unwritten or isinstance(error, NotWritten)
        self._remove(reporter)
        notice = Notice(level="warning", message=f'reporter "{name}" {_said(error)} and was dropped')
        self._warn(notice.message)
        return notice

    def _warn(self, message: str) -> None:
        # A live screen shows the notice itself; printing to the same terminal would tear it.
        if self._stderr.isatty() and any(getattr(reporter, "live", False) for _, reporter in self._active):
            return
        encoding = self._stderr.encoding or "utf-8"
        # stderr may have lost its reader too; the run goes on.
        with suppress(OSError, ValueError):
            self._stderr.write(f"warning: {message}\n".encode(encoding, "backslashreplace").decode(encoding))
            self._stderr.flush()


def reader_is_gone(stream: TextIO) -> bool:
    """Return whether *stream* is a pipe whose reader went away."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLOUT)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (AttributeError, OSError, ValueError):
        return False


def _close(reporter: Reporter) -> BaseException | None:
    """Close *reporter*, and return what it raised."""
    try:
        close_reporter(reporter)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
        return error
    return None


def _said(error: BaseException) -> str:
    if isinstance(error, Hangs | NotWritten):
        return str(error)
    return "raised " + one_line(f"{type(error).__name__}: {error}".removesuffix(": "), 500)
