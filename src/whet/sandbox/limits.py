"""Hold a process to its ceilings: by a control group if we can make one, else by the limits of each process.

A shell joins the group or sets the limits, and then becomes the program. Joining from outside would miss what the
program has already started, and `preexec_fn` would make every start slow.
"""

from __future__ import annotations

import math
import os
import re
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from whet.errors import SandboxError
from whet.model.suite import MOST_FILES, Ceilings
from whet.sandbox.contract import Boundary, Command, Ended, find_program
from whet.sandbox.process.cgroups import ControlGroups, places
from whet.sandbox.process.procfs import all_processes

if TYPE_CHECKING:
    from whet.sandbox.process.disk import Disk

_SIGNALLED = 128
# The messages of Python, C, C++, Go, Node, Java, Ruby, PHP and Rust.
_OUT_OF_MEMORY = (
    rb"(?i)MemoryError|NoMemoryError|OutOfMemory|bad_alloc|ENOMEM|memory exhausted|out of memory|cannot allocate memory"
    rb"|allowed memory size|memory allocation of \d+ bytes failed"
)


class Hold:
    """Keeps one process below its ceilings; this one has none."""

    def __init__(self, ceilings: Ceilings) -> None:
        self.ceilings = ceilings

    def argv(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """Return the command that takes on the ceilings and then becomes *argv*."""
        return argv

    def reached(self, ended: Ended) -> str | None:
        """Return the ceiling that the process reached, in words, or None."""
        del ended
        return None

    def command(self, command: Command) -> Command:
        """Return *command* under its ceilings; raises if there is no such program, which a shell would only print."""
        if not self.ceilings:
            return command
        return replace(command, argv=self.argv((find_program(command), *command.argv[1:])))

    def with_reached(self, ended: Ended) -> Ended:
        """Return *ended* with the ceiling that was reached."""
        return ended if ended.reached else replace(ended, reached=self.reached(ended))


class _ByGroup(Hold):
    """Ceilings for the process and everything that it starts, together."""

    def __init__(self, ceilings: Ceilings, group: ControlGroups) -> None:
        super().__init__(ceilings)
        self.group = group

    def argv(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        joins = " && ".join(f"echo 0 > '{entrance}'" for entrance in self.group.entrances)
        return ("/bin/sh", "-c", f'{joins} && exec "$@"', "sh", *argv)

    def reached(self, ended: Ended) -> str | None:
        del ended
        match self.group.reached():
            case "memory":
                return f"{self.ceilings.memory_mb:,} MB of memory"
            case "pids":
                return f"{self.ceilings.processes:,} processes"
            case _:
                return None


class _ByProcess(Hold):
    """Ceilings for each single process, where the system has a limit for it.

    Does not use RLIMIT_AS: programs on V8 or Go reserve far more addresses than they use.
    """

    def __init__(self, ceilings: Ceilings, timeout_s: float | None) -> None:
        super().__init__(ceilings)
        self.timeout_s = timeout_s

    def argv(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        asked = self.ceilings
        lines = []
        if asked.memory_mb is not None:
            lines.append(f"ulimit -d {_at_most(resource.RLIMIT_DATA, asked.memory_mb * 1024 * 1024) // 1024}")
        if asked.processes is not None:
            # The system counts all processes of the user, so add those that already run.
            most = _at_most(resource.RLIMIT_NPROC, _tasks_of(os.getuid()) + asked.processes)
            # dash and bash have different letters for it.
            lines.append(f"{{ ulimit -u {most} || ulimit -p {most}; }} 2>/dev/null")
        if asked.cpus is not None and self.timeout_s is not None:
            seconds = _at_most(resource.RLIMIT_CPU, self._seconds)
            # The soft limit sends a signal that says why; the hard limit kills.
            lines.append(f"ulimit -S -t {seconds} && ulimit -H -t {_at_most(resource.RLIMIT_CPU, seconds + 5)}")
        return ("/bin/sh", "-c", " && ".join([*lines, 'exec "$@"']), "sh", *argv)

    @property
    def _seconds(self) -> int:
        """The CPU time that the share of CPUs allows in all, because the system has no limit for a share."""
        return max(1, math.ceil((self.ceilings.cpus or 1) * (self.timeout_s or 1)))

    def reached(self, ended: Ended) -> str | None:
        if self.ceilings.cpus is not None and signal.SIGXCPU in (ended.signal, (ended.exit_code or 0) - _SIGNALLED):
            return f"{self._seconds:,} s of CPU time"
        return None


@contextmanager
def holding(ceilings: Ceilings, timeout_s: float | None) -> Iterator[Hold]:
    """Hold one process to *ceilings* while it runs, for at most *timeout_s* seconds if that is known."""
    if not ceilings:
        yield Hold(ceilings)
        return
    group_places = places(ceilings)
    if not group_places:
        yield _ByProcess(ceilings, timeout_s)
        return
    try:
        group = ControlGroups(group_places)
    except OSError as error:
        raise SandboxError(f"cannot make a control group for the ceilings: {error}") from error
    try:
        group.limit(ceilings)
        yield _ByGroup(ceilings, group)
    finally:
        group.remove()


def disk_of(boundary: Boundary) -> Disk | None:
    """Return what holds a command to its ceilings of disk and files, if somebody chose one.

    The usual one of files holds when whet looks at what is left.
    """
    if boundary.ceilings.disk_mb is None and boundary.ceilings.files == MOST_FILES:
        return None
    # Only here: most runs have none, and it imports the event loop.
    from whet.sandbox.process.disk import Disk

    return Disk(boundary.ceilings, (*boundary.writable, *(folder for _, folder in boundary.shown_at)))


def suspected(ended: Ended, ceilings: Ceilings, said: bytes) -> Ended:
    """Return *ended* with the ceiling that the last output mentions, if no control group could notice it."""
    if ended.reached or ended.exit_code == 0 or ceilings.memory_mb is None or not re.search(_OUT_OF_MEMORY, said):
        return ended
    return ended if places(ceilings) else replace(ended, reached=f"{ceilings.memory_mb:,} MB of memory")


def weaknesses(ceilings: Ceilings) -> str | None:
    """Return what holds less without a control group, as a note for people, or None."""
    if not ceilings or places(ceilings):
        return None
    notes = []
    if ceilings.memory_mb is not None:
        notes.append("memory is that of each single process")
    if ceilings.processes is not None:
        notes.append("processes are not limited for root" if os.getuid() == 0 else "your other processes count too")
    if ceilings.cpus is not None:
        notes.append("CPUs become CPU time within the time limit")
    return f"no control group can be made here, so ceilings are weaker: {', '.join(notes)}"


def _at_most(name: int, wanted: int) -> int:
    """Return *wanted*, or the current hard limit if that is lower: a limit can only be lowered."""
    _, hard = resource.getrlimit(name)
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def _tasks_of(user: int) -> int:
    """Return how many processes and threads *user* has."""
    total = 0
    for pid in all_processes():
        with suppress(OSError):
            if Path(f"/proc/{pid}").stat().st_uid == user:
                total += len(os.listdir(f"/proc/{pid}/task"))
    return total
