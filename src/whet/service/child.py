"""`python -m whet.service.child PARENT run ...`: `whet run ...`, which ends with the server that started it.

A program of its own and no `preexec_fn`, which makes starting slow and is not safe beside threads.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie ourselves to the parent that is named first, and be `whet` with the other arguments."""
    parent, *arguments = sys.argv[1:]
    # SIGTERM, so that a run ends its agents and keeps what it has; --resume goes on from there.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != int(parent):
        # It ended before we could ask to be told.
        sys.exit(1)
    sys.argv = ["whet", *arguments]
    runpy.run_module("whet", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
