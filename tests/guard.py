"""Whatever tests start ends with them, also if somebody interrupts or kills them.

Two guards stand above the process that runs the tests. What loses its parent below them becomes a child of the inner
one, even a daemon, so the inner one can end it. The outer one does the same if somebody kills the inner one.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

_SET_DEATH_SIGNAL, _SET_SUBREAPER = 1, 36
_ENDING = {signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
# The terminal sends SIGINT to the tests as well, and they decide.
_HEARD = {*_ENDING, signal.SIGINT, signal.SIGCHLD}
# Only what the kernel does not let go of takes so long.
_PATIENCE_S = 30
_libc = ctypes.CDLL(None)


def stand_guard(*, with_parent: bool = False) -> None:
    """Become the outer guard, and return in the process of the tests; *with_parent*, end when our parent ends."""
    sys.stdout.flush()
    sys.stderr.flush()
    group = os.getpgrp()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
    if with_parent:
        _end_with_parent(os.getppid())
    _fork_below()
    # In no group that somebody kills as a whole.
    os.setpgid(0, 0)
    _end_with_parent(os.getppid())
    _fork_below()
    os.setpgid(0, group)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _fork_below() -> None:
    """Return in a child, and stay above it as a guard."""
    _libc.prctl(_SET_SUBREAPER, 1, 0, 0, 0)
    child = os.fork()
    if child:
        _watch(child)
    _libc.prctl(_SET_SUBREAPER, 0, 0, 0, 0)


def _end_with_parent(parent: int) -> None:
    _libc.prctl(_SET_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def _watch(child: int) -> NoReturn:
    """Wait until *child* ends or we are told to; end everything below us, and exit as *child* did."""
    code: int | None = None
    while code is None:
        received = signal.sigwait(_HEARD)
        if received == signal.SIGCHLD:
            code = _reap().get(child)
        elif received in _ENDING:
            code = -received
    _end_descendants()
    os._exit(code if code >= 0 else 128 - code)


def _reap() -> dict[int, int]:
    """The exit codes of the children that have ended."""
    codes = {}
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            codes[ended[0]] = os.waitstatus_to_exitcode(ended[1])
    except ChildProcessError:
        pass
    return codes


def _end_descendants() -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while (descendants := list(_descendants())) and time.monotonic() < deadline:
        for pid in descendants:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        _reap()
        time.sleep(0.01)
    if descendants:
        os.write(2, f"the tests left processes that cannot be ended: {descendants}\n".encode())


def _descendants() -> Iterator[int]:
    children: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_bytes().rpartition(b")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(place.name))
    waiting = [os.getpid()]
    while waiting:
        found = children.get(waiting.pop(), [])
        yield from found
        waiting += found
