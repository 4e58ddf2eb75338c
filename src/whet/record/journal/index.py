"""The lines of a journal as they were read or written: where each is, and the few values of it that are needed often.

No whole result is kept, so that a run may have any number of trials: who needs one reads its line again.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from whet.errors import RecordLost
from whet.model import codec
from whet.model.grade import STATUSES, QueryLoads, Status
from whet.model.run import ExecutionKey, TrialKey, TrialResult
from whet.model.session import Usage
from whet.model.skills import SkillLoads, loads_of
from whet.model.spending import Bill, Spender, Spending
from whet.record.folder import RUN_FILE, file_hash
from whet.record.journal.chain import Chain, JournalLine, JournalReader, RoundProgress, is_done, read_line, read_result

_PIECE = 1024 * 1024


class IndexEntry(Struct, frozen=True, kw_only=True):
    """Where the line of a trial is in the journal, and the few values of it that are needed often.

    `digest` is of the line as we wrote or read it: a line that is read later must be the same. `done` is false if a
    full disk stopped the trial.
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
    # Whether it failed by a mistake in a check.
    mistaken: bool


class _Entries:
    """The entries of all trials, packed: a run may have a hundred thousand, and an object takes eight times as much."""

    _FORM = struct.Struct("<QI16sBBdd")
    # The most trials that a case may have. A key of a foreign journal may have any number.
    _MOST = 1_000_000
    # Where the byte is that holds `done` and `status`, which are asked for most often.
    _ENDING, _DONE = 28, 0x80
    # In the byte that holds `first`.
    _MISTAKEN = 0x80

    def __init__(self) -> None:
        self._packed: dict[tuple[str, ...], bytearray] = {}
        self._others: dict[TrialKey, IndexEntry] = {}
        self._count = 0

    def get(self, key: TrialKey) -> IndexEntry | None:
        if not 0 < key.number <= self._MOST:
            return self._others.get(key)
        column = self._packed.get((key.case, key.runner, key.arm, key.suite), b"")
        at = (key.number - 1) * self._FORM.size
        return self._unpack(column, at) if at < len(column) else None

    def is_done(self, key: TrialKey) -> bool:
        if not 0 < key.number <= self._MOST:
            entry = self._others.get(key)
            return entry is not None and entry.done
        column = self._packed.get((key.case, key.runner, key.arm, key.suite), b"")
        at = (key.number - 1) * self._FORM.size + self._ENDING
        return at < len(column) and column[at] >= self._DONE

    def put(self, key: TrialKey, entry: IndexEntry, *, new: bool) -> None:
        self._count += new
        if not 0 < key.number <= self._MOST:
            self._others[key] = entry
            return
        column = self._packed.setdefault((key.case, key.runner, key.arm, key.suite), bytearray())
        at = (key.number - 1) * self._FORM.size
        if len(column) < at + self._FORM.size:
            column.extend(bytes(at + self._FORM.size - len(column)))
        score = math.nan if entry.score is None else entry.score
        ending = STATUSES.index(entry.status) | (self._DONE if entry.done else 0)
        first = STATUSES.index(entry.first) | (self._MISTAKEN if entry.mistaken else 0)
        values = (entry.offset, entry.size, entry.digest, ending, first, score, entry.duration_s)
        self._FORM.pack_into(column, at, *values)

    def _unpack(self, column: bytes | bytearray, at: int) -> IndexEntry | None:
        offset, size, digest, ending, first, score, duration_s = self._FORM.unpack_from(column, at)
        if not size:
            return None
        return IndexEntry(
            offset=offset,
            size=size,
            digest=digest,
            status=STATUSES[ending & ~self._DONE],
            score=None if math.isnan(score) else score,
            duration_s=duration_s,
            done=ending >= self._DONE,
            first=STATUSES[first & ~self._MISTAKEN],
            mistaken=first >= self._MISTAKEN,
        )

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[TrialKey]:
        for (case, runner, arm, suite), column in self._packed.items():
            for number in range(1, len(column) // self._FORM.size + 1):
                key = TrialKey(suite=suite, case=case, runner=runner, arm=arm, number=number)
                if self.get(key) is not None:
                    yield key
        yield from self._others


class JournalIndex:
    """The valid lines of a journal: which trials have ended, and where their results are."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self.run_hash = file_hash(path.with_name(RUN_FILE))
        self._reading = JournalReader()
        # The hash of all these lines, and the last one.
        self._content = hashlib.sha256()
        self._last = b""
        # The usage of all attempts at all trials together, and what of that was paid for.
        self.usage = self.paid_usage = Usage()
        # And that of the models that played users, and of the judge.
        self.user_usage = self.judge_usage = Usage()
        # How many attempts have an unknown cost, by spender.
        self._unknown: Counter[Spender] = Counter()
        # How often skills were loaded, by arm and runner.
        self.loads: dict[tuple[str, str], SkillLoads] = {}
        # The same by case, for those that say whether it should be loaded.
        self.queries: dict[ExecutionKey, QueryLoads] = {}
        self.rounds = RoundProgress()
        # How many trials have ended and are not tried again.
        self.done = 0
        self._entries = _Entries()

    @property
    def spending(self) -> Spending:
        """What was paid for all trials, by who asked for it."""
        return Spending(
            agents=Bill(usage=self.paid_usage, unknown=self._unknown["agents"]),
            judge=Bill(usage=self.judge_usage, unknown=self._unknown["judge"]),
            users=Bill(usage=self.user_usage, unknown=self._unknown["users"]),
        )

    @property
    def lines(self) -> int:
        """How many lines there are."""
        return self._chain.lines

    @property
    def last_link(self) -> str | None:
        """The hash that the last line ends in."""
        return self._chain.link

    @property
    def torn(self) -> int:
        """The size of a last line that a crash cut off."""
        return self._reading.torn

    @property
    def _chain(self) -> Chain:
        return self._reading.chain

    @contextmanager
    def keep_open(self) -> Iterator[None]:
        """Keep the file open for reading, if there is one."""
        try:
            self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            yield
            return
        try:
            yield
        finally:
            os.close(self._file)
            self._file = -1

    def load(self) -> Iterator[JournalLine]:
        """Read, check, note and yield the lines of the open file after those that are known; raises `RecordChanged`."""
        if self._file == -1:
            return
        with open(self._file, "rb", closefd=False) as file:  # what was opened, whatever the path is now
            file.seek(self._chain.size)
            for line in self._reading.read(file, self._path, read_line):
                self._note(line)
                yield line

    def _note(self, line: JournalLine) -> None:
        """Note what the next line says."""
        self._content.update(line.raw)
        self._last = line.raw
        self.rounds.note(line)
        result = line.result
        before = self._entries.get(result.key)
        # The first line of a trial counts, unless a full disk stopped the trial; that one was still paid for.
        if before is not None and before.done:
            return
        total, paid_usage, is_all_paid = result.total_usage, result.paid_usage, self.paid_usage is self.usage
        self.usage += total
        # Most often all of it was paid for, and adding takes longer than all else here.
        self.paid_usage = self.usage if is_all_paid and paid_usage is total else self.paid_usage + paid_usage
        for attempt in result.attempts:
            self.user_usage += attempt.user_usage
            self.judge_usage += attempt.judge_usage
            self._unknown.update(attempt.unpriced)
        self._note_loads(result)
        entry = IndexEntry(
            offset=line.offset,
            size=len(line.raw),
            digest=_digest(line.raw),
            status=result.status,
            score=result.score,
            duration_s=result.duration_s,
            done=is_done(result),
            first=result.first_status,
            mistaken=result.mistaken,
        )
        self.done += entry.done
        self._entries.put(result.key, entry, new=before is None)

    def _note_loads(self, result: TrialResult) -> None:
        key = result.key
        if (loads := loads_of(key.arm, key.runner, result)) is not None:
            before = self.loads.get((key.arm, key.runner))
            self.loads[key.arm, key.runner] = loads if before is None else before + loads
            if result.skill_wanted or result.skill_unwanted:
                self._note_query(result, loads)

    def _note_query(self, result: TrialResult, loads: SkillLoads) -> None:
        key = result.key
        query = QueryLoads(
            case=key.case,
            wanted=result.skill_wanted,
            loaded=loads.loaded,
            told=loads.told,
            sessions=loads.sessions,
            others=dict.fromkeys(result.other_skills, 1),
        )
        before = self.queries.get((key.case, key.runner, key.arm))
        self.queries[key.case, key.runner, key.arm] = query if before is None else before + query

    def is_beginning_of(self, file: int) -> bool:
        """Return whether the open *file* begins with exactly these lines."""
        digest, at = hashlib.sha256(), 0
        while piece := os.pread(file, min(_PIECE, self._chain.size - at), at):
            digest.update(piece)
            at += len(piece)
        return digest.digest() == self._content.digest()

    def entry(self, key: TrialKey) -> IndexEntry | None:
        """Return the entry of a trial, if it has ended."""
        return self._entries.get(key)

    def is_done(self, key: TrialKey) -> bool:
        """Return whether a trial has ended and is not tried again."""
        return self._entries.is_done(key)

    def read(self, entry: IndexEntry) -> TrialResult:
        """Read the whole result from the open file; raises `RecordLost` if its line has changed."""
        try:
            line = os.pread(self._file, entry.size, entry.offset)
            if _digest(line) != entry.digest:
                raise self._change_error()
            return read_result(line)
        except (OSError, codec.WireError) as error:
            raise RecordLost(f"{self._path}: the line at byte {entry.offset} cannot be read: {error}") from error

    def _change_error(self) -> RecordLost:
        return self._lost("was changed by something else")

    def _lost(self, what: str, where: str = "") -> RecordLost:
        return RecordLost(
            f"{self._path} {what} during the run{where}",
            hint=f"start a new run; whet verify {self._path.parent} lists all that does not fit",
        )

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[TrialKey]:
        """Yield the keys of the trials that have ended, those of an execution together."""
        return iter(self._entries)


def _digest(line: bytes) -> bytes:
    """Return half of a hash; that is enough, because an attacker chooses at most one of two lines."""
    return hashlib.sha256(line).digest()[:16]
