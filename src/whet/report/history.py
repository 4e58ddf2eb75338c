"""Print the history of a suite as a table: the rate of each run, where a change is decided, and flaky cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from whet.errors import UsageError
from whet.model.comparison import Decision
from whet.model.session import Usage
from whet.model.spending import Bill, Spending
from whet.reading.text import aligned, count, money, one_line, percent
from whet.report.comparison import points
from whet.report.spent import spending_text
from whet.report.view_documents import DecidedChange, HistoryDocument, HistoryPoint
from whet.report.view_source import Missing, Runs

_FLAKY_SHOWN = 10
_DIGITS = 8
_WORDS: dict[Decision, str] = {"better": "better", "worse": "worse", "not-worse": "not worse", "inconclusive": ""}


def find_history(suite: str, folders: Sequence[Path]) -> HistoryDocument:
    """Return the history of the suite with that path or name; refuses one that was never run."""
    runs = Runs("", lambda: folders)
    for name in (str(Path(suite).resolve()), suite):
        try:
            return runs.history(name)
        except Missing:
            continue
    raise UsageError(f"there is no run of {suite}", hint="name the path or the name of a suite that was run")


def history_lines(found: HistoryDocument) -> Iterator[str]:
    """Yield the runs, oldest first, and the cases that end differently on the same content."""
    yield f"{one_line(found.suite)}: {count(len(found.points), 'run')}"
    yield from (f"  {line}" for line in aligned([_HEAD, *(_row(point) for point in found.points)]))
    if found.flaky:
        yield ""
        yield "flaky on the same content"
        rows = [
            (
                f"{one_line(each.case, 60)}@{one_line(each.runner, 30)}/{one_line(each.arm, 30)}",
                f"changed {count(each.changes, 'time')} in {count(each.runs, 'run')}",
            )
            for each in found.flaky[:_FLAKY_SHOWN]
        ]
        yield from (f"  {line}" for line in aligned(rows))
        if len(found.flaky) > _FLAKY_SHOWN:
            yield f"  and {count(len(found.flaky) - _FLAKY_SHOWN, 'more case')}: --json lists them"


_HEAD = ("run", "arm", "cases", "rate", "95 % interval on these cases", "cost", "content", "change")


def _row(point: HistoryPoint) -> tuple[str, ...]:
    rate = point.rate
    return (
        one_line(point.run, 40),
        one_line(", ".join(point.arms), 40),
        f"{point.cases} of {point.cases_of_suite}" if point.cases < point.cases_of_suite else str(point.cases),
        percent(rate.value) if rate else "-",
        f"{percent(rate.low)} to {percent(rate.high)}" if rate else "-",
        _cost(point),
        point.commit[:_DIGITS] if point.commit else point.content[:_DIGITS],
        _change(point.changed),
    )


def _cost(point: HistoryPoint) -> str:
    """Such as "$0.264 (agents $0.165, judge $0.099)"; "-" if no cost is known."""
    if point.cost_usd is None:
        return "-"
    text = spending_text(
        Spending(**{each.who: Bill(usage=Usage(cost_usd=each.cost_usd), unknown=each.unknown) for each in point.spent})
    )
    return f"{money(point.cost_usd)} ({text})" if len(point.spent) > 1 else text or money(point.cost_usd)


def _change(changed: DecidedChange | None) -> str:
    """Return what is decided about a change; an interval that says nothing either way is only looked at."""
    if changed is None:
        return ""
    moved = f"{points(changed.difference)} points ({points(changed.low)} to {points(changed.high)})"
    where = f" on {one_line(changed.runner, 30)}" if changed.runner else ""
    return f"{_WORDS[changed.verdict] or 'not decided'}{where}: {moved}"
