"""The columns of a runner's table, the same on a terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from whet.model.grade import Rate
from whet.report.digest import Row, RunnerTable, Spread
from whet.report.text import count, duration, money, number, percent


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its heading, what stands in it, and on which side."""

    heading: str
    cell: Callable[[Row], str]
    numeric: bool = True


# From the widest to the narrowest: brief leaves intervals and deviations off, least the tokens too.
Detail = Literal["full", "brief", "least"]
DETAILS: tuple[Detail, ...] = ("full", "brief", "least")


def columns_of(table: RunnerTable, *, detail: Detail = "full") -> list[Column]:
    """The columns that have something to say about *table*."""
    brief = detail != "full"
    several = any(row.trials > 1 for row in table.rows)
    mean = "mean " if several else ""
    figures = table.figures
    columns = [Column("status", lambda row: row.status, numeric=False)]
    if several:
        # Beside a control, a rate says how many passed, in both: that a control failed is expected, and no success.
        counted = "passed" if any(row.control for row in table.rows) else "as expected"
        columns.append(Column(counted, lambda row: rate_text(row.rate, brief=brief), numeric=False))
        if _tried_again(table):
            columns.append(Column("first attempt", lambda row: first_text(row.rate), numeric=False))
    columns.append(Column(f"{mean}time", lambda row: spread_text(row.figures.seconds, brief=brief)))
    if detail != "least" and (figures.input_tokens.count or figures.output_tokens.count):
        columns.append(Column(f"{mean}tokens in / out", _tokens))
    if figures.cost_usd.count:
        columns.append(Column(f"{mean}cost", lambda row: _mean(row.figures.cost_usd, money)))
    return columns


def rate_text(rate: Rate | None, *, brief: bool = False) -> str:
    """Such as "2/3  67 % (21-94 %), 1 errored: 50-75 %"; nothing where nothing counts."""
    if rate is None:
        return "-"
    interval = "" if brief else f" ({rate.low * 100:.0f}-{percent(rate.high)})"
    errored = f", {errored_text(rate.errored, rate.passed, rate.total + rate.errored)}" if rate.errored else ""
    return f"{rate.passed}/{rate.total}  {percent(rate.value)}{interval}{errored}"


def errored_text(errored: int, passed: int, total: int) -> str:
    """Such as "1 errored: 50-75 %": the share had all that errored failed, and had all passed."""
    return f"{errored:,} errored: {passed / total * 100:.0f}-{percent((passed + errored) / total)}"


def first_text(rate: Rate | None) -> str:
    """Such as "1/3  33 %"."""
    if rate is None or not rate.first_total:
        return "-"
    return f"{rate.first_passed}/{rate.first_total}  {percent(rate.first_passed / rate.first_total)}"


def _tried_again(table: RunnerTable) -> bool:
    return table.figures.attempts > table.figures.seconds.count


def spread_text(spread: Spread, *, brief: bool = False) -> str:
    """A mean time, with its deviation where there is one."""
    if not spread.count:
        return "-"
    deviation = "" if brief or spread.deviation is None else f" ± {duration(spread.deviation)}"
    return duration(spread.mean) + deviation


def _tokens(row: Row) -> str:
    return f"{_mean(row.figures.input_tokens, number)} / {_mean(row.figures.output_tokens, number)}"


def _mean(spread: Spread, shown: Callable[[float], str]) -> str:
    return shown(spread.mean) if spread.count else "-"


def totals_of(table: RunnerTable) -> list[str]:
    """How a runner did in all, and what it took as far as anybody told."""
    figures = table.figures
    parts = [f"{table.as_expected:,} of {count(table.trials, 'trial')} as expected"]
    if table.errored:
        # Of all that were planned, as the figure before: so many as expected, or so many more.
        parts.append(errored_text(table.errored, table.as_expected, table.trials))
    if _tried_again(table):
        parts.append(f"{table.first:,} at the first attempt, {table.flaky:,} flaky")
        parts.append(count(figures.attempts, "attempt"))
    # The sum over trials, which is more than the run took where several ran at once.
    parts.append(f"trial time {duration(figures.seconds.sum)}")
    if figures.input_tokens.count:
        parts.append(f"{number(figures.input_tokens.sum)} tokens in")
    if figures.output_tokens.count:
        parts.append(f"{number(figures.output_tokens.sum)} tokens out")
    if figures.cost_usd.count:
        unknown = figures.seconds.count - figures.cost_usd.count
        beside = f" and {count(unknown, 'unknown cost')}" if unknown else ""
        parts.append(money(figures.cost_usd.sum) + beside)
    return parts
