"""Lay out the cases of comparisons as a table: a row for each case, a column for each arm, the worst first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from msgspec import Struct

from whet.model.comparison import CaseChange, Comparison
from whet.reading.text import count, fitted, left, number, one_line, points, right, width
from whet.report.screen import Screen, Style

_MOST_ROWS = 60
_WIDEST_CASE, _NARROWEST_CASE = 48, 12
_WIDEST_ARM = 16
_WIDEST_REASON, _NARROWEST_REASON = 200, 40
_CELLS = 10
_GAP = "  "
_SURE = "certain by itself; other differences of single cases may be chance"

# Why a case failed in an arm.
Reasons = Mapping[tuple[str, str], str]


class CaseRow(Struct, frozen=True):
    """A case in a baseline and in each of its candidates; None where an arm does not have it."""

    case: str
    changes: tuple[CaseChange | None, ...]

    @property
    def movement(self) -> float:
        """The change of the candidate that got worst, or else of the one that got best."""
        values = [change.value for change in self.changes if change is not None]
        return min(values) if min(values) < 0 else max(values)

    @property
    def sure(self) -> bool:
        """Whether a change is certain by itself."""
        return any(change is not None and change.value and not change.may_be_chance for change in self.changes)


def case_table(comparisons: Sequence[Comparison], reasons: Reasons, screen: Screen) -> Iterator[str]:
    """Yield the cases of *comparisons*, which have one baseline, as lines; *reasons* tell why candidates failed."""
    every_row = sorted(_rows(comparisons), key=_place)
    kept = sorted(every_row, key=lambda row: (not row.sure, -abs(row.movement)))[:_MOST_ROWS]
    shown_rows = [row for row in every_row if row in kept] if len(kept) < len(every_row) else every_row
    if not shown_rows:
        return
    grid = _grid(comparisons, shown_rows, screen)
    names = [screen.fit(fitted(one_line(row.case), _WIDEST_CASE)) for row in shown_rows]
    room = _Room.of(screen.columns, max(map(width, ("case", *names))), sum(width(text) + 2 for text in grid[0]))
    bar_heading = _GAP + " " * _CELLS if room.bar else ""
    last = next((f"{_GAP}why {one_line(item.candidate, _WIDEST_ARM)} failed" for item in comparisons[-1:]), "")
    row_reasons = [_reason(row, comparisons, reasons) for row in shown_rows]
    heading = f"    {left('case', room.case)}{_GAP}{_GAP.join(grid[0])}{bar_heading}"
    yield screen.paint(heading + (last if room.reason and any(row_reasons) else ""), "dim")
    for row, name, cells, why in zip(shown_rows, names, grid[1:], row_reasons, strict=True):
        style = _style(row)
        mark = screen.paint(screen.fit(_mark(row)), style)
        bar = _GAP + screen.paint(left(screen.fit("━" * round(abs(row.movement) * _CELLS)), _CELLS), style)
        line = f"  {mark} {left(fitted(name, room.case), room.case)}{_GAP}{_GAP.join(_painted(cells, row, screen))}"
        said = _GAP + _beginning(why, room.reason) if room.reason and why else ""
        yield f"{line}{bar if room.bar and (said or row.movement) else ''}{said}"
        if why and not room.reason:
            yield f"      {screen.paint(screen.fit('│'), 'dim')} {why}"
    yield from _footer(every_row, shown_rows, screen)


def _beginning(text: str, columns: int) -> str:
    """Return the first words of *text* that take no more than so many *columns*."""
    if width(text) <= columns:
        return text
    words = list(accumulate(text.split(" "), lambda head, word: f"{head} {word}"))
    fitting = [head for head in words if width(head) < columns]
    return f"{fitting[-1]}…" if fitting else fitted(text, columns)


def _rows(comparisons: Sequence[Comparison]) -> Iterator[CaseRow]:
    by_case = [{change.case: change for change in comparison.cases} for comparison in comparisons]
    for case in dict.fromkeys(case for changes in by_case for case in changes):
        yield CaseRow(case, tuple(changes.get(case) for changes in by_case))


def _place(row: CaseRow) -> tuple[bool, bool, float]:
    """Return where a row stands: losses first, then gains, the largest first, and then what is the same."""
    return (not row.movement, row.movement > 0, -abs(row.movement))


def _grid(comparisons: Sequence[Comparison], rows: Sequence[CaseRow], screen: Screen) -> list[list[str]]:
    """Return the padded cells of the heading and of each row: the baseline, and two for each candidate."""
    heading = [one_line(comparisons[0].baseline, _WIDEST_ARM)]
    for comparison in comparisons:
        heading += [one_line(comparison.candidate, _WIDEST_ARM), "points"]
    lines = [[screen.fit(text) for text in heading], *(_cells(row, comparisons) for row in rows)]
    widths = [max(map(width, column)) for column in zip(*lines, strict=True)]
    return [[right(text, size) for text, size in zip(line, widths, strict=True)] for line in lines]


def _cells(row: CaseRow, comparisons: Sequence[Comparison]) -> list[str]:
    known = next(change for change in row.changes if change is not None)
    cells = [_cell(known.baseline, known.baseline_trials, is_score=comparisons[0].scored)]
    for change, comparison in zip(row.changes, comparisons, strict=True):
        if change is None:
            cells += ["-", "-"]
            continue
        cells.append(_cell(change.candidate, change.candidate_trials, is_score=comparison.scored))
        cells.append(_movement(change))
    return cells


def _movement(change: CaseChange) -> str:
    """Return by how many points a case moved; "-" if an arm has no value."""
    if change.baseline is None or change.candidate is None:
        return "-"
    # Means of equal scores may differ by what arithmetic leaves.
    return points(change.value) if round(change.value, 9) else "0"


def _cell(value: float | None, trials: int, *, is_score: bool) -> str:
    """Return how many trials passed, such as "3/5", or the mean score of so many."""
    if value is None:
        return "-"
    passes = value * trials
    return f"{value:.2f}" if is_score or abs(passes - round(passes)) > 1e-6 else f"{round(passes)}/{trials}"  # noqa: PLR2004


def _painted(cells: Sequence[str], row: CaseRow, screen: Screen) -> list[str]:
    """Return *cells* with each change in its colour; those that are certain are bold too."""
    painted_cells = list(cells)
    for place, change in enumerate(row.changes):
        if change is not None and change.value:
            style: Style = "good" if change.value > 0 else "bad"
            text = screen.paint(painted_cells[2 * place + 2], style)
            painted_cells[2 * place + 2] = text if change.may_be_chance else screen.paint(text, "bold")
    return painted_cells


def _mark(row: CaseRow) -> str:
    if not row.sure:
        return " "
    return "✓" if row.movement > 0 else "✗"


def _style(row: CaseRow) -> Style:
    if not row.movement:
        return "dim"
    return "good" if row.movement > 0 else "bad"


def _reason(row: CaseRow, comparisons: Sequence[Comparison], reasons: Reasons) -> str:
    """Return why the last candidate failed that did."""
    arm_reasons = [reasons.get((comparison.candidate, row.case), "") for comparison in comparisons]
    return next((one_line(why, _WIDEST_REASON) for why in reversed(arm_reasons) if why), "")


class _Room(Struct, frozen=True):
    """How wide the names of cases are, whether there is a bar, and how wide a reason may be; 0 if it has no room."""

    case: int
    bar: bool
    reason: int

    @classmethod
    def of(cls, columns: int | None, widest: int, cells: int) -> _Room:
        if columns is None:
            return cls(widest, bar=True, reason=_WIDEST_REASON)
        free = columns - cells - 4
        case = min(widest, max(_NARROWEST_CASE, free))
        free -= case + 2
        has_bar = free >= _CELLS
        free -= _CELLS + 2 if has_bar else 0
        return cls(case, bar=has_bar, reason=min(free, _WIDEST_REASON) if free >= _NARROWEST_REASON else 0)


def _footer(every_row: Sequence[CaseRow], shown_rows: Sequence[CaseRow], screen: Screen) -> Iterator[str]:
    """Yield what the table leaves out, and what its marks mean."""
    omissions = [row for row in every_row if row not in shown_rows]
    if omissions:
        movements = [row.movement for row in omissions]
        span = f"{points(min(movements))} to {points(max(movements))} points"
        text = f"and {count(len(omissions), 'more case')}, from {span}; --json has all {number(len(every_row))}"
        yield screen.paint(f"    {text}", "dim")
    if any(row.sure for row in shown_rows):
        yield screen.paint(screen.fit(f"    ✓ ✗ {_SURE}"), "dim")
