"""`python -m whet.service.child PARENT BYTES run ...` is `whet run ...` that ends when the process PARENT does.

It takes at most so many bytes of memory; what it starts has ceilings of its own.

It is a program because `preexec_fn` makes starts slow, and is not safe in a process with threads.
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
        # It ended before we could ask.
        sys.exit(1)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    # Only the soft limit: commands get back the other one, see `ground/wardens.py`.
    most = int(most_bytes) if hard == resource.RLIM_INFINITY else min(int(most_bytes), hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    sys.argv = ["whet", *arguments]
    runpy.run_module("whet", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
