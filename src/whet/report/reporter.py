"""The contract of reporters, and how they are told about a run without being able to harm it."""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, TextIO, runtime_checkable

from whet.dataclass import dataclass
from whet.model.event import Notice, RunEvent
from whet.reading.text import one_line
from whet.report.guard import Hangs


class Reporter(Protocol):
    """Shows run events to somebody; may also have a `close()`, called once when the run is over or broken off."""

    def __call__(self, event: RunEvent) -> None:
        """Take note of *event*."""


@runtime_checkable
class Closable(Protocol):
    """A reporter that holds something which must be let go, such as a redrawn screen."""

    def close(self) -> None:
        """Let go of it; harmless when called again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReporterContext:
    """What a reporter may use: its target file if it was given one, else the streams."""

    target: Path | None
    stdout: TextIO
    stderr: TextIO
    environ: Mapping[str, str]
    cwd: Path


# A factory with a true `document` attribute writes one whole document; without a target it has stdout for itself.
ReporterFactory = Callable[[ReporterContext], Reporter]


class NotWritten(OSError):
    """The file that somebody asked for is not there, or is not the new one."""


class Reporters:
    """Tells every reporter each event; one that raises or hangs is named and dropped, and the run goes on."""

    def __init__(
        self, reporters: Iterable[tuple[str, Reporter]], *, stderr: TextIO, stdout: TextIO | None = None
    ) -> None:
        self._active = list(reporters)
        self._stderr = stderr
        self._stdout = stdout
        self._dropped: list[str] = []
        # Whether a file that was asked for could not be written.
        self.unwritten = False
        # Whether the reader of stdout went away, as `head` does.
        self.unread = False

    @property
    def dropped(self) -> tuple[str, ...]:
        """The names of the reporters that raised or hung."""
        return tuple(self._dropped)

    def __call__(self, event: RunEvent) -> None:
        """Tell every reporter, and those that are left about each one that broke."""
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
        """Let every reporter go, whether or not the run came to its end."""
        leaving, self._active = self._active, []
        # All of them first: what is to be told must not tear a screen that another one still holds.
        troubles = [(name, _close(reporter)) for name, reporter in leaving]
        for name, error in troubles:
            if error is not None:
                self._tell_stderr(f'reporter "{name}" {_said(error)} when it was closed')

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _leave_unread(self, reporter: Reporter, error: BaseException) -> bool:
        """Whether *reporter* only has nobody left who reads it: no mistake of its own, and nothing to tell anyone."""
        gone = [stream for stream in (self._stdout, self._stderr) if stream and reader_is_gone(stream)]
        if not isinstance(error, BrokenPipeError) or not gone:
            return False
        self.unread = self.unread or self._stdout in gone
        self._let_go(reporter)
        return True

    def _let_go(self, reporter: Reporter) -> None:
        self._active = [entry for entry in self._active if entry[1] is not reporter]
        _close(reporter)

    def _drop(self, name: str, reporter: Reporter, error: BaseException) -> Notice:
        self._dropped.append(name)
        self.unwritten = self.unwritten or isinstance(error, NotWritten)
        self._let_go(reporter)
        notice = Notice(level="warning", message=f'reporter "{name}" {_said(error)} and was dropped')
        self._tell_stderr(notice.message)
        return notice

    def _tell_stderr(self, message: str) -> None:
        # A live screen shows the notice itself; a second voice on the same terminal would tear it.
        if self._stderr.isatty() and any(getattr(reporter, "live", False) for _, reporter in self._active):
            return
        encoding = self._stderr.encoding or "utf-8"
        # A stream that nobody reads any more is no reason to stop either.
        with suppress(OSError, ValueError):
            self._stderr.write(f"warning: {message}\n".encode(encoding, "backslashreplace").decode(encoding))
            self._stderr.flush()


def reader_is_gone(stream: TextIO) -> bool:
    """Whether nobody reads *stream* any more, which only a pipe can tell."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLOUT)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (AttributeError, OSError, ValueError):
        return False


def _close(reporter: Reporter) -> BaseException | None:
    """Let *reporter* go; what it thinks of that is for somebody to read, and changes nothing."""
    if isinstance(reporter, Closable):
        try:
            reporter.close()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
            return error
    return None


def _said(error: BaseException) -> str:
    if isinstance(error, Hangs | NotWritten):
        return str(error)
    return "raised " + one_line(f"{type(error).__name__}: {error}".removesuffix(": "), 500)
