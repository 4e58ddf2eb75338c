"""The journal of a run: one line for each trial that ended, written in one piece and read back from the disk."""

from __future__ import annotations

import hashlib
import math
import os
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from whet.errors import RecordLost, RecordUnwritten, StoreError
from whet.model import wire
from whet.model.comparison import Look
from whet.model.grade import STATUSES, Status
from whet.model.run import TrialKey, TrialResult
from whet.model.session import Usage
from whet.record.chain import Chain, Line, Reader, Reading, is_done, read_line, read_result, refuse_other_run
from whet.record.folder import PRIVATE, RUN_FILE, file_hash
from whet.record.run_file import is_chained

FREE_SPACE = "free some space"


class Entry(Struct, frozen=True, kw_only=True):
    """Where the line of a trial is in the journal, and the few values of it that are needed often.

    `digest` is the hash of the line as we wrote or read it: a line that is read later must be the same. `done` is false
    if a full disk stopped the trial.
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


class _Entries:
    """The entries of all trials, packed: a run may have a hundred thousand, and an object takes six times as much."""

    _FORM = struct.Struct("<QI32sBddBB")
    # The most trials that a case may have. A key of a foreign journal may have any number.
    _MOST = 1_000_000

    def __init__(self) -> None:
        self._packed: dict[tuple[str, ...], bytearray] = {}
        self._others: dict[TrialKey, Entry] = {}
        self._count = 0

    def get(self, key: TrialKey) -> Entry | None:
        if not 0 < key.number <= self._MOST:
            return self._others.get(key)
        packed = self._packed.get((key.case, key.runner, key.arm, key.suite), b"")
        at = (key.number - 1) * self._FORM.size
        return self._unpacked(packed, at) if at < len(packed) else None

    def put(self, key: TrialKey, entry: Entry, *, new: bool) -> None:
        self._count += new
        if not 0 < key.number <= self._MOST:
            self._others[key] = entry
            return
        packed = self._packed.setdefault((key.case, key.runner, key.arm, key.suite), bytearray())
        at = (key.number - 1) * self._FORM.size
        if len(packed) < at + self._FORM.size:
            packed.extend(bytes(at + self._FORM.size - len(packed)))
        score = math.nan if entry.score is None else entry.score
        status, first = STATUSES.index(entry.status), STATUSES.index(entry.first)
        values = (entry.offset, entry.size, entry.digest, status, score, entry.duration_s, entry.done, first)
        self._FORM.pack_into(packed, at, *values)

    def _unpacked(self, packed: bytes | bytearray, at: int) -> Entry | None:
        offset, size, digest, status, score, duration_s, done, first = self._FORM.unpack_from(packed, at)
        if not size:
            return None
        return Entry(
            offset=offset,
            size=size,
            digest=digest,
            status=STATUSES[status],
            score=None if math.isnan(score) else score,
            duration_s=duration_s,
            done=bool(done),
            first=STATUSES[first],
        )

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[TrialKey]:
        for (case, runner, arm, suite), packed in self._packed.items():
            for number in range(1, len(packed) // self._FORM.size + 1):
                key = TrialKey(suite=suite, case=case, runner=runner, arm=arm, number=number)
                if self.get(key) is not None:
                    yield key
        yield from self._others


class TrialLines(ABC):
    """The lines of a journal, for results; keeps only their places, and the hash of run.json."""

    def __init__(self, run_hash: str | None) -> None:
        self.run_hash = run_hash
        # How many lines there are, and the hash that the last one ends in.
        self.lines = 0
        self.last_link: str | None = None
        # The usage of all attempts at all trials together.
        self.usage = Usage()
        # What of that was paid for.
        self.paid_usage = Usage()
        # And that of the models that played users.
        self.user_usage = Usage()
        # What was seen after each round of a run until decided.
        self.looks: tuple[Look, ...] = ()
        self._entries = _Entries()

    def note(self, result: TrialResult, offset: int, line: bytes, link: str | None, look: Look | None = None) -> None:
        """Note the next line and what it says."""
        self.lines += 1
        self.last_link = link
        self.looks += () if look is None else (look,)
        before = self._entries.get(result.key)
        # The first line of a trial counts, unless a full disk stopped the trial; that one was still paid for.
        if before is None or not before.done:
            self.usage += result.total_usage
            self.paid_usage += result.paid_usage
            self.user_usage += result.user_usage
            entry = Entry(
                offset=offset,
                size=len(line),
                digest=hashlib.sha256(line).digest(),
                status=result.status,
                score=result.score,
                duration_s=result.duration_s,
                done=is_done(result),
                first=result.first_status,
            )
            self._entries.put(result.key, entry, new=before is None)

    def entry(self, key: TrialKey) -> Entry | None:
        """Return the entry of a trial, if it has ended."""
        return self._entries.get(key)

    def is_done(self, key: TrialKey) -> bool:
        """Return whether a trial has ended and is not tried again."""
        entry = self._entries.get(key)
        return entry is not None and entry.done

    @abstractmethod
    def read(self, entry: Entry) -> TrialResult:
        """Return the whole result."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[TrialKey]:
        """Yield the keys of the trials that have ended, those of an execution together."""
        return iter(self._entries)


