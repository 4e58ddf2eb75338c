"""What happens on Ctrl-C and its relatives: once ends the trials and keeps the record, twice ends all at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio

from whet.sandbox.reaper import descendants, signal_all

_INTERRUPTED = 130
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _heard() -> tuple[signal.Signals, ...]:
    """Those that whoever started us did not ask to be ignored, as `nohup` does."""
    return tuple(number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN)


@contextmanager
def interruptible() -> Iterator[None]:
    """Take every ending signal for Ctrl-C while nothing runs yet, so that what was begun is cleared away."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in _heard()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def watch_signals(trials: anyio.CancelScope, interrupted: Callable[[], object]) -> None:
    """Cancel *trials* at the first signal, and end ourselves at the second; runs until it is cancelled."""
    with anyio.open_signal_receiver(*_heard()) as signals:
        async for _ in signals:
            if trials.cancel_called:
                # Cancelling takes as long as agents take to tidy up; whoever asks again does not want to wait.
                signal_all(descendants(os.getpid()), signal.SIGKILL)
                os._exit(_INTERRUPTED)
            interrupted()
            trials.cancel()


@contextmanager
def undisturbed() -> Iterator[None]:
    """A moment that signals do not cut short, such as the writing of results; it is over soon anyway."""
    before = {number: signal.signal(number, lambda *_: None) for number in _heard()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
