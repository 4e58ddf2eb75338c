"""What happens on Ctrl-C and its relatives: once ends the trials and keeps the record, twice ends all at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio

_INTERRUPTED = 130
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


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
            # Where they are let pass, a run has ended, and nothing is left to do but to leave with its exit code.
            if signal.getsignal(number) is not _let_pass:
                signal.signal(number, handler)


async def watch_signals(trials: anyio.CancelScope, interrupted: Callable[[], object]) -> None:
    """Cancel *trials* at the first signal, and end ourselves at the second; runs until it is cancelled.

    From then on signals are let pass: what follows is over soon, and is how the record comes to its end.
    """
    heard = _heard()
    try:
        with anyio.open_signal_receiver(*heard) as signals:
            try:
                async for number in signals:
                    if not trials.cancel_called:
                        interrupted()
                        trials.cancel()
                    # A terminal that closes says so several times: once by itself, and once by the shell in it.
                    elif number != signal.SIGHUP:
                        # Cancelling takes as long as agents take to tidy up; whoever asks again does not want to wait.
                        # Everything that runs is below a warden, which ends it at once when we are no more.
                        os._exit(_INTERRUPTED)
            finally:
                # The receiver leaves the default behind, which is death.
                signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    finally:
        for each in heard:
            signal.signal(each, _let_pass)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, heard)


def _let_pass(*_: object) -> None:
    """Not SIG_IGN, which whatever we start would inherit."""


@contextmanager
def undisturbed() -> Iterator[None]:
    """A moment that signals do not cut short, such as the writing of results; it is over soon anyway."""
    before = {number: signal.signal(number, _let_pass) for number in _heard()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
