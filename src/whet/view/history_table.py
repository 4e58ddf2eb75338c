"""Print the history of a suite as a table: the rate of each run, where a change is decided, and flaky cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path

from whet.errors import UsageError
from whet.model.comparison import Decision
from whet.model.session import Usage
from whet.model.spending import Bill, Spending
from whet.reading.text import (
    aligned,
    count,
    fitted,
    left,
    money,
    one_line,
    percent,
    percent_range,
    points,
    right,
    width,
)
from whet.report.decisions.case_history import CaseHistory
from whet.report.screen import Screen, Style
from whet.report.spent import spending_text
from whet.view.addresses import Missing, Runs
from whet.view.history.documents import DecidedChange, HistoryDocument, HistoryPoint
from whet.view.improve.page import ImproveRuns

_FLAKY_SHOWN = 10
_DIGITS = 8
_CASES_SHOWN = 40
_FEWEST_RUNS = 2
_WIDEST_CASE = 32
_CELL_WIDTH = 6
_STEPS_SHOWN = 4
# For the words after the cells.
_STEP_WIDTH = 24
_USUAL_COLUMNS = 160
_GOOD, _BAD = 0.8, 0.5
_BETTER: tuple[str, Style] = ("better", "good")
_WORSE: tuple[str, Style] = ("worse", "bad")
_STYLES: dict[Decision, Style] = {"better": "good", "worse": "bad"}
_WORDS: dict[Decision, str] = {"better": "better", "worse": "worse", "not-worse": "not worse", "inconclusive": ""}


def find_histories(
    suites: Sequence[str], folders: Sequence[Path], improve: ImproveRuns | None = None
) -> list[HistoryDocument]:
    """Return the histories of those *suites* that were run, by their paths or names; refuses if none was."""
    runs = Runs("", lambda: folders, improve=improve)
    histories = [history for suite in suites if (history := _find(suite, runs)) is not None]
    if not histories:
        raise UsageError(
            f"there is no run of {' or '.join(suites)}", hint="name the path or the name of a suite that was run"
        )
    return histories


def _find(suite: str, runs: Runs) -> HistoryDocument | None:
    for name in (str(Path(suite).resolve()), suite):
        with suppress(Missing):
            return runs.history(name)
    return None


def history_lines(history: HistoryDocument, screen: Screen) -> Iterator[str]:
    """Yield the runs, oldest first, and the cases that end differently on the same content."""
    yield f"{screen.paint(one_line(history.suite), 'bold')}: {count(len(history.points), 'run')}"
    table: list[tuple[str, ...]] = [("#", *_HEAD)]
    for number, point in enumerate(history.points, 1):
        table.append((str(number), *_row(point)))
    head, *lines = aligned(_fitting(table, screen.columns))
    yield f"  {screen.paint(head, 'dim')}"
    for line, point in zip(lines, history.points, strict=True):
        change = _change(point.changed)
        text = line.removesuffix(change)
        yield f"  {text}{screen.paint(change, _STYLES.get(point.changed.verdict) if point.changed else None)}"
    yield from (
        f"  {screen.paint('accepted', 'good')}  the skill of run {number} is the version that {improve_run} accepted"
        for number, improve_run in _accepted(history)
    )
    yield from _grid(history, screen)
    if history.flaky:
        yield ""
        yield screen.paint("flaky on the same content", "bold")
        rows = [
            (
                f"{one_line(case.case, 60)}@{one_line(case.runner, 30)}/{one_line(case.arm, 30)}",
                f"changed {count(case.changes, 'time')} in {count(case.runs, 'run')}",
            )
            for case in history.flaky[:_FLAKY_SHOWN]
        ]
        yield from (f"  {line}" for line in aligned(rows))
        if len(history.flaky) > _FLAKY_SHOWN:
            yield f"  and {count(len(history.flaky) - _FLAKY_SHOWN, 'more case')}: --json lists them"


def _accepted(history: HistoryDocument) -> Iterator[tuple[int, str]]:
    """Yield the first run on each version that an improve run has accepted, by its number."""
    before = None
    for number, point in enumerate(history.points, 1):
        if point.accepted_by is not None and point.accepted_by != before:
            yield number, point.accepted_by
        before = point.accepted_by


def _fitting(table: Sequence[Sequence[str]], columns: int | None) -> list[tuple[str, ...]]:
    """Return *table* without the columns that say least, as far as it is wider than the terminal."""
    cells = dict(zip(table[0], zip(*table, strict=True), strict=True))
    for name in _SAYING_LEAST:
        if columns is None or sum(map(_width_of_column, cells.values())) <= columns:
            break
        del cells[name]
    return list(zip(*cells.values(), strict=True))


def _width_of_column(cells: Sequence[str]) -> int:
    return max(map(width, cells)) + 2


def _grid(history: HistoryDocument, screen: Screen) -> Iterator[str]:
    """Yield a row for each case with its rate in each run, and a rule wherever the content changed."""
    cases = list(filter(_has_moved, history.cases))[:_CASES_SHOWN]
    if not cases or len(history.points) < _FEWEST_RUNS:
        return
    columns = screen.columns or _USUAL_COLUMNS
    most = min(_WIDEST_CASE, columns * 2 // 5)
    name_of = partial(_case_name, most, are_alone=len(set(map(_executor, history.cases))) == 1)
    widest = max(len("case"), *map(width, map(name_of, cases)))
    fitting_runs = (columns - widest - _STEP_WIDTH) // _CELL_WIDTH
    shown_runs = range(max(0, len(history.points) - max(_FEWEST_RUNS, fitting_runs)), len(history.points))
    yield ""
    yield screen.paint("cases by run, in percent; a line where the content changed", "bold")
    rules = partial(_with_rules, history, shown_runs, screen)
    yield screen.paint(f"  {left('case', widest)}{rules(_number)}", "dim")
    for case in cases:
        cells = rules(partial(_cell, case, screen))
        yield f"  {left(screen.fit(name_of(case)), widest)}{cells}{_steps(case, history, screen)}"
    for line in _grid_notes(history, cases, shown_runs):
        yield screen.paint(f"  {line}", "dim")


def _has_moved(case: CaseHistory) -> bool:
    """Return whether a case has different rates, or was edited."""
    cells = list(filter(None, case.cells))
    return bool(case.edited) or len(set(map(attrgetter("value"), cells))) > 1


def _executor(case: CaseHistory) -> tuple[str, str]:
    return case.runner, case.arm


def _case_name(most: int, case: CaseHistory, *, are_alone: bool) -> str:
    """Return the name of a case, with its runner and arm if there are several."""
    name = one_line(case.case, 80)
    return fitted(name if are_alone else f"{name}@{one_line(case.runner, 30)}/{one_line(case.arm, 30)}", most)


def _with_rules(history: HistoryDocument, shown_runs: range, screen: Screen, cell: Callable[[int], str]) -> str:
    """Return the cells of some runs, with a line before each run whose content is another one than that before it."""
    text = ""
    for place in shown_runs:
        is_new = place > shown_runs.start and history.points[place].content != history.points[place - 1].content
        text += screen.fit(" │ " if is_new else "   ") + cell(place)
    return text


def _number(place: int) -> str:
    return right(str(place + 1), 3)


def _cell(case: CaseHistory, screen: Screen, place: int) -> str:
    cell = case.cells[place]
    if cell is None:
        return screen.paint(right(screen.fit("·"), 3), "dim")
    return screen.paint(right(f"{100 * cell.value:.0f}", 3), _rate_style(cell.value))


def _rate_style(value: float) -> Style:
    if value >= _GOOD:
        return "good"
    return "bad" if value < _BAD else "warn"


def _steps(case: CaseHistory, history: HistoryDocument, screen: Screen) -> str:
    """Return the decided changes of a case, and where its text changed."""
    runs = list(map(attrgetter("run"), history.points))
    texts: list[str] = []
    for step in filter(attrgetter("decided"), case.steps):
        word, style = _BETTER if step.after > step.before else _WORSE
        texts.append(screen.paint(f"{word} with {runs.index(step.run) + 1}", style))
    texts += (f"edited with {runs.index(run) + 1}" for run in case.edited)
    if len(texts) > _STEPS_SHOWN:
        texts = [f"{len(texts) - _STEPS_SHOWN} earlier", *texts[-_STEPS_SHOWN:]]
    return f"   {', '.join(texts)}" if texts else ""


def _grid_notes(history: HistoryDocument, cases: Sequence[CaseHistory], shown_runs: range) -> Iterator[str]:
    """Yield what the grid leaves out, and what its words mean."""
    if shown_runs.start:
        yield f"runs 1 to {shown_runs.start} are left out"
    others = len(history.cases) + history.cases_left_out - len(cases)
    if others:
        yield f"and {count(others, 'more case')}: --json lists {'most' if history.cases_left_out else 'all'} of them"
    steps = list(chain.from_iterable(map(attrgetter("steps"), cases)))
    if any(map(attrgetter("decided"), steps)):
        yield "of the changes that are called better or worse here, at most 5 % are chance"
    elif steps:
        yield "no change of a single case is decided: each may be chance"


_HEAD = ("run", "arm", "cases", "rate", "95 % interval on these cases", "cost", "content", "change")
# The columns that a narrow terminal goes without, in this order; --json has them.
_SAYING_LEAST = ("content", "95 % interval on these cases", "cost", "cases")


def _row(point: HistoryPoint) -> tuple[str, ...]:
    rate = point.rate
    return (
        one_line(point.run, 40),
        one_line(", ".join(point.arms), 40),
        _cases(point),
        percent(rate.value) if rate else "-",
        percent_range(rate.low, rate.high) if rate else "-",
        _cost(point),
        point.commit[:_DIGITS] if point.commit else point.content[:_DIGITS],
        _change(point.changed),
    )


def _cases(point: HistoryPoint) -> str:
    """Return how many cases ran, and of which parts if not all did: "3 of 6 (held-out)"."""
    if point.cases == point.cases_of_suite:
        return str(point.cases)
    parts = f" ({', '.join(point.splits)})" if point.splits else ""
    return f"{point.cases} of {point.cases_of_suite}{parts}"


def _cost(point: HistoryPoint) -> str:
    """Return the cost, such as "$0.264 (agents $0.165, judge $0.099)"; "-" if no cost is known."""
    if point.cost_usd is None:
        return "-"
    text = spending_text(
        Spending(**{bill.who: Bill(usage=Usage(cost_usd=bill.cost_usd), unknown=bill.unknown) for bill in point.spent})
    )
    return f"{money(point.cost_usd)} ({text})" if len(point.spent) > 1 else text or money(point.cost_usd)


def _change(change: DecidedChange | None) -> str:
    """Return what is decided about a change; an interval that says nothing either way is only looked at."""
    if change is None:
        return ""
    movement = f"{points(change.difference)} points ({points(change.low)} to {points(change.high)})"
    where = f" on {one_line(change.runner, 30)}" if change.runner else ""
    since = " from here on, on the same content" if change.same_content else ""
    return f"{_WORDS[change.verdict] or 'not decided'}{where}{since}: {movement}"
