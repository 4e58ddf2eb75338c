"""The table of one runner: a row for each execution, the columns that it needs, and totals."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Literal

from msgspec import Struct, field

from whet.model.grade import AS_EXPECTED, Rate
from whet.model.run import Runner, TrialResult
from whet.model.spending import Spending
from whet.reading.text import count, duration, money, number, one_line, percent
from whet.report.finding import ShownStatus
from whet.report.spent import spending_text

# From the widest to the narrowest: "brief" has no intervals and deviations, "least" no tokens either.
Detail = Literal["full", "brief", "least"]
DETAILS: tuple[Detail, ...] = ("full", "brief", "least")


class Spread(Struct):
    """A mean and standard deviation, kept without keeping the values (Welford)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, value: float | None) -> None:
        """Add *value*; an unknown one does not count."""
        if value is None:
            return
        self.count += 1
        delta = value - self.mean
        self.mean += delta / self.count
        self.squares += delta * (value - self.mean)

    @property
    def deviation(self) -> float | None:
        """The standard deviation of the sample; None for fewer than two values."""
        return sqrt(self.squares / (self.count - 1)) if self.count > 1 else None

    @property
    def sum(self) -> float:
        """The sum of all values."""
        return self.mean * self.count


class Figures(Struct):
    """The time, tokens and cost of trials, with all of their attempts."""

    attempts: int = 0
    seconds: Spread = field(default_factory=Spread)
    input_tokens: Spread = field(default_factory=Spread)
    output_tokens: Spread = field(default_factory=Spread)
    cost_usd: Spread = field(default_factory=Spread)
    # What was paid for, also for the judge and for users.
    spending: Spending = field(default_factory=Spending)

    def add(self, result: TrialResult) -> None:
        """Add one trial."""
        usage = result.total_usage
        self.attempts += max(1, len(result.attempts))
        self.seconds.add(result.duration_s)
        self.input_tokens.add(usage.reported("input_tokens"))
        self.output_tokens.add(usage.reported("output_tokens"))
        self.cost_usd.add(usage.cost_usd)
        self.spending += result.spending


class TableRow(Struct, frozen=True, kw_only=True):
    """One execution, as a line of a table."""

    # With its arm.
    case: str
    status: ShownStatus
    trials: int
    rate: Rate | None
    figures: Figures
    # One of the baseline may fail: its rate counts what passed, not what went as expected.
    baseline: bool = False
    case_id: str = ""


class RunnerTable(Struct):
    """The executions of one runner. If there are too many, those that went as expected are left off first."""

    runner: Runner
    rows: list[TableRow] = field(default_factory=list)
    left_off: int = 0
    trials: int = 0
    as_expected: int = 0
    # With a baseline, which may fail, what passed is told instead.
    passed: int = 0
    compares: bool = False
    errored: int = 0
    # How many went as expected at the first attempt, and how many only at a later one.
    first: int = 0
    flaky: int = 0
    figures: Figures = field(default_factory=Figures)
    # Several, if cases name their own.
    models: dict[str, None] = field(default_factory=dict)

    def take(self, result: TrialResult) -> None:
        """Count one trial."""
        self.figures.add(result)
        self.as_expected += result.passed
        self.passed += result.status in ("passed", "unexpected-passed")
        self.errored += result.status == "errored"
        self.first += result.first_status in AS_EXPECTED
        self.flaky += result.flaky

    def add(self, row: TableRow, limit: int) -> None:
        """Add *row*; beyond *limit*, drop one that went as expected, or else the last."""
        self.rows.append(row)
        self.compares = self.compares or row.baseline
        if len(self.rows) > limit:
            self.left_off += 1
            places = (place for place in range(limit, -1, -1) if self.rows[place].status in AS_EXPECTED)
            self.rows.pop(next(places, limit))

    @property
    def title(self) -> str:
        """The runner, with its agent and models if their names differ."""
        first, *more_models = self.models or [None]
        model = f"{first} and {count(len(more_models), 'other model')}" if more_models else first
        parts = [part for part in (self.runner.agent, model) if part and part != self.runner.id]
        return one_line(self.runner.id + (f" ({', '.join(parts)})" if parts else ""), 80)


