"""The end of a run on a terminal: tables, failures by class, and a sentence that says what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from whet.dataclass import dataclass
from whet.grade.statistics import told_lift
from whet.model.benchmark import Evaluated
from whet.model.grade import Rate
from whet.model.run import RunInfo
from whet.reading.text import (
    count,
    duration,
    left,
    middle,
    money,
    number,
    one_line,
    path_for_people,
    percent,
    right,
    width,
)
from whet.report.digest import Digest, Group, Row, RunnerTable, Spread, outcome
from whet.report.evaluation import evaluation_lines, resume_command, words_of
from whet.report.finding import Finding
from whet.report.plain import STATUS_STYLES, symbol
from whet.report.screen import Screen, Style


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


_WIDEST_CASE = 48
_NARROWEST_CASE = 16
_FLAKY = "Flaky: went as expected only on a later attempt"
_VACUOUS = "Vacuous: everything that is expected held before the agent began"


def ending_lines(
    digest: Digest, info: RunInfo, screen: Screen, cwd: Path, evaluated: Evaluated | None = None
) -> Iterator[str]:
    """All that is said when nothing is running any more."""
    if evaluated is not None:
        yield from evaluation_lines(evaluated, screen, cwd)
        yield from _closing(digest, info, screen, cwd)
        return
    for table in digest.tables:
        yield ""
        yield from _table(table, screen)
    yield from _groups("Failures", "bad", digest.failed, screen)
    yield from _groups("Errored, and not counted as failed", "warn", digest.errored, screen)
    yield from _lifts(digest, screen)
    yield from _names(_FLAKY, digest.flaky, digest.flaky_count, screen)
    yield from _names(_VACUOUS, digest.vacuous, digest.vacuous_count, screen)
    yield ""
    yield from _closing(digest, info, screen, cwd)


def _table(table: RunnerTable, screen: Screen) -> Iterator[str]:
    yield screen.paint(table.title, "bold")
    for line in _joined(totals_of(table), screen.columns):
        yield f"  {screen.paint(screen.fit(line), 'dim')}"
    names = [screen.fit(middle(row.case, _WIDEST_CASE)) for row in table.rows]
    grid = _widest_grid(table, screen)
    first = max(width(name) for name in ("case", *names))
    if screen.columns is not None:
        first = min(first, max(_NARROWEST_CASE, screen.columns - grid.width))
    heading, *lines = grid.lines
    yield screen.paint(f"    {left('case', first)}  {'  '.join(heading)}", "dim")
    for row, name, (status, *rest) in zip(table.rows, names, lines, strict=True):
        style = STATUS_STYLES[row.status]
        mark = screen.paint(screen.fit(symbol(row.status)), style)
        yield f"  {mark} {left(middle(name, first), first)}  {screen.paint(status, style)}  {'  '.join(rest)}"
    if table.left_off:
        yield screen.paint(f"    and {count(table.left_off, 'more row')} in the record", "dim")


def _joined(parts: Sequence[str], columns: int | None) -> Iterator[str]:
    """*parts* on one line, or on several where they would be broken anywhere else."""
    line = parts[0]
    for part in parts[1:]:
        if columns is not None and width(f"  {line} · {part}") > columns:
            yield line
            line = part
        else:
            line += f" · {part}"
    yield line


@dataclass(frozen=True, slots=True)
class _Grid:
    """Padded cells, line by line with the heading first, and the room they take beside the names."""

    lines: list[list[str]]
    width: int


def _widest_grid(table: RunnerTable, screen: Screen) -> _Grid:
    """As much as there is room for."""
    for detail in DETAILS:
        grid = _grid(table, screen, detail)
        if screen.columns is None or _NARROWEST_CASE + grid.width <= screen.columns:
            break
    return grid


def _grid(table: RunnerTable, screen: Screen, detail: Detail) -> _Grid:
    columns = columns_of(table, detail=detail)
    lines = [[column.heading for column in columns]]
    lines += [[screen.fit(column.cell(row)) for column in columns] for row in table.rows]
    widths = [max(width(text) for text in texts) for texts in zip(*lines, strict=True)]
    pads = [right if column.numeric else left for column in columns]
    padded = [[pad(text, size) for pad, text, size in zip(pads, line, widths, strict=True)] for line in lines]
    return _Grid(padded, sum(widths) + 2 * len(widths) + 4)


def _groups(title: str, style: Style, groups: Sequence[Group], screen: Screen) -> Iterator[str]:
    if not groups:
        return
    yield ""
    yield screen.paint(title, "bold")
    for group in groups:
        yield f"  {screen.paint(group.title, style)} · {count(group.count, 'trial')}"
        for block in group.blocks:
            yield from _finding(block.first, style, screen)
            for finding in block.again:
                yield f"{_opening(finding, style, screen)} {screen.paint('(as above)', 'dim')}"
                for label, fact in block.own_facts(finding).items():
                    yield _fact(label, fact, screen)
        if group.hidden:
            yield screen.paint(f"    and {group.hidden:,} more", "dim")


def _opening(finding: Finding, style: Style, screen: Screen) -> str:
    return f"    {screen.paint(screen.fit(symbol(finding.status)), style)} {finding.key}"


def _fact(label: str, fact: str, screen: Screen) -> str:
    return f"      {screen.paint(left(label, 9), 'dim')} {fact}"


def _finding(finding: Finding, style: Style, screen: Screen) -> Iterator[str]:
    yield _opening(finding, style, screen)
    for line in finding.message:
        # The bar tells whose words these are, and keeps a line of theirs from being taken for a command by a CI system.
        yield f"      {screen.paint(screen.fit('│'), 'dim')} {line}"
    for index, line in enumerate(finding.printed):
        yield _fact("" if index else "printed", f"{screen.fit('│')} {line}", screen)
    facts = (
        ("at", finding.where),
        ("last seen", finding.seen),
        ("cause", finding.cause if finding.status == "errored" else None),
        *(("note", note) for note in finding.notes),
        ("attempts", str(finding.attempts) if finding.attempts > 1 else None),
        ("artifacts", finding.artifacts),
        ("workspace", finding.workspace),
        ("to ask", finding.ask),
    )
    for label, fact in facts:
        if fact is not None:
            yield _fact(label, fact, screen)


def _names(title: str, names: Sequence[str], amount: int, screen: Screen) -> Iterator[str]:
    """What is to be told of trials that need no more than their names."""
    if not amount:
        return
    yield ""
    yield screen.paint(title, "bold")
    for name in names:
        yield f"  {screen.paint('~', 'warn')} {screen.fit(name)}"
    if amount > len(names):
        yield screen.paint(f"    and {amount - len(names):,} more", "dim")


def _lifts(digest: Digest, screen: Screen) -> Iterator[str]:
    if digest.lifts:
        yield ""
        yield screen.paint("Lift: what the skill adds to the score", "bold")
    for lift in digest.lifts:
        style: Style = "good" if lift.value > 0 else "bad" if lift.value < 0 else "dim"
        yield f"  {screen.fit(one_line(lift.runner, 80))}  {screen.paint(screen.fit(told_lift(lift)), style)}"


def _closing(digest: Digest, info: RunInfo, screen: Screen, cwd: Path) -> Iterator[str]:
    clean_run = digest.as_expected == digest.total and not digest.snapshots
    only_errored = not digest.failed
    style: Style = "good" if clean_run else "warn" if only_errored else "bad"
    place = path_for_people(info.run_dir, cwd)
    words = words_of(info.command)
    yield f"{screen.paint(outcome(digest, words), style)}, in {duration(digest.duration_s)}. Results in {place}"
    if digest.missing:
        missing = f"{count(digest.missing, words.trial)} {'is' if digest.missing == 1 else 'are'} missing"
        yield f"  {missing}. To go on: {resume_command(info, place)}"
    elif not clean_run and info.command == "eval":
        yield f"  To call only what did not pass: {_last_failed_command(info, cwd)}"
    elif not clean_run:
        yield f"  To run only what did not go as expected: {_last_failed_command(info, cwd)}"


def _last_failed_command(info: RunInfo, cwd: Path) -> str:
    """The command as it was typed, with another choice; a run that nobody typed is told by its suite and its place."""
    words = list(info.again)
    if not words:
        words = [path_for_people(info.suite_path, cwd)]
        # Elsewhere than where it is looked for, it must be named.
        if info.run_dir.parent.parts[-2:] != (".whet", "runs"):
            words += ["--output-dir", path_for_people(info.run_dir.parent, cwd)]
    # What follows "--" is no option.
    words.insert(words.index("--") if "--" in words else len(words), "--last-failed")
    return shlex.join(("whet", info.command, *words))
