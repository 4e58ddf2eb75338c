"""The journal of a run: one line per finished trial, written in one piece when it ends, and what resume reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from whet import wire
from whet.errors import RecordLost, StoreError
from whet.model.grade import Status
from whet.model.run import TrialKey, TrialResult
from whet.model.session import Usage


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a trial stands in the journal, and the little of it that is needed often."""

    offset: int
    size: int
    status: Status
    score: float | None
    duration_s: float
    # How its first attempt ended.
    first: Status


class Journal:
    """Appends results and finds them again; keeps only their places in memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(f"{path} cannot be opened: {error.strerror}") from error
        self._entries: dict[TrialKey, Entry] = {}
        self._usage = Usage()
        self._end = self._load()

    def _load(self) -> int:
        """Take in what is there; a line that was cut off by a crash is cut away."""
        offset = 0
        with open(self._file, "rb", closefd=False) as file:  # what was opened, whatever the path is now
            for line in file:
                if not line.endswith(b"\n"):
                    break
                try:
                    result = wire.decode(line, TrialResult)
                except wire.WireError as error:
                    raise StoreError(
                        f"{self._path}: the line at byte {offset} cannot be read: {error}",
                        hint="the record was changed by something else; start a new run",
                    ) from error
                self._note(result, offset, len(line))
                offset += len(line)
        os.ftruncate(self._file, offset)
        return offset

    def append(self, result: TrialResult) -> None:
        """Keep one result; a single write, so that it is there whole or not at all."""
        self.check()
        line = wire.encode(result) + b"\n"
        try:
            written = os.write(self._file, line)
        except OSError as error:
            raise RecordLost(f"{self._path} cannot be written: {error.strerror}", hint=GO_ON) from error
        if written != len(line):
            os.ftruncate(self._file, self._end)
            raise RecordLost(f"{self._path} cannot be written: the disk is full", hint=GO_ON)
        self._note(result, self._end, len(line))
        self._end += len(line)

    def check(self) -> None:
        """Make sure that the file is still ours alone: something may delete, replace or change it during a run."""
        found = os.fstat(self._file)
        try:
            there = os.path.samestat(found, self._path.stat())
        except OSError:
            there = False
        if not there or found.st_size != self._end:
            what = "was changed by something else" if there else "is gone"
            raise RecordLost(f"{self._path} {what} while the run was under way", hint="start a new run")

    def _note(self, result: TrialResult, offset: int, size: int) -> None:
        # The first one counts: a trial is done once.
        if result.key not in self._entries:
            self._entries[result.key] = Entry(
                offset, size, result.status, result.score, result.duration_s, result.first_status
            )
            self._usage += result.total_usage

    @property
    def usage(self) -> Usage:
        """What all attempts at all trials took together."""
        return self._usage

    def entry(self, key: TrialKey) -> Entry | None:
        """What is known of a trial, if it has ended."""
        return self._entries.get(key)

    def read(self, entry: Entry) -> TrialResult:
        """The whole result."""
        try:
            return wire.decode(os.pread(self._file, entry.size, entry.offset), TrialResult)
        except (OSError, wire.WireError) as error:
            raise RecordLost(f"{self._path}: the line at byte {entry.offset} cannot be read: {error}") from error

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[TrialKey]:
        return iter(self._entries)

    def close(self) -> None:
        """Let the disk have it all."""
        os.fsync(self._file)
        os.close(self._file)


GO_ON = "free some space and go on with --resume"
