"""What attempts took that a signal cut short: they have no result, and were paid for all the same."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from whet import wire
from whet.model.run import TrialKey
from whet.model.usage import Usage
from whet.store.folder import PRIVATE


@dataclass(frozen=True, slots=True, kw_only=True)
class CutShort:
    """An attempt that came to no end, and what it had taken by then."""

    key: TrialKey
    usage: Usage


class Spent:
    """A line for each such attempt, in a file of the run folder that is there only where one was cut short."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._usage = Usage()
        for line in path.read_bytes().splitlines() if path.exists() else ():
            # A line that a crash cut off says nothing.
            with suppress(wire.WireError):
                self._usage += wire.decode(line, CutShort).usage

    @property
    def usage(self) -> Usage:
        """What all of them took together."""
        return self._usage

    def add(self, key: TrialKey, usage: Usage) -> None:
        """Keep what an attempt at a trial took; nothing is kept of one that told nothing."""
        if usage == Usage():
            return
        self._usage += usage
        line = wire.encode(CutShort(key=key, usage=usage)) + b"\n"
        # We are about to end: what cannot be written is still in the results of this run.
        with suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, PRIVATE)
            os.write(file, line)
            os.close(file)
