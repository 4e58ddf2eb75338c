"""Read only what a table shows of each trial of a run, with the place of its line, also of a changed record."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from whet.errors import StoreError
from whet.model import wire
from whet.model.comparison import Look
from whet.model.grade import Status
from whet.model.seen import Amount, Whole
from whet.model.session import Usage
from whet.model.spending import Bill, Spending
from whet.record.chain import is_tried_again, link_of, read_as
from whet.record.folder import JOURNAL_FILE
from whet.record.recorded_run import journal_lines
from whet.record.verifying import check_each

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
        both = self.input_tokens is not None and self.output_tokens is not None and "chars" not in self.sources.values()
        return (self.input_tokens or 0) + (self.output_tokens or 0) if both else None


class RowFailure(Struct):
    """Why a trial did not go as its checks ask."""

    code: str
    cause: str
    message: str


class _Class(Struct):
    id: str


class RowGrade(Struct):
    """A check, and whether it held."""

    check: str
    passed: bool
    reason: str = ""


class _Attempt(Struct):
    status: Status
    usage: RowUsage = RowUsage()
    unpaid_usage: RowUsage = RowUsage()
    judge_usage: RowUsage = RowUsage()
    user_usage: RowUsage = RowUsage()
    unpriced: tuple[str, ...] | None = None

    @property
    def spending(self) -> Spending:
        """What was paid for it, by who asked for it."""
        paid = {"agents": self.usage.cost_usd, "judge": self.judge_usage.cost_usd, "users": self.user_usage.cost_usd}
        if paid["agents"] is not None:
            paid["agents"] -= self.unpaid_usage.cost_usd or 0.0
        unpriced = (() if paid["agents"] is not None else ("agents",)) if self.unpriced is None else self.unpriced
        return Spending(
            **{who: Bill(usage=Usage(cost_usd=cost), unknown=unpriced.count(who)) for who, cost in paid.items()}
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
    attempts: tuple[_Attempt, ...] = ()
    look: Look | None = None
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
    def counted(self) -> Status:
        """How its first attempt ended that did not error, by which it counts in rates that are compared."""
        return next((each.status for each in self.attempts if each.status != "errored"), self.status)

    @property
    def spending(self) -> Spending:
        """What was paid for all attempts, by who asked for it."""
        return sum((each.spending for each in self.attempts), Spending())


class Rows(Struct):
    """The trials of a journal up to `offset`, each once, in the order in which they ended; `problem` is a sentence."""

    rows: dict[RowKey, TrialRow]
    looks: tuple[Look, ...]
    grown: int
    lines: int
    offset: int
    problem: str | None = None


def read_rows(run_dir: Path) -> Rows:
    """Read the trials of a run; of a record that was changed, all that can be read, with what is wrong."""
    found = Rows({}, (), 0, 0, 0)
    path = run_dir / JOURNAL_FILE
    problem = file_problem(path)
    if problem or not path.exists():
        found.problem = problem
        return found
    try:
        for row in check_each(run_dir, _read):
            if not _take(found, row):
                return found
    except (StoreError, OSError) as error:
        found = Rows({}, (), 0, 0, 0)
        for row in _readable(path):
            if not _take(found, row):
                break
        problem = error.message if isinstance(error, StoreError) else f"{path} cannot be read: {error.strerror}"
        found.problem = "; ".join(filter(None, (problem, found.problem)))
    return found


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
        except wire.WireError:
            # It is shown as a problem once the run is read as a whole.
            continue
    return rows, end


def file_problem(path: Path, most_bytes: int | None = None) -> str | None:
    """Return why a file of a record is not read: only a regular one is, with so many bytes; None if it is missing."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    if not stat.S_ISREG(found.st_mode):
        return f"{path} is not a file, so it is not read"
    return f"{path} is too large to be read" if most_bytes is not None and found.st_size > most_bytes else None


def _take(found: Rows, row: TrialRow) -> bool:
    before = found.rows.get(row.key)
    found.lines += 1
    found.offset = row.offset + row.size
    found.grown += row.grown or 0
    found.looks += () if row.look is None else (row.look,)
    if before is None or not before.done:
        if before is None and len(found.rows) == MOST_ROWS:
            found.problem = f"it has more than {MOST_ROWS:,} trials, and only the first are shown"
            return False
        found.rows[row.key] = row
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
                with suppress(wire.WireError):
                    yield _read(line, number, offset)
                offset += len(line)
            offset = end
    except OSError:
        return


def _read(raw: bytes, number: int, offset: int) -> TrialRow:
    row = read_as(raw, TrialRow)
    row.number, row.offset, row.size, row.link = number, offset, len(raw), link_of(raw)
    return row
