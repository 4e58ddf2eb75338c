"""Find out where we can make control groups, and make one for each process that has ceilings.

Knows both layouts of Linux: the single tree of version 2, and a tree for each controller of version 1. It tries each
place, because no file says whether we may make and join a group there.
"""

from __future__ import annotations

import errno
import itertools
import os
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from whet.model.suite import Ceilings
from whet.workspace.mounts import mounted

Controller = Literal["memory", "pids", "cpu"]
CONTROLLERS: tuple[Controller, ...] = ("memory", "pids", "cpu")
_PERIOD_US = 100_000
# Not every kernel counts swap.
_NOT_EVERYWHERE = ("memory.swap.max", "memory.memsw.limit_in_bytes")
_MB = 1024 * 1024
_PREFIX = "whet-"
_PATIENCE_S = 0.2
_numbers = itertools.count(1)


class ParentGroup(Struct, frozen=True):
    """A group below which we can make ours, for these controllers."""

    folder: Path
    controllers: tuple[Controller, ...]
    unified: bool


class ControlGroups:
    """The control groups of one process, a folder in each place; `remove` deletes them."""

    def __init__(self, places: Iterable[ParentGroup]) -> None:
        name = f"{_PREFIX}{os.getpid()}-{next(_numbers)}"
        self._made: list[tuple[ParentGroup, Path]] = []
        try:
            for place in places:
                folder = place.folder / name
                folder.mkdir()
                self._made.append((place, folder))
        except OSError:
            self.remove()
            raise

    @property
    def entrances(self) -> tuple[str, ...]:
        """The files to which a process writes "0" to join."""
        return tuple(str(folder / "cgroup.procs") for _, folder in self._made)

    def limit(self, ceilings: Ceilings) -> None:
        """Set the limits for everything inside."""
        for place, folder in self._made:
            for controller in place.controllers:
                for name, value in _settings(controller, ceilings, unified=place.unified):
                    if name not in _NOT_EVERYWHERE or (folder / name).exists():
                        (folder / name).write_text(value)

    def reached(self) -> Controller | None:
        """Return the ceiling that a process inside has reached, or None."""
        for place, folder in self._made:
            memory = "memory.events" if place.unified else "memory.oom_control"
            if "memory" in place.controllers and _count(folder / memory, "oom_kill"):
                return "memory"
            if "pids" in place.controllers and _count(folder / "pids.events", "max"):
                return "pids"
        return None

    def remove(self) -> None:
        """Delete the groups; the kernel needs a moment to forget the dead processes inside."""
        deadline = time.monotonic() + _PATIENCE_S
        for _, folder in reversed(self._made):
            while not _removed(folder) and time.monotonic() < deadline:
                time.sleep(0.001)


def places(wanted: Ceilings) -> tuple[ParentGroup, ...]:
    """Return the places for groups with all *wanted* ceilings, or nothing if one cannot be held."""
    most = (wanted.memory_mb, wanted.processes, wanted.cpus)
    asked = [controller for controller, value in zip(CONTROLLERS, most, strict=True) if value is not None]
    usable = usable_places()
    covered = {controller for place in usable for controller in place.controllers}
    if not covered.issuperset(asked):
        return ()
    chosen = (
        replace(place, controllers=tuple(name for name in place.controllers if name in asked)) for place in usable
    )
    return tuple(place for place in chosen if place.controllers)


@lru_cache(maxsize=1)
def usable_places() -> tuple[ParentGroup, ...]:
    """Try every place once and return those that work; delete what a killed whet left there."""
    parents: list[ParentGroup] = []
    for place in (*_unified_places(), *_separate_places()):
        missing = tuple(name for name in place.controllers if not any(name in other.controllers for other in parents))
        if missing and _holds(candidate := ParentGroup(place.folder, missing, place.unified)):
            _sweep(place.folder)
            parents.append(candidate)
    return tuple(parents)


