"""Labels of people on what the judge of a run decided, in the database: one row for each line of a `labels.jsonl`."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, delete, func, insert, select, update

from whet.decide.judging.units import Label, LabelLine
from whet.model import codec
from whet.record.judging.labels_file import line_of
from whet.service.database import labels, now_us
from whet.service.errors import Refused, not_found

# More than people write by hand.
_MOST_LABELS = 10_000


def raw_lines(connection: Connection, run_id: str) -> list[bytes]:
    """Return the labels on a run as lines, oldest first."""
    query = select(labels.c.line).where(labels.c.run_id == run_id).order_by(labels.c.created_us, labels.c.id)
    return [row.line for row in connection.execute(query)]


def lines_of(connection: Connection, run_id: str) -> list[LabelLine]:
    """Return the labels on a run, oldest first."""
    return [line_of(codec.decode(line, Label))[0] for line in raw_lines(connection, run_id)]


def revealed_ids(connection: Connection, run_id: str) -> set[str]:
    """Return the labels whose authors have seen since what the judge said."""
    query = select(labels.c.id).where(labels.c.run_id == run_id, labels.c.revealed.is_(True))
    return {row.id for row in connection.execute(query)}


def mark_revealed(connection: Connection, run_id: str, ids: Collection[str]) -> None:
    """Keep that the authors of these labels see now what the judge said."""
    connection.execute(update(labels).where(labels.c.run_id == run_id, labels.c.id.in_(ids)).values(revealed=True))


def add_label(connection: Connection, run_id: str, label: Label) -> None:
    """Keep *label*; who says the same twice within a second has said it once."""
    line, raw = line_of(label)
    of_run = labels.c.run_id == run_id
    if connection.execute(select(func.count()).where(of_run)).scalar_one() >= _MOST_LABELS:
        raise Refused(409, f"the run has {_MOST_LABELS} labels, which is the most that a run may have")
    if connection.execute(select(labels.c.id).where(of_run, labels.c.id == line.id)).first() is None:
        connection.execute(
            insert(labels).values(
                run_id=run_id, id=line.id, line=raw, author=label.by, revealed=False, created_us=now_us()
            )
        )


def remove_label(connection: Connection, run_id: str, line_id: str, author: str) -> None:
    """Remove a label of *author*; refuses one that is not there, and one that the judge's reason could have changed."""
    own_label = (labels.c.run_id == run_id, labels.c.id == line_id, labels.c.author == author)
    row = connection.execute(select(labels.c.revealed).where(*own_label)).first()
    if row is None:
        raise not_found("label")
    if row.revealed:
        raise Refused(409, "you have seen what the judge said, so this label stays")
    connection.execute(delete(labels).where(*own_label))
