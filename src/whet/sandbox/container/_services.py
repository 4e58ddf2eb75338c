"""Tell the services of a container from what an agent started in it, and end the latter.

A service is what ran before the agent, and what such a process forks of itself, as servers do for each connection.
What it starts as another program since then is none: the agent may have replaced that program.
"""

from __future__ import annotations

import os
import signal
import time
from typing import NamedTuple

from whet.errors import SandboxError
from whet.sandbox.process.procfs import is_running, members, signal_all

# What may be running at an end, and how long the first process of a container may take to reap the dead;
# not every image has one that does.
_PATIENCE_S, _REAPING_S = 120.0, 3.0
# A service that starts other programs for longer than this, while all of them are ended, is ended too.
_GRACE_S = 2.0
# A service may start the next program only after a while.
_QUIET_S = 0.5
_PAUSE_S = 0.005
# The places of these in /proc/PID/stat, after the name of the program.
_PARENT, _BEGAN, _STACK, _ARGUMENTS = 1, 19, 25, 45


class _ProcessIdentity(NamedTuple):
    """A process: its parent, when it began, its program, and where that is in memory, which differs at each start.

    The program is the device and number of its file; None if the kernel does not show it to us.
    """

    parent: int
    began: int
    layout: tuple[int, int]
    program: tuple[int, int] | None


class Services:
    """What runs in the container with this *first* process, before an agent begins."""

    def __init__(self, first: int) -> None:
        self._first = first
        looks = ((pid, _look_at(pid)) for pid in (first, *members(first)))
        self._known = {pid: look for pid, look in looks if look is not None}

    def end_strays(self) -> None:
        """End everything else, until nothing new comes for a while; raises `SandboxError` if something does not end."""
        began = quiet_since = time.monotonic()
        starters: set[int] = set()
        while True:
            strays = self._strays()
            running = [pid for pid in strays if is_running(pid)]
            now = time.monotonic()
            if running and now - began > _PATIENCE_S:
                raise SandboxError(f"these processes could not be ended: {running}")
            if not running and now - began > _REAPING_S:
                return
            if not strays and now - quiet_since >= self._quiet_s:
                return
            if running:
                quiet_since = now
                starters.update(self._parents_of(running))
            if now - began > _GRACE_S:
                self._forget(starters)
            # A stopped process starts nothing. A dead one still counts to the limit until it is reaped.
            signal_all(running, signal.SIGSTOP)
            signal_all(self._strays(), signal.SIGKILL)
            time.sleep(_PAUSE_S)

    @property
    def _quiet_s(self) -> float:
        """How long nothing may come before all is ended: what keeps the container starts nothing, services may."""
        return _QUIET_S if self._known.keys() - {self._first} else 0.0

    def _strays(self) -> list[int]:
        kept: dict[int, bool] = {}
        return [pid for pid in members(self._first) if not self._is_service(pid, kept)]

    def _is_service(self, pid: int, answers: dict[int, bool]) -> bool:
        if pid not in answers:
            look = _look_at(pid)
            # Should a process be among its own ancestors by then, because ids are used again.
            answers[pid] = False
            answers[pid] = look is not None and (self._was_there(pid, look) or self._is_fork(look, answers))
        return answers[pid]

    def _was_there(self, pid: int, look: _ProcessIdentity) -> bool:
        known = self._known.get(pid)
        return known is not None and (known.began, known.layout) == (look.began, look.layout)

    def _is_fork(self, look: _ProcessIdentity, answers: dict[int, bool]) -> bool:
        """Return whether it still is the program of a service that forked it: nothing was loaded since."""
        # The first process of a container gets every orphan, so that being its child says nothing.
        if look.parent == self._first:
            return False
        parent = _look_at(look.parent)
        # A program can move its layout to where another has it, but not change the file that it runs from.
        same = parent is not None and (parent.layout, parent.program) == (look.layout, look.program)
        return same and look.layout != (0, 0) and look.program is not None and self._is_service(look.parent, answers)

    def _parents_of(self, pids: list[int]) -> set[int]:
        looks = (_look_at(pid) for pid in pids)
        return {look.parent for look in looks if look is not None} - {self._first}

    def _forget(self, pids: set[int]) -> None:
        for pid in pids:
            self._known.pop(pid, None)


def _look_at(pid: int) -> _ProcessIdentity | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            values = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    numbers = [int(values[place]) for place in (_PARENT, _BEGAN, _STACK, _ARGUMENTS)]
    return _ProcessIdentity(numbers[0], numbers[1], (numbers[2], numbers[3]), _program_of(pid))


def _program_of(pid: int) -> tuple[int, int] | None:
    try:
        file = os.stat(f"/proc/{pid}/exe")
    except OSError:
        return None
    return file.st_dev, file.st_ino
