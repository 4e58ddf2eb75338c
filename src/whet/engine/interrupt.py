"""What happens on Ctrl-C and its relatives: once ends the trials and keeps the record, twice ends all at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import anyio

from whet.sandbox.reaper import descendants, signal_all

_INTERRUPTED = 130


async def watch_signals(scope: anyio.CancelScope, interrupted: Callable[[], object]) -> None:
    """Cancel *scope* at the first signal."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async for _ in signals:
            interrupted()
            scope.cancel()
            break
        # Cancelling takes as long as agents take to tidy up; whoever asks again does not want to wait.
        with anyio.CancelScope(shield=True):
            async for _ in signals:
                signal_all(descendants(os.getpid()), signal.SIGKILL)
                os._exit(_INTERRUPTED)
