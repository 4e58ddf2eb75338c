"""Somebody else's reporter, on a thread of its own: it may hang, and the run goes on without it."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from whet.dataclass import dataclass
from whet.model.event import RunEnded, RunEvent, RunStarted

T = TypeVar("T")
# So many events may wait for a slow reporter; then the run waits for it.
BACKLOG = 64


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one event may take; and how long loading, the end of the run and closing may."""

    event_s: float = 10.0
    whole_s: float = 30.0


class Hangs(Exception):
    """Something took longer than it may."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(f"did not return within {limit_s:g} s")


@dataclass(frozen=True, slots=True)
class _Work:
    do: Callable[[], object]
    limit_s: float


class GuardThread:
    """Does one piece of work after the other, and is left behind when one of them does not end.

    All that belongs to one reporter is done here, because much of what reporters hold may be used by one thread only.
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
        """What *do* gives, once all that came before it is done."""
        answer: list[T] = []
        self.hand(lambda: answer.append(do()), limit_s=limit_s)
        with self._changed:
            self._wait(lambda: self._current is None and not self._waiting)
        return answer[0]

    def hand(self, do: Callable[[], object], *, limit_s: float) -> None:
        """Have *do* done without waiting for it; what went wrong before it is raised here."""
        with self._changed:
            self._wait(lambda: len(self._waiting) < BACKLOG)
            self._waiting.append(_Work(do, limit_s))
            self._changed.notify_all()

    def end(self) -> None:
        """Let the thread go once it is idle."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def _wait(self, ready: Callable[[], bool]) -> None:
        while True:
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            if self._current is not None and time.monotonic() >= self._due:
                self._leave_behind(self._current)
            if self._left is not None:
                raise self._left
            if ready():
                return
            self._changed.wait(None if self._current is None else max(0.0, self._due - time.monotonic()))

    def _leave_behind(self, work: _Work) -> None:
        self._left = self._left or Hangs(work.limit_s)
        self._over = True
        self._waiting.clear()
        _stop(self._thread)

    def _serve(self) -> None:
        while (work := self._next()) is not None:
            failure: Exception | SystemExit | None = None
            try:
                work.do()
            except (Exception, SystemExit) as error:  # noqa: BLE001 - it is raised again where somebody can name it
                failure = error
            except BaseException as error:  # noqa: BLE001 - no Ctrl-C comes here: a reporter raised it itself
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
                # They were for a reporter that is no more.
                self._waiting.clear()
            self._changed.notify_all()


class GuardedReporter:
    """Tells a reporter of events on its thread; only before and after all trials somebody waits for it."""

    def __init__(self, reporter: Callable[[RunEvent], object], thread: GuardThread, patience: Patience) -> None:
        self._reporter = reporter
        self._thread = thread
        self._patience = patience
        self._closed = False

    def __call__(self, event: RunEvent) -> None:
        """Pass *event* on; what the reporter raised since the last one is raised here."""
        tell = partial(self._reporter, event)
        match event:
            case RunStarted():
                self._thread.call(tell, limit_s=self._patience.event_s)
            case RunEnded():
                self._thread.call(tell, limit_s=self._patience.whole_s)
            case _:
                # While agents run, the loop that keeps their time must not stand still for a reporter.
                self._thread.hand(tell, limit_s=self._patience.event_s)

    def close(self) -> None:
        """Let the reporter close, and then its thread end."""
        if self._closed:
            return
        self._closed = True
        close: Any = getattr(self._reporter, "close", None)
        try:
            self._thread.call(close if callable(close) else lambda: None, limit_s=self._patience.whole_s)
        finally:
            self._thread.end()


@contextmanager
def exits_refused() -> Iterator[None]:
    """Let `os._exit` raise on this thread: it would end whet without a word about who did it."""
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
    """Raise in *thread* as soon as it runs Python again: a loop without an end would slow the run down."""
    # Only here: hardly any run needs it.
    import ctypes  # noqa: PLC0415

    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
