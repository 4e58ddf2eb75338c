"""How long a suite may take to be imported: a slow one is announced, one that hangs is ended at the line it is at."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from whet.errors import UsageError

VARIABLE = "WHET_IMPORT_TIMEOUT_MS"
HINT = f"an import should only define cases; {VARIABLE} allows it more time"
_USUAL_MS = 60_000
# After so long somebody wonders what is going on.
ANNOUNCED_AFTER_S = 3.0
# A suite that catches everything and goes on has this long until whet ends with it.
_GRACE_S = 2.0
_USAGE = 2
# At most what a timer takes.
_MILLISECONDS = re.compile("[1-9][0-9]{0,11}")


class ImportHangs(BaseException):
    """A suite that did not come to the end of its import; no `except Exception` of its own stops it."""


def limit_s(environ: Mapping[str, str]) -> float:
    """How long an import may take."""
    text = environ.get(VARIABLE, "").strip()
    if not text:
        return _USUAL_MS / 1000
    if not _MILLISECONDS.fullmatch(text):
        raise UsageError(f'{VARIABLE}: must be a number of milliseconds of at least 1, not "{text[:40]}"')
    return int(text) / 1000


@contextmanager
def patience(path: Path, most_s: float, is_own: Callable[[str], bool]) -> Iterator[None]:
    """Announce the import of *path* where it takes long, and raise `ImportHangs` in it where it takes too long.

    By a timer of the main thread: it also breaks off what waits for something. What never comes back to Python, such as
    a loop in C, it cannot.
    """
    alone = threading.current_thread() is threading.main_thread() and not signal.getitimer(signal.ITIMER_REAL)[0]
    if not alone:
        # A timer of somebody else's, such as that of a test, is left as it is.
        yield
        return
    watch = _Watch(path, most_s, is_own, os.getpid(), os._exit)
    before = signal.signal(signal.SIGALRM, watch.ring)
    signal.setitimer(signal.ITIMER_REAL, min(ANNOUNCED_AFTER_S, most_s))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Watch:
    """What happens when the timer rings: a word, then an exception, and at last the end."""

    def __init__(
        self, path: Path, most_s: float, is_own: Callable[[str], bool], process: int, leave: Callable[[int], NoReturn]
    ) -> None:
        self._path = path
        self._most_s = most_s
        self._is_own = is_own
        self._process = process
        self._leave = leave
        self._announced = most_s <= ANNOUNCED_AFTER_S
        self._raised = False

    def ring(self, number: int, frame: FrameType | None) -> None:
        """Say or do what is due; in a copy that the suite forked, nothing is."""
        del number
        if os.getpid() != self._process:
            return
        if not self._announced:
            self._announced = True
            _say(f"importing {self._path} ... {self._place(frame)}".rstrip())
            signal.setitimer(signal.ITIMER_REAL, self._most_s - ANNOUNCED_AFTER_S)
            return
        told = f"it did not end within {self._most_s:g} s {self._place(frame)}".rstrip()
        if self._raised:
            _say(f"error[suite]: {self._path}: cannot be imported: {told}\n  {HINT}")
            self._leave(_USAGE)
        self._raised = True
        signal.setitimer(signal.ITIMER_REAL, _GRACE_S)
        raise ImportHangs(told)

    def _place(self, frame: FrameType | None) -> str:
        """The innermost line of the author's that is being run."""
        while frame is not None:
            if self._is_own(frame.f_code.co_filename):
                return f"(at {Path(frame.f_code.co_filename).name}, line {frame.f_lineno})"
            frame = frame.f_back
        return ""


def _say(line: str) -> None:
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
