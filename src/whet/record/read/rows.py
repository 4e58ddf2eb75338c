"""Read only what a table shows of each trial of a run, with the place of its line, also of a changed record."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from whet.errors import StoreError
from whet.model import codec
from whet.model.comparison import RoundAnalysis
from whet.model.events import Amount, Whole
from whet.model.grade import Status
from whet.model.session import Usage
from whet.model.spending import Bill, Spending
from whet.record.folder import JOURNAL_FILE
from whet.record.journal.chain import is_tried_again, link_of
from whet.record.read.run import journal_lines
from whet.record.verify.verify import check_each

# More than anybody looks at; a record of more shows its first ones, and says so.
MOST_ROWS = 200_000
_LINES_AT_ONCE = 1000


class RowKey(Struct, frozen=True):
    """The name of a trial in its run."""

    case: str
    runner: str
    arm: str
    number: int


class RowUsage(Struct, frozen=True):
    """Tokens and money, as far as they are known."""

    input_tokens: Whole | None = None
    output_tokens: Whole | None = None
    cost_usd: Amount | None = None
    sources: dict[str, str] = {}

    @property
    def total_tokens(self) -> int | None:
        """Input and output together, if both are known; what was guessed from a number of characters is not."""
        is_known = (
            self.input_tokens is not None and self.output_tokens is not None and "chars" not in self.sources.values()
        )
        return (self.input_tokens or 0) + (self.output_tokens or 0) if is_known else None


class RowFailure(Struct):
    """Why a trial did not go as its checks ask."""

    code: str
    cause: str
    message: str


class _Class(Struct):
    id: str
    label: str | None = None


class RowGrade(Struct):
    """A check, and whether it held."""

    check: str
    passed: bool
    reason: str = ""


class _AttemptRow(Struct):
    status: Status
    usage: RowUsage = RowUsage()
    unpaid_usage: RowUsage = RowUsage()
    judge_usage: RowUsage = RowUsage()
    user_usage: RowUsage = RowUsage()
    unpriced: tuple[str, ...] = ()

    @property
    def spending(self) -> Spending:
        """What was paid for it, by who asked for it."""
        costs = {"agents": self.usage.cost_usd, "judge": self.judge_usage.cost_usd, "users": self.user_usage.cost_usd}
        if costs["agents"] is not None:
            costs["agents"] -= self.unpaid_usage.cost_usd or 0.0
        return Spending(
            **{who: Bill(usage=Usage(cost_usd=cost), unknown=self.unpriced.count(who)) for who, cost in costs.items()}
        )


class TrialRow(Struct, kw_only=True):
    """A trial that has ended, and where its line is."""

    key: RowKey
    status: Status
    score: Amount | None = None
    duration_s: Amount | None = None
    started_at: str | None = None
    artifact_dir: str | None = None
    steps: Whole | None = None
    usage: RowUsage = RowUsage()
    failure: RowFailure | None = None
    failure_class: _Class | None = None
    grades: tuple[RowGrade, ...] = ()
    attempts: tuple[_AttemptRow, ...] = ()
    look: RoundAnalysis | None = None
    grown: int | None = None
    run: str | None = None
    # Where the line is, and the hash that it ends in.
    number: int = 0
    offset: int = 0
    size: int = 0
    link: str | None = None

    @property
    def done(self) -> bool:
        """Whether it is not tried again."""
        return self.failure is None or not is_tried_again(self.failure.code)

    @property
    def first(self) -> Status:
        """How its first attempt ended."""
        return self.attempts[0].status if len(self.attempts) > 1 else self.status

    @property
    def counting_status(self) -> Status:
        """How its first attempt ended that did not error, by which it counts in rates that are compared."""
        return next((attempt.status for attempt in self.attempts if attempt.status != "errored"), self.status)

    @property
    def spending(self) -> Spending:
        """What was paid for all attempts, by who asked for it."""
        return sum((attempt.spending for attempt in self.attempts), Spending())


class JournalRows(Struct):
    """The trials of a journal up to `offset`, each once, in the order in which they ended; `problem` is a sentence."""

    rows: dict[RowKey, TrialRow]
    looks: tuple[RoundAnalysis, ...]
    grown: int
    lines: int
    offset: int
    problem: str | None = None


def read_rows(run_dir: Path) -> JournalRows:
    """Read the trials of a run; of a record that was changed, all that can be read, with what is wrong."""
    rows = JournalRows({}, (), 0, 0, 0)
    path = run_dir / JOURNAL_FILE
    problem = file_problem(path)
    if problem or not path.exists():
        rows.problem = problem
        return rows
    try:
        for row in check_each(run_dir, _read):
            if not _take(rows, row):
                return rows
    except (StoreError, OSError) as error:
        rows = JournalRows({}, (), 0, 0, 0)
        for row in _readable(path):
            if not _take(rows, row):
                break
        problem = error.message if isinstance(error, StoreError) else f"{path} cannot be read: {error.strerror}"
        rows.problem = "; ".join(filter(None, (problem, rows.problem)))
    return rows


def more_rows(run_dir: Path, offset: int, most: int) -> tuple[list[TrialRow], int]:
    """Return the trials that ended since the journal was *offset* bytes long, and how long it is now."""
    path = run_dir / JOURNAL_FILE
    if file_problem(path) or not path.exists() or path.stat().st_size < offset:
        return [], offset
    lines, end = journal_lines(path, offset, most)
    rows = []
    for line in lines:
        try:
            rows.append(_read(line, 0, offset))
        except codec.WireError:
            # Such a line is shown as a problem once the run is read as a whole.
            continue
    return rows, end


def file_problem(path: Path, most_bytes: int | None = None) -> str | None:
    """Return why a file of a record is not read: only a regular one is, with so many bytes; None if it is missing."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    if not stat.S_ISREG(status.st_mode):
        return f"{path} is not a file, so it is not read"
    return f"{path} is too large to be read" if most_bytes is not None and status.st_size > most_bytes else None


def _take(rows: JournalRows, row: TrialRow) -> bool:
    before = rows.rows.get(row.key)
    rows.lines += 1
    rows.offset = row.offset + row.size
    rows.grown += row.grown or 0
    rows.looks += () if row.look is None else (row.look,)
    if before is None or not before.done:
        if before is None and len(rows.rows) == MOST_ROWS:
            rows.problem = f"it has more than {MOST_ROWS:,} trials, and only the first are shown"
            return False
        rows.rows[row.key] = row
    return True


def _readable(path: Path) -> Iterator[TrialRow]:
    """Yield what can be read, whether it fits or not."""
    offset = number = 0
    try:
        while True:
            lines, end = journal_lines(path, offset, _LINES_AT_ONCE)
            if not lines:
                return
            for line in lines:
                number += 1
                with suppress(codec.WireError):
                    yield _read(line, number, offset)
                offset += len(line)
            offset = end
    except OSError:
        return


def _read(raw: bytes, number: int, offset: int) -> TrialRow:
    row = codec.decode(raw, TrialRow)
    row.number, row.offset, row.size, row.link = number, offset, len(raw), link_of(raw)
    return row
