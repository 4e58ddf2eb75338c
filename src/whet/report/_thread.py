"""Run a reporter that is not ours on its own thread: if it hangs, the run goes on without it."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct

from whet.model.run_events import RunEnded, RunEvent, RunStarted

T = TypeVar("T")
# How many events may wait for a slow reporter before the run waits for it.
BACKLOG = 64


class Patience(Struct, frozen=True):
    """How long a reporter may take for one event, and for loading, the end of the run and closing."""

    event_s: float = 10.0
    whole_s: float = 30.0


class Hangs(Exception):
    """Something took longer than it may."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(f"did not return within {limit_s:g} s")


class _Work(Struct, frozen=True):
    do: Callable[[], object]
    limit_s: float


class ReporterThread:
    """Does one piece of work after another, and is abandoned if one does not end.

    A reporter does everything here, because much of what it may hold works on one thread only.
    """

    def __init__(self, name: str) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[_Work] = deque()
        self._current: _Work | None = None
        self._due = 0.0
        self._error: Exception | SystemExit | None = None
        self._left: Hangs | None = None
        self._over = False
        self._thread = threading.Thread(target=self._serve, name=f"reporter {name}", daemon=True)
        self._thread.start()

    def call(self, do: Callable[[], T], *, limit_s: float) -> T:
        """Do the earlier work and then *do*, and return its result."""
        answer: list[T] = []
        self.hand(lambda: answer.append(do()), limit_s=limit_s)
        with self._changed:
            self._wait(lambda: self._current is None and not self._waiting)
        return answer[0]

    def hand(self, do: Callable[[], object], *, limit_s: float) -> None:
        """Queue *do* without waiting for it; raises what earlier work raised."""
        with self._changed:
            self._wait(lambda: len(self._waiting) < BACKLOG)
            self._waiting.append(_Work(do, limit_s))
            self._changed.notify_all()

    def end(self) -> None:
        """End the thread once it is idle."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def _wait(self, ready: Callable[[], bool]) -> None:
        while True:
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            if self._current is not None and time.monotonic() >= self._due:
                self._abandon(self._current)
            if self._left is not None:
                raise self._left
            if ready():
                return
            self._changed.wait(None if self._current is None else max(0.0, self._due - time.monotonic()))

    def _abandon(self, work: _Work) -> None:
        self._left = self._left or Hangs(work.limit_s)
        self._over = True
        self._waiting.clear()
        _stop(self._thread)

    def _serve(self) -> None:
        while (work := self._next()) is not None:
            failure: Exception | SystemExit | None = None
            try:
                work.do()
            except (Exception, SystemExit) as error:  # noqa: BLE001 - `_wait` raises it again
                failure = error
            except BaseException as error:  # noqa: BLE001 - not a Ctrl-C: the reporter raised it
                failure = RuntimeError(type(error).__name__)
            self._done(failure)

    def _next(self) -> _Work | None:
        with self._changed:
            self._changed.wait_for(lambda: self._over or self._waiting)
            if not self._waiting:
                return None
            self._current = self._waiting.popleft()
            self._due = time.monotonic() + self._current.limit_s
            self._changed.notify_all()
            return self._current

    def _done(self, error: Exception | SystemExit | None) -> None:
        with self._changed:
            self._current = None
            if error is not None and self._left is None:
                self._error = error
                # The reporter is dropped.
                self._waiting.clear()
            self._changed.notify_all()


class ThreadedReporter:
    """Passes events to a reporter on its thread; the run waits for it only before and after all trials."""

    def __init__(self, reporter: Callable[[RunEvent], object], thread: ReporterThread, patience: Patience) -> None:
        self._reporter = reporter
        self._thread = thread
        self._patience = patience
        self._closed = False

    def __call__(self, event: RunEvent) -> None:
        """Pass *event* on; raises what the reporter raised since the last event."""
        show = partial(self._reporter, event)
        match event:
            case RunStarted():
                self._thread.call(show, limit_s=self._patience.event_s)
            case RunEnded():
                self._thread.call(show, limit_s=self._patience.whole_s)
            case _:
                # While agents run, a reporter must not block the loop that holds their time limits.
                self._thread.hand(show, limit_s=self._patience.event_s)

    def close(self) -> None:
        """Close the reporter, and then end its thread."""
        if self._closed:
            return
        self._closed = True
        try:
            self._thread.call(partial(close_reporter, self._reporter), limit_s=self._patience.whole_s)
        finally:
            self._thread.end()


def close_reporter(reporter: Callable[[RunEvent], object]) -> None:
    """Close *reporter*, if it can be closed."""
    close: Any = getattr(reporter, "close", None)
    if callable(close):
        close()


@contextmanager
def exits_refused() -> Iterator[None]:
    """Make `os._exit` raise SystemExit on this thread: it would end whet without a message."""
    leave, thread, process = os._exit, threading.get_ident(), os.getpid()

    def refuse(status: int) -> None:
        if threading.get_ident() == thread and os.getpid() == process:
            raise SystemExit(status)
        leave(status)

    os._exit = refuse  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = leave


def _stop(thread: threading.Thread) -> None:
    """Raise SystemExit in *thread* when it next runs Python, so that an endless loop does not slow the run."""
    # Imported here, because hardly any run needs it.

    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