class Column(Struct, frozen=True):
    """A column of a table: its heading, the text of its cells, and whether they are numbers."""

    heading: str
    cell: Callable[[TableRow], str]
    numeric: bool = True


def columns_of(table: RunnerTable, *, detail: Detail = "full") -> list[Column]:
    """Return the columns that *table* needs."""
    brief = detail != "full"
    several = any(row.trials > 1 for row in table.rows)
    mean = "mean " if several else ""
    figures = table.figures
    columns = [Column("status", lambda row: row.status, numeric=False)]
    if several:
        # With a baseline, rates count what passed: a baseline that fails went as expected, but is not a success.
        heading = "passed" if any(row.baseline for row in table.rows) else "as expected"
        columns.append(Column(heading, lambda row: rate_text(row.rate, brief=brief), numeric=False))
        if _tried_again(table):
            columns.append(Column("first attempt", lambda row: first_text(row.rate), numeric=False))
    columns.append(Column(f"{mean}time", lambda row: spread_text(row.figures.seconds, brief=brief)))
    if detail != "least" and (figures.input_tokens.count or figures.output_tokens.count):
        columns.append(Column(f"{mean}tokens in / out", _tokens))
    if figures.cost_usd.count:
        columns.append(Column(f"{mean}cost", lambda row: _mean(row.figures.cost_usd, money)))
    return columns


def rate_text(rate: Rate | None, *, brief: bool = False) -> str:
    """Return a rate, such as "2/3  67 % (21-94 %), 1 errored: 50-75 %"; "-" if there is none."""
    if rate is None:
        return "-"
    interval = "" if brief else f" ({rate.low * 100:.0f}-{percent(rate.high)})"
    errors = f", {errored_text(rate.errored, rate.passed, rate.total + rate.errored)}" if rate.errored else ""
    return f"{rate.passed}/{rate.total}  {percent(rate.value)}{interval}{errors}"


def errored_text(errors: int, passes: int, total: int) -> str:
    """Return such as "1 errored: 50-75 %": the pass rate if all that errored had failed, and if all had passed."""
    return f"{errors:,} errored: {passes / total * 100:.0f}-{percent((passes + errors) / total)}"


def first_text(rate: Rate | None) -> str:
    """Return the rate of first attempts, such as "1/3  33 %"."""
    if rate is None or not rate.first_total:
        return "-"
    return f"{rate.first_passed}/{rate.first_total}  {percent(rate.first_passed / rate.first_total)}"


def _tried_again(table: RunnerTable) -> bool:
    return table.figures.attempts > table.figures.seconds.count


def spread_text(spread: Spread, *, brief: bool = False) -> str:
    """Return a mean time, with its deviation if there is one."""
    if not spread.count:
        return "-"
    deviation = "" if brief or spread.deviation is None else f" ± {duration(spread.deviation)}"
    return duration(spread.mean) + deviation


def _tokens(row: TableRow) -> str:
    return f"{_mean(row.figures.input_tokens, number)} / {_mean(row.figures.output_tokens, number)}"


def _mean(spread: Spread, format_value: Callable[[float], str]) -> str:
    return format_value(spread.mean) if spread.count else "-"


def totals_of(table: RunnerTable) -> list[str]:
    """Return the totals of a runner: results, time, tokens and cost, as far as they are known."""
    figures = table.figures
    successes, word = (table.passed, "passed") if table.compares else (table.as_expected, "as expected")
    parts = [f"{successes:,} of {count(table.trials, 'trial')} {word}"]
    if table.errored:
        # A share of all planned trials, like the figure before.
        parts.append(errored_text(table.errored, successes, table.trials))
    if _tried_again(table):
        parts.append(f"{table.first:,} at the first attempt, {table.flaky:,} flaky")
        parts.append(count(figures.attempts, "attempt"))
    # The sum over trials, with what grades them: more than the run took if several ran at the same time.
    parts.append(f"time with checks {duration(figures.seconds.sum)}")
    if figures.input_tokens.count:
        parts.append(f"{number(figures.input_tokens.sum)} tokens in")
    if figures.output_tokens.count:
        parts.append(f"{number(figures.output_tokens.sum)} tokens out")
    if spending := spending_text(figures.spending):
        parts.append(spending)
    return parts