def _knowing(known: Iterable[Line]) -> Reader[Line]:
    """Return what reads a line, unless it is the same as the one of *known* at its place."""
    coming = iter(known)
    ahead = next(coming, None)

    def read(raw: bytes, number: int, offset: int) -> Line:
        nonlocal ahead
        while ahead is not None and ahead.offset < offset:
            ahead = next(coming, None)
        if ahead is not None and ahead.offset == offset and ahead.raw == raw:
            return ahead
        return read_line(raw, number, offset)

    return read


class Journal(TrialLines):
    """Appends results and reads them back; *known* lines were read before, which saves a third of the time."""

    def __init__(self, path: Path, known: Iterable[Line] = ()) -> None:
        self._path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StoreError(f"{path} cannot be opened: {error.strerror}") from error
        super().__init__(file_hash(path.with_name(RUN_FILE)))
        # The hash of the whole file as we know it.
        self._content = hashlib.sha256()
        self._last = b""
        self._grown: int | None = None
        # The size of a line that a crash cut off, which was dropped.
        self.torn = 0
        self._chain = self._load(_knowing(known))
        self._seen = self._stamp()

    def _load(self, read: Reader[Line]) -> Chain:
        """Read and check what is there; drops a last line that a crash cut off."""
        run_file = self._path.with_name(RUN_FILE)
        reading = Reading(Chain(required=is_chained(run_file)))
        with open(self._file, "rb", closefd=False) as file:  # what was opened, whatever the path is now
            for line in reading.read(file, self._path, read):
                refuse_other_run(line, run_file)
                self._remember(line.raw)
                self.note(line.result, line.offset, line.raw, line.link, line.look)
        self.torn = reading.torn
        if self.torn:
            os.ftruncate(self._file, reading.chain.size)
        return reading.chain

    def append(self, result: TrialResult, files: Mapping[str, str] | None = None, look: Look | None = None) -> None:
        """Append one result and the hashes of its files, in a single write: the line is there whole or not at all.

        *look* is what is seen with this result, if it completes a round.
        """
        self.check()
        # The first line with a hash holds the hash of run.json.
        run = self.run_hash if self.last_link is None else None
        line = self._chain.forge(result, files or {}, run, self._grown, look)
        try:
            written = os.write(self._file, line)
        except OSError as error:
            raise RecordUnwritten(f"{self._path} cannot be written: {error.strerror}", hint=FREE_SPACE) from error
        if written != len(line):
            os.ftruncate(self._file, self._chain.size)
            raise RecordUnwritten(f"{self._path} cannot be written: the disk is full", hint=FREE_SPACE)
        offset = self._chain.size
        self._chain.accept(line)
        self._remember(line)
        self.note(result, offset, line, self._chain.link, look)
        self._seen = self._stamp()
        self._grown = None

    def grow(self, trials: int) -> None:
        """Let the next line say that the run was made longer by so many trials per case and arm."""
        self._grown = trials

    def check(self, *, whole: bool = False) -> None:
        """Check that the file is what we wrote, before a line is added and, with *whole*, before results are written.

        The last line is compared each time. The whole file is compared if its times say that something else wrote
        to it, and at the end, to notice a change that keeps size and times.
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
        """Check that the path still leads to the file that we opened; a link to it is not that file."""
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
            f"{self._path} {what} during the run{where}",
            hint=f"start a new run; whet verify {self._path.parent} lists all that does not fit",
        )

    def _where(self) -> str:
        """Return which line is the first that does not fit, if one can be found."""
        try:
            with open(self._file, "rb", closefd=False) as file:
                file.seek(0)
                for _ in Reading().lines(file, self._path):
                    pass
        except StoreError as error:
            return f": {error.message.removeprefix(f'{self._path}: ')}"
        return ""

    def _remember(self, line: bytes) -> None:
        self._content.update(line)
        self._last = line

    def read(self, entry: Entry) -> TrialResult:
        """Read the whole result; raises `RecordLost` if its line has changed."""
        try:
            line = os.pread(self._file, entry.size, entry.offset)
            if hashlib.sha256(line).digest() != entry.digest:
                raise self._changed()
            return read_result(line)
        except (OSError, wire.WireError) as error:
            raise RecordLost(f"{self._path}: the line at byte {entry.offset} cannot be read: {error}") from error

    def sync(self) -> None:
        """Flush the file to the disk."""
        os.fsync(self._file)

    def close(self) -> None:
        """Flush the file to the disk and close it."""
        self.sync()
        os.close(self._file)


class CutShort(Struct, frozen=True, kw_only=True):
    """An attempt that was interrupted, and its usage so far."""

    key: TrialKey
    usage: Usage


class Spent:
    """spent.jsonl: a line for each attempt that was interrupted; the file exists only if there is one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # The usage of all of them together.
        self.usage = Usage()
        for line in path.read_bytes().splitlines() if path.exists() else ():
            # Skip a line that a crash cut off.
            with suppress(wire.WireError):
                self.usage += wire.decode(line, CutShort).usage

    def add(self, key: TrialKey, usage: Usage) -> None:
        """Append the usage of an attempt, unless it is unknown."""
        if usage == Usage():
            return
        self.usage += usage
        line = wire.encode(CutShort(key=key, usage=usage)) + b"\n"
        # We are about to end: if it cannot be written, it is still in the results of this run.
        with suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, PRIVATE)
            os.write(file, line)
            os.close(file)
