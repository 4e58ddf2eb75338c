"""The journal of a run: one line for each trial that ended, written in one piece and read back from the disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct

from whet.errors import RecordLost, RecordUnwritten, StoreError
from whet.model import codec
from whet.model.comparison import RoundAnalysis
from whet.model.run import TrialKey, TrialResult
from whet.model.session import Usage
from whet.model.spending import Bill, Spending
from whet.reading.files import read_file
from whet.record.folder import PRIVATE
from whet.record.journal.chain import JournalLine, JournalReader, read_line
from whet.record.journal.index import JournalIndex

FREE_SPACE = "free some space"
_BROKEN = "look whether the disk works; the lines up to the last that can be read are kept"


class Journal(JournalIndex):
    """Appends results and reads them back; *lines* that are still the same are not read again."""

    def __init__(self, path: Path, lines: JournalIndex | None = None) -> None:
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE)
        except OSError as error:
            raise StoreError(f"{path} cannot be opened: {error.strerror}") from error
        super().__init__(path)
        if lines is not None and lines.run_hash == self.run_hash and lines.is_beginning_of(file):
            # The journal goes on where those lines end.
            vars(self).update(vars(lines))
        self._file = file
        self._grown: int | None = None
        for _ in self.load():
            pass
        if self.torn:
            os.ftruncate(self._file, self._chain.size)
        self._last_stamp = self._stamp()

    def append(
        self, result: TrialResult, files: Mapping[str, str] | None = None, look: RoundAnalysis | None = None
    ) -> None:
        """Append one result and the hashes of its files, in a single write: the line is there whole or not at all.

        *look* is what is seen with this result, if it completes a round.
        """
        self.check()
        # The first line with a hash holds the hash of run.json.
        run = self.run_hash if self.last_link is None else None
        line = self._chain.forge(result, files or {}, run, self._grown, look)
        try:
            size = os.write(self._file, line)
        except OSError as error:
            raise RecordUnwritten(f"{self._path} cannot be written: {error.strerror}", hint=FREE_SPACE) from error
        if size != len(line):
            os.ftruncate(self._file, self._chain.size)
            raise RecordUnwritten(f"{self._path} cannot be written: the disk is full", hint=FREE_SPACE)
        entry = JournalLine(
            number=self._chain.lines + 1,
            offset=self._chain.size,
            raw=line,
            result=result,
            link=self._chain.accept(line),
            grown=self._grown,
            look=look,
        )
        self._note(entry)
        self._last_stamp = self._stamp()
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
            raise self._change_error()
        if whole or stamp != self._last_stamp:
            if not self.is_beginning_of(self._file):
                raise self._change_error()
            self._last_stamp = stamp

    def _check_place(self) -> None:
        """Check that the path still leads to the file that we opened; a link to it is not that file."""
        try:
            status = os.lstat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            raise self._lost("is gone") from None
        except OSError as error:
            raise self._lost(f"cannot be reached ({error.strerror})") from error
        if not os.path.samestat(os.fstat(self._file), status):
            raise self._lost("was replaced by something else")

    def _stamp(self) -> tuple[int, int, int]:
        status = os.fstat(self._file)
        return status.st_size, status.st_mtime_ns, status.st_ctime_ns

    def _read_last(self) -> bytes:
        return os.pread(self._file, len(self._last), self._chain.size - len(self._last))

    def _change_error(self) -> RecordLost:
        return self._lost("was changed by something else", self._where())

    def _where(self) -> str:
        """Return which line is the first that does not fit, if one can be found."""
        try:
            with open(self._file, "rb", closefd=False) as file:
                file.seek(0)
                for _ in JournalReader().read(file, self._path, read_line):
                    pass
        except StoreError as error:
            return f": {error.message.removeprefix(f'{self._path}: ')}"
        return ""

    def sync(self) -> None:
        """Flush the file to the disk; raises `RecordUnwritten` if the disk does not take it."""
        try:
            os.fsync(self._file)
        except OSError as error:
            raise RecordUnwritten(f"{self._path} cannot be written: {error.strerror}", hint=_BROKEN) from error

    def close(self) -> None:
        """Flush the file to the disk and close it."""
        try:
            self.sync()
        finally:
            os.close(self._file)


class SpendingLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was paid for a trial and is not in its result.

    That is an attempt that was interrupted, a question afterwards, or what a judge took that compared its answer.
    """

    key: TrialKey
    usage: Usage
    who: Literal["interrupted", "explain", "judge"] = "interrupted"
    # Whether the cost is not known.
    unknown: bool = False


class SpendingFile:
    """spent.jsonl: a line for all that was paid for outside of the journal; the file exists only if there is one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # All of it together.
        self.spending = Spending()
        for line in read_file(path).splitlines() if path.exists() else ():
            # Skip a line that a crash cut off.
            with suppress(codec.WireError):
                self._count(codec.decode(line, SpendingLine))

    def _count(self, line: SpendingLine) -> None:
        bill = Bill(usage=line.usage, unknown=int(line.unknown))
        self.spending += Spending(**{line.who: bill})

    def add(self, key: TrialKey, usage: Usage) -> None:
        """Append the usage of an attempt that was interrupted, unless it is unknown."""
        if usage != Usage():
            self._append(SpendingLine(key=key, usage=usage))

    def explain(self, key: TrialKey, usage: Usage, *, unknown: bool) -> None:
        """Append the usage of a question that the agent of a trial was asked after the run."""
        if unknown or usage != Usage():
            self._append(SpendingLine(key=key, usage=usage, who="explain", unknown=unknown))

    def compare(self, key: TrialKey, usage: Usage, *, unknown: bool) -> None:
        """Append the usage of a judge that compared the answer of a trial with another one."""
        if unknown or usage != Usage():
            self._append(SpendingLine(key=key, usage=usage, who="judge", unknown=unknown))

    def _append(self, record: SpendingLine) -> None:
        self._count(record)
        line = codec.encode(record) + b"\n"
        # We are about to end: if it cannot be written, it is still in the results of this run.
        with suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, PRIVATE)
            os.write(file, line)
            os.close(file)
