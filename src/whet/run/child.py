"""`python -m whet.run.child PARENT BYTES run ...` is `whet run ...` that ends when the process PARENT does.

The process takes at most so many bytes of memory, or as much as it likes if BYTES is 0; what it starts has ceilings of
its own.

The module is a program because `preexec_fn` makes starts slow, and is not safe in a process with threads.
"""

from __future__ import annotations

import ctypes
import os
import resource
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask the kernel for a signal when the parent ends, and become `whet` with the other arguments."""
    parent, most_bytes, *arguments = sys.argv[1:]
    # On SIGTERM, a run ends its agents and keeps its record, and can be resumed.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != int(parent):
        # The parent ended before we could ask.
        sys.exit(1)
    if int(most_bytes):
        _limit_memory(int(most_bytes))
    sys.argv = ["whet", *arguments]
    runpy.run_module("whet", run_name="__main__", alter_sys=True)


def _limit_memory(most_bytes: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    # Only the soft limit: commands get back the other one, see `sandbox/process/pool.py`.
    most = most_bytes if hard == resource.RLIM_INFINITY else min(most_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


if __name__ == "__main__":
    main()
