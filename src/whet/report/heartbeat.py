"""A sign of life for logs: where nothing was printed for a while, somebody is asked to say what is going on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

# The first word comes after this much silence, and each further one after twice as much, up to the longest:
# CI systems end jobs that are silent for ten minutes.
FIRST_S = 30.0
LONGEST_S = 240.0


class Heartbeat:
    """Calls *tell* on a thread of its own whenever it was silent for too long; *tell* must not touch it."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self._changed = threading.Condition()
        self._heard = 0
        self._over = False
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        # Where no thread can be had, a log is silent, and the run goes on.
        with suppress(RuntimeError):
            self._thread.start()

    def heard(self) -> None:
        """Begin to wait anew: something was printed."""
        with self._changed:
            self._heard += 1
            self._changed.notify_all()

    def stop(self) -> None:
        """Say nothing more, also where a word was just due."""
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
            # A stream that cannot be written to is noticed by whoever prints the next trial.
            with suppress(OSError, ValueError):
                self._tell()
            wait_s = min(2 * wait_s, LONGEST_S)

    def _is_silent_for(self, seconds: float) -> bool:
        """Wait so long, or until something is printed or all is over; whether nothing happened."""
        with self._changed:
            before = self._heard
            return not self._changed.wait_for(lambda: self._over or self._heard != before, seconds)
