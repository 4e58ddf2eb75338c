"""Trials as rows of a table, and those that errored by their causes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from whet.reading.text import one_line
from whet.record.read.rows import TrialRow
from whet.report.finding import message_of, own_label
from whet.report.reason import parted_reason
from whet.view.documents import ErroredGroup, TrialLine

_LONGEST_REASON = 160


def cells_of(row: TrialLine) -> list[Any]:
    """Return the values of a row, in order."""
    return [getattr(row, name) for name in TrialLine.__struct_fields__]


def shown_row(row: TrialRow) -> TrialLine:
    """Return a trial as a table shows it."""
    failure = row.failure
    reason, more = (None, None) if row.status == "passed" else _reason(message_of(row))
    return TrialLine(
        number=row.key.number,
        status=row.status,
        score=row.score,
        duration_s=None if row.duration_s is None else round(row.duration_s, 3),
        tokens=row.usage.total_tokens,
        cost_usd=row.usage.cost_usd,
        steps=row.steps,
        failure_code=failure.code if failure else None,
        failure_cause=failure.cause if failure else None,
        failure_class=row.failure_class.id if row.failure_class else None,
        reason=reason,
        more=more,
        counting=row.counting_status,
        attempts=max(1, len(row.attempts)),
        label=own_label(row),
    )


def _reason(message: str) -> tuple[str | None, str | None]:
    """Return the line of a message that says most, and what follows it."""
    head, rest = parted_reason(message)
    return _beginning(head) or None, rest or None


def _beginning(text: str) -> str:
    return text if len(text) <= _LONGEST_REASON else f"{text[: _LONGEST_REASON - 1]}\u2026"


def errored_groups(rows: Iterable[TrialRow]) -> Iterator[ErroredGroup]:
    """Yield the trials that errored by cause and code, the most frequent first."""
    groups: dict[tuple[str, str], ErroredGroup] = {}
    for row in rows:
        if row.status != "errored":
            continue
        cause, code = (row.failure.cause, row.failure.code) if row.failure else ("", "")
        group = groups.setdefault(
            (cause, code), ErroredGroup(cause=cause, code=code, count=0, message=one_line(message_of(row), 500))
        )
        group.count += 1
    yield from sorted(groups.values(), key=lambda group: -group.count)
