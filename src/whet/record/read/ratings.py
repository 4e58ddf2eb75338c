"""How judges rated the items of rubrics, on average; read from the evidence of grades, which rows leave out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

from msgspec import Struct

from whet.model import codec
from whet.record.folder import JOURNAL_FILE
from whet.record.read.rows import TrialRow
from whet.record.safe_open import open_inside

# The ratings of more trials than this would take long to read, and change a mean little.
_MOST_JUDGED = 100
_MOST_ITEMS = 200


class ItemRating(Struct, kw_only=True):
    """How an item of a rubric was rated, from 0 to 1, on average."""

    check: str
    item: str
    value: float
    total: int


class _ItemOfEvidence(Struct):
    description: str
    value: float


class _EvidenceOfCheck(Struct):
    check: str
    evidence: str | None = None


class _EvidenceLine(Struct):
    """A line of the journal, of which only the evidence of judges is read."""

    grades: tuple[_EvidenceOfCheck, ...] = ()


def item_ratings(run_dir: Path, rows: Iterable[TrialRow]) -> tuple[ItemRating, ...]:
    """Return each item of the rubrics of these trials with its mean rating."""
    ratings: dict[tuple[str, str], list[float]] = {}
    judged = islice((row for row in rows if row.grades), _MOST_JUDGED)
    for grade in chain.from_iterable(line.grades for line in _evidence_lines(run_dir, judged)):
        for item in _items_of(grade.evidence or ""):
            ratings.setdefault((grade.check, item.description), []).append(item.value)
    made = (
        ItemRating(check=check, item=name, value=sum(values) / len(values), total=len(values))
        for (check, name), values in ratings.items()
    )
    return tuple(islice(made, _MOST_ITEMS))


def _evidence_lines(run_dir: Path, rows: Iterable[TrialRow]) -> Iterator[_EvidenceLine]:
    file = open_inside(run_dir, JOURNAL_FILE)
    if file is None:
        return
    with file:
        for row in rows:
            try:
                yield codec.decode(os.pread(file.fileno(), row.size, row.offset), _EvidenceLine)
            except (OSError, codec.WireError):
                continue


def _items_of(evidence: str) -> tuple[_ItemOfEvidence, ...]:
    """Return the items of a rubric; evidence of another form is of no judge."""
    if not evidence.startswith("["):
        return ()
    try:
        return codec.decode(evidence.encode(), tuple[_ItemOfEvidence, ...])
    except codec.WireError:
        return ()
