"""Hold a command to its ceilings of disk and of files: look at what it adds, and end it when that is too much.

Quotas of the kernel do not serve here: few file systems have them on, and container engines use them on even fewer.
A look walks through folders, so there is one only after a file system lost so much that the ceiling may be reached,
and now and then, because something else may have become free meanwhile.
"""

from __future__ import annotations

import math
import os
import stat
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.to_thread
from msgspec.structs import replace

from whet.model.suite import Ceilings
from whet.sandbox.contract import Ended
from whet.sandbox.process.procfs import descendants
from whet.workspace.walk import DirectoryWalk, walk

_MB = 1024 * 1024
_INTERVAL_S = 0.2
_LONGEST_S = 10.0
# After a look that took long, a pause that is longer still.
_TIMES_A_LOOK = 10
_BLOCK = 512
# A file takes more than its blocks: an inode, and its name in a folder.
_LEAST = 1024
# Files that are only in memory, which has a ceiling of its own.
_IN_MEMORY = ("/memfd:", "/dev/", "/SYSV")


class DiskUsage(NamedTuple):
    """An amount of bytes and of files and folders."""

    size: float
    files: int

    def __sub__(self, other: DiskUsage) -> DiskUsage:
        return DiskUsage(self.size - other.size, self.files - other.files)


NOTHING = DiskUsage(0, 0)


class Disk:
    """What commands may add to *folders*, and to a `layer` of a container that only its engine can measure.

    `at` is the disk that the layer is on. What is there before the first command does not count, unless `before` says
    that there is nothing.
    """

    def __init__(
        self,
        ceilings: Ceilings,
        folders: tuple[Path, ...],
        *,
        layer: Callable[[], Awaitable[int]] | None = None,
        at: Path | None = None,
        before: DiskUsage | None = None,
        held_by: Callable[[], list[int]] | None = None,
    ) -> None:
        self._ceilings = ceilings
        self._most = DiskUsage(math.inf if ceilings.disk_mb is None else ceilings.disk_mb * _MB, ceilings.files)
        self._folders, self._layer = folders, layer
        self._places = (*folders, *([at] if at else ()))
        self._before = before
        # The processes that may hold files, if these are not only those below the supervisor.
        self._held_by = held_by
        self._room = self._most
        self._free: list[DiskUsage] | None = None
        self._looked, self._pause_s = 0.0, _INTERVAL_S

    async def begin(self) -> None:
        """Find out what is there already."""
        if self._free is None:
            self._note()
        if self._before is None:
            self._before = await self._used(0)

    async def watch(self, supervisor: int, end: Callable[[], object]) -> None:
        """Look until it is too much, and call *end* then; *supervisor* is the process above the command."""
        while not (self._is_due() and await self._is_full(supervisor)):  # noqa: ASYNC110 - nothing says when
            await anyio.sleep(self._pause_s)
        end()

    async def noted(self, ended: Ended) -> Ended:
        """Return *ended* with what was reached, also if it was reached since the last look."""
        if min(self._room) < 0 or await self._is_full(0):
            return replace(ended, reached=self._words, stopped=True)
        return ended

    @property
    def _words(self) -> str:
        if self._room.size < 0:
            return f"{self._ceilings.disk_mb:,} MB of disk"
        return f"{self._ceilings.files:,} new files"

    def _note(self) -> None:
        self._free, self._looked = self._free_now(), time.monotonic()

    def _is_due(self) -> bool:
        """Return whether so much is gone that it may be too much, or the last look is long ago."""
        if time.monotonic() - self._looked > max(_LONGEST_S, self._pause_s):
            return True
        lost = (before - now for before, now in zip(self._free or (), self._free_now(), strict=False))
        return any(usage.size > self._room.size or usage.files > self._room.files for usage in lost)

    async def _is_full(self, supervisor: int) -> bool:
        self._note()
        self._room = self._most - (await self._used(supervisor) - (self._before or NOTHING))
        self._pause_s = max(_INTERVAL_S, (time.monotonic() - self._looked) * _TIMES_A_LOOK)
        return min(self._room) < 0

    async def _used(self, supervisor: int) -> DiskUsage:
        holders = (self._held_by or partial(descendants, supervisor)) if supervisor else list
        used = await anyio.to_thread.run_sync(usage_of, self._folders, holders, abandon_on_cancel=True)
        return used._replace(size=used.size + (await self._layer() if self._layer else 0))

    def _free_now(self) -> list[DiskUsage]:
        rooms = []
        for place in self._places:
            try:
                state = os.statvfs(place)
            except OSError:
                # Gone, as if everything were.
                rooms.append(NOTHING)
            else:
                rooms.append(DiskUsage(state.f_bfree * state.f_frsize, state.f_ffree))
        return rooms


def used_by(folders: tuple[Path, ...]) -> int:
    """Return the bytes that *folders* take."""
    return int(usage_of(folders).size)


def usage_of(folders: tuple[Path, ...], holders: Callable[[], list[int]] = list) -> DiskUsage:
    """Return what *folders* take, with files that *holders* removed and still hold open."""
    # A file with two names takes its blocks once.
    seen: set[tuple[int, int]] = set()
    total = files = 0
    for status in (*(below for folder in folders for below in _below(folder)), *_nameless(holders())):
        if stat.S_ISDIR(status.st_mode) or (status.st_dev, status.st_ino) not in seen:
            seen.add((status.st_dev, status.st_ino))
            total += max(status.st_blocks * _BLOCK, _LEAST)
            files += 1
    return DiskUsage(total, files)


def _below(folder: Path) -> Iterator[os.stat_result]:
    if not folder.is_dir():
        with suppress(OSError):
            yield folder.lstat()
        return
    # What cannot be read now, because it is being moved, can be at the next look.
    with suppress(OSError), DirectoryWalk(folder, force=os.geteuid() != 0) as place:
        yield from (step.stat for step in walk(place) if step.kind != "leave")


def _nameless(pids: list[int]) -> Iterator[os.stat_result]:
    for pid in pids:
        with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                with suppress(OSError):
                    name = os.readlink(entry.path)
                    if name.endswith(" (deleted)") and not name.startswith(_IN_MEMORY):
                        yield os.stat(entry.path)