def _unified_places() -> Iterator[ParentGroup]:
    """Yield the groups above ours: a group with processes passes no controllers to groups below it."""
    own = _own_groups().get("")
    for mount in mounted():
        if mount.kind != "cgroup2" or own is None:
            continue
        folder = mount.place / own.lstrip("/")
        for above in (mount.place,) if folder == mount.place else folder.parents:
            enabled_names = _words(above / "cgroup.subtree_control")
            controllers = tuple(name for name in CONTROLLERS if name in enabled_names)
            if controllers and above.is_relative_to(mount.place):
                yield ParentGroup(above, controllers, unified=True)


def _separate_places() -> Iterator[ParentGroup]:
    for mount in mounted():
        if mount.kind == "cgroup":
            for controller in CONTROLLERS:
                if controller in mount.options:
                    own = _own_groups().get(controller, "/")
                    yield ParentGroup(mount.place / own.lstrip("/"), (controller,), unified=False)


def _own_groups() -> dict[str, str]:
    """Return our own group for each controller; the key is "" for version 2."""
    groups: dict[str, str] = {}
    for line in _lines(Path("/proc/self/cgroup")):
        _, names, path = line.split(":", 2)
        groups |= dict.fromkeys(names.split(","), path)
    return groups


def _holds(place: ParentGroup) -> bool:
    """Return whether we can make, limit and join a group there."""
    try:
        group = ControlGroups([place])
    except OSError:
        return False
    try:
        group.limit(Ceilings(memory_mb=1024, processes=100, cpus=1))
        script = 'for entrance; do echo 0 > "$entrance" || exit 1; done'
        argv = ("/bin/sh", "-c", script, "sh", *group.entrances)
        return subprocess.run(argv, check=False, capture_output=True, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
    finally:
        group.remove()


def _sweep(folder: Path) -> None:
    """Delete the groups of processes that have ended; the name of a group has the process id."""
    for left in folder.glob(f"{_PREFIX}*-*"):
        pid = left.name.removeprefix(_PREFIX).split("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            _removed(left)


def _settings(controller: Controller, ceilings: Ceilings, *, unified: bool) -> Iterator[tuple[str, str]]:
    if controller == "memory" and ceilings.memory_mb is not None:
        most = str(ceilings.memory_mb * _MB)
        # Swap would only make the process slow before it is killed anyway.
        yield from (
            (("memory.max", most), ("memory.swap.max", "0"))
            if unified
            else (("memory.limit_in_bytes", most), ("memory.memsw.limit_in_bytes", most))
        )
    elif controller == "pids" and ceilings.processes is not None:
        yield "pids.max", str(ceilings.processes)
    elif controller == "cpu" and ceilings.cpus is not None:
        quota = max(1000, round(ceilings.cpus * _PERIOD_US))
        if unified:
            yield "cpu.max", f"{quota} {_PERIOD_US}"
        else:
            yield "cpu.cfs_period_us", str(_PERIOD_US)
            yield "cpu.cfs_quota_us", str(quota)


def _count(file: Path, word: str) -> int:
    pairs = (line.split() for line in _lines(file))
    return next((int(pair[1]) for pair in pairs if pair and pair[0] == word), 0)


def _words(file: Path) -> list[str]:
    return " ".join(_lines(file)).split()


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError as error:
        return error.errno not in (errno.EBUSY, errno.ENOTEMPTY)
    return True


def memory_here() -> int:
    """Return the memory that this process can have at most, in bytes: that of the machine, or of a group it is in."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for file in _memory_files():
        with suppress(OSError, ValueError):
            # A group without a limit says "max".
            limits.append(int(file.read_text()))
    return min(limits)


def _memory_files() -> Iterator[Path]:
    """Yield the files with the limits of our group and of those above it, in both layouts."""
    top = Path("/sys/fs/cgroup")
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers not in ("", "memory"):
                continue
            base, name = (top / "memory", "memory.limit_in_bytes") if controllers else (top, "memory.max")
            group = base / path.strip("/")
            yield from (folder / name for folder in (group, *group.parents) if folder.is_relative_to(base))
