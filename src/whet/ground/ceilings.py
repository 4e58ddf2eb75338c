"""Holding a process to its ceilings: by a control group where one can be made, else by limits of each process.

Both are taken on by a shell that then becomes the program. Joining a group from outside would come too late for what
the program has started by then, and `preexec_fn` would make every start slow.
"""

from __future__ import annotations

import math
import os
import re
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from whet.dataclass import dataclass
from whet.errors import SandboxError
from whet.ground.cgroups import Group, places
from whet.ground.sandbox import Command, Ended, find_program
from whet.model.suite import Ceilings

_SIGNALLED = 128
# How programs say it, on Python, C, C++, Go, Node, Java, Ruby, PHP and Rust.
_OUT_OF_MEMORY = re.compile(
    rb"MemoryError|NoMemoryError|OutOfMemory|bad_alloc|ENOMEM|memory exhausted|out of memory|cannot allocate memory"
    rb"|allowed memory size|memory allocation of \d+ bytes failed",
    re.IGNORECASE,
)


class Hold(Protocol):
    """What keeps one process below its ceilings."""

    def argv(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """The command that takes the ceilings on and becomes *argv*."""

    def reached(self, ended: Ended) -> str | None:
        """Which ceiling it ran into, in words."""


class _Unheld:
    """No ceilings."""

    def argv(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        return argv

    def reached(self, ended: Ended) -> str | None:
        del ended
        return None


_UNHELD = _Unheld()


@dataclass(frozen=True, slots=True)
class _ByGroup:
    """The ceilings of everything that it starts, together."""

    ceilings: Ceilings
    group: Group

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


@dataclass(frozen=True, slots=True)
class _ByProcess:
    """The ceilings of each single process, as far as the system has a limit for it.

    Not RLIMIT_AS: programs on V8 or Go reserve far more addresses than they use.
    """

    ceilings: Ceilings
    timeout_s: float | None

    def argv(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        asked = self.ceilings
        lines = []
        if asked.memory_mb is not None:
            lines.append(f"ulimit -d {_at_most(resource.RLIMIT_DATA, asked.memory_mb * 1024 * 1024) // 1024}")
        if asked.processes is not None:
            # The system counts all processes of the user, so those that are there already are added.
            most = _at_most(resource.RLIMIT_NPROC, _tasks_of(os.getuid()) + asked.processes)
            # dash has another letter for it than bash.
            lines.append(f"{{ ulimit -u {most} || ulimit -p {most}; }} 2>/dev/null")
        if asked.cpus is not None and self.timeout_s is not None:
            seconds = _at_most(resource.RLIMIT_CPU, self._seconds)
            # At the soft limit comes a signal that tells why, at the hard one it is killed.
            lines.append(f"ulimit -S -t {seconds} && ulimit -H -t {_at_most(resource.RLIMIT_CPU, seconds + 5)}")
        return ("/bin/sh", "-c", " && ".join([*lines, 'exec "$@"']), "sh", *argv)

    @property
    def _seconds(self) -> int:
        """A share of the CPUs is not a limit of the system; what the share comes to in all is."""
        return max(1, math.ceil((self.ceilings.cpus or 1) * (self.timeout_s or 1)))

    def reached(self, ended: Ended) -> str | None:
        if self.ceilings.cpus is not None and signal.SIGXCPU in (ended.signal, (ended.exit_code or 0) - _SIGNALLED):
            return f"{self._seconds:,} s of CPU time"
        return None


@contextmanager
def holding(ceilings: Ceilings, timeout_s: float | None) -> Iterator[Hold]:
    """What holds one process, for as long as it runs; at most *timeout_s*, where that is known."""
    if not ceilings:
        yield _UNHELD
        return
    found = places(ceilings)
    if not found:
        yield _ByProcess(ceilings, timeout_s)
        return
    try:
        group = Group(found)
    except OSError as error:
        raise SandboxError(f"a control group for its ceilings could not be made: {error}") from error
    try:
        group.limit(ceilings)
        yield _ByGroup(ceilings, group)
    finally:
        group.remove()


def held_to(hold: Hold, command: Command) -> Command:
    """*command*, under its ceilings; a missing program is found here, because a shell would only print a line."""
    if hold is _UNHELD:
        return command
    program = find_program(command)
    return replace(command, argv=hold.argv((program, *command.argv[1:])))


def judged(hold: Hold, ended: Ended) -> Ended:
    """*ended*, with the ceiling that was reached."""
    reached = hold.reached(ended)
    return ended if reached is None else replace(ended, reached=reached)


def suspected(ended: Ended, ceilings: Ceilings, said: bytes) -> Ended:
    """*ended*, with the ceiling that the program's last words speak of; for where no control group saw it reached."""
    if ended.reached or ended.exit_code == 0 or ceilings.memory_mb is None or not _OUT_OF_MEMORY.search(said):
        return ended
    return ended if places(ceilings) else replace(ended, reached=f"{ceilings.memory_mb:,} MB of memory")


def weaknesses(ceilings: Ceilings) -> str | None:
    """What a person should know where no control group holds the ceilings."""
    if not ceilings or places(ceilings):
        return None
    told = []
    if ceilings.memory_mb is not None:
        told.append("memory is that of each single process")
    if ceilings.processes is not None:
        told.append("processes are not limited for root" if os.getuid() == 0 else "processes of yours elsewhere count")
    if ceilings.cpus is not None:
        told.append("CPUs become CPU time within the time limit")
    return f"no control group can be made here, so ceilings hold less: {', '.join(told)}"


def _at_most(name: int, wanted: int) -> int:
    """A limit can be lowered only."""
    _, hard = resource.getrlimit(name)
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def _tasks_of(user: int) -> int:
    """How many processes and threads *user* has."""
    total = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid == user:
                    total += len(os.listdir(entry / "task"))  # noqa: PTH208 - only their number
            except OSError:
                continue
    return total
