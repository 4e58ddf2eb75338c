"""The journal of a run: one line per finished trial, written in one piece when it ends, and what resume reads."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from whet.errors import RecordLost, RecordUnwritten, StoreError
from whet.model import wire
from whet.model.grade import Status
from whet.model.run import TrialKey, TrialResult
from whet.model.session import Usage
from whet.record.chain import Chain, Reading, is_done, refuse_other_run, run_hash
from whet.record.folder import PRIVATE, RUN_FILE
from whet.record.run_file import is_chained

FREE_SPACE = "free some space"


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a trial stands in the journal, and the little of it that is needed often.

    `digest` is the hash of its line as we wrote or read it: nothing else is believed later. `done` says whether the
    trial is over, which one that a full disk stopped is not.
    """

    offset: int
    size: int
    digest: bytes
    status: Status
    score: float | None
    duration_s: float
    done: bool
    # How its first attempt ended.
    first: Status


class Journal:
    """Appends results and finds them again; keeps only their places and hashes in memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StoreError(f"{path} cannot be opened: {error.strerror}") from error
        self._entries: dict[TrialKey, Entry] = {}
        self._usage = Usage()
        # All that is in the file as far as we know.
        self._content = hashlib.sha256()
        self._last = b""
        self._run: str | None = None
        # The bytes of a line that a crash cut off, which was dropped.
        self.torn = 0
        self._chain = self._load()
        self._seen = self._stamp()

    def _load(self) -> Chain:
        """Take in what is there, if it fits; a line that was cut off by a crash is cut away."""
        run_file = self._path.with_name(RUN_FILE)
        self._run = run_hash(run_file)
        reading = Reading(Chain(required=is_chained(run_file)))
        with open(self._file, "rb", closefd=False) as file:  # what was opened, whatever the path is now
            for line in reading.lines(file, self._path):
                refuse_other_run(line, run_file)
                self._note(line.result, line.offset, line.raw)
        self.torn = reading.torn
        if self.torn:
            os.ftruncate(self._file, reading.chain.size)
        return reading.chain

    @property
    def lines(self) -> int:
        """How many lines there are."""
        return self._chain.lines

    @property
    def last_link(self) -> str | None:
        """The hash that the last line ends in."""
        return self._chain.link

    @property
    def run_hash(self) -> str | None:
        """The hash of run.json when the journal was opened."""
        return self._run

    def append(self, result: TrialResult, files: Mapping[str, str] | None = None) -> None:
        """Keep one result and the hashes of its files; a single write, so that it is there whole or not at all."""
        self.check()
        # The first line that has a hash says what the run was asked.
        run = self._run if self._chain.link is None else None
        line = self._chain.forge(result, files or {}, run)
        try:
            written = os.write(self._file, line)
        except OSError as error:
            raise RecordUnwritten(f"{self._path} cannot be written: {error.strerror}", hint=FREE_SPACE) from error
        if written != len(line):
            os.ftruncate(self._file, self._chain.size)
            raise RecordUnwritten(f"{self._path} cannot be written: the disk is full", hint=FREE_SPACE)
        self._note(result, self._chain.size, line)
        self._chain.accept(line)
        self._seen = self._stamp()

    def check(self, *, whole: bool = False) -> None:
        """Make sure that the file is what we wrote, before a line is added and, *whole*, before results are.

        Its last line is compared each time. All of it is, where the file system says that somebody wrote to it, and in
        the end: a change that keeps size and times is noticed then.
        """
        self._check_place()
        stamp = self._stamp()
        if stamp[0] != self._chain.size or self._read_last() != self._last:
            raise self._changed()
        if whole or stamp != self._seen:
            if not self._is_whole():
                raise self._changed()
            self._seen = stamp

    def _check_place(self) -> None:
        """Make sure that the path still leads to the file that we opened; a link to it is not that file."""
        try:
            found = os.lstat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            raise self._lost("is gone") from None
        except OSError as error:
            raise self._lost(f"cannot be reached ({error.strerror})") from error
        if not os.path.samestat(os.fstat(self._file), found):
            raise self._lost("was replaced by something else")

    def _stamp(self) -> tuple[int, int, int]:
        found = os.fstat(self._file)
        return found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def _read_last(self) -> bytes:
        return os.pread(self._file, len(self._last), self._chain.size - len(self._last))

    def _is_whole(self) -> bool:
        with open(self._file, "rb", closefd=False) as file:
            file.seek(0)
            return hashlib.file_digest(file, "sha256").digest() == self._content.digest()

    def _changed(self) -> RecordLost:
        return self._lost("was changed by something else", self._where())

    def _lost(self, what: str, where: str = "") -> RecordLost:
        return RecordLost(
            f"{self._path} {what} while the run was under way{where}",
            hint=f"start a new run; whet verify {self._path.parent} lists all that does not fit",
        )

    def _where(self) -> str:
        """The first line that does not fit, as far as it shows."""
        try:
            with open(self._file, "rb", closefd=False) as file:
                file.seek(0)
                for _ in Reading().lines(file, self._path):
                    pass
        except StoreError as error:
            return f": {error.message.removeprefix(f'{self._path}: ')}"
        return ""

    def _note(self, result: TrialResult, offset: int, line: bytes) -> None:
        self._content.update(line)
        self._last = line
        before = self._entries.get(result.key)
        # The first one counts: a trial is done once. One that a disk stopped is not done, but was paid for.
        if before is None or not before.done:
            digest = hashlib.sha256(line).digest()
            self._entries[result.key] = Entry(
                offset,
                len(line),
                digest,
                result.status,
                result.score,
                result.duration_s,
                is_done(result),
                result.first_status,
            )
            self._usage += result.total_usage

    @property
    def usage(self) -> Usage:
        """What all attempts at all trials took together."""
        return self._usage

    def entry(self, key: TrialKey) -> Entry | None:
        """What is known of a trial, if it has ended."""
        return self._entries.get(key)

    def is_done(self, key: TrialKey) -> bool:
        """Whether a trial has ended and need not be tried again."""
        entry = self._entries.get(key)
        return entry is not None and entry.done

    def read(self, entry: Entry) -> TrialResult:
        """The whole result, if its line is still the one that was written."""
        try:
            line = os.pread(self._file, entry.size, entry.offset)
            if hashlib.sha256(line).digest() != entry.digest:
                raise self._changed()
            return wire.decode(line, TrialResult)
        except (OSError, wire.WireError) as error:
            raise RecordLost(f"{self._path}: the line at byte {entry.offset} cannot be read: {error}") from error

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[TrialKey]:
        return iter(self._entries)

    def sync(self) -> None:
        """Let the disk have it all."""
        os.fsync(self._file)

    def close(self) -> None:
        """Let the disk have it all, and let go of it."""
        self.sync()
        os.close(self._file)


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
