"""Pages of a list, newest first: a cursor names the last row that was seen, so that new rows move nothing."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, Table, and_, or_

DEFAULT_LIMIT = 50
MOST = 100
_LATEST_US = 2**62
_ID_LENGTH = 36


class BadCursor(Exception):
    """A cursor that we did not give."""


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of a list is wanted: at most `limit` rows that are older than `before`."""

    limit: int = DEFAULT_LIMIT
    before: tuple[int, str] | None = None

    @staticmethod
    def of(limit: int, cursor: str | None) -> Page:
        """The page after the one that gave *cursor*."""
        return Page(limit, _read(cursor) if cursor is not None else None)

    def of_rows(self, query: Select[Any], table: Table) -> Select[Any]:
        """*query*, for this page and one row more, which tells whether there is another."""
        if self.before is not None:
            created_us, id_ = self.before
            older = table.c.created_us < created_us
            query = query.where(or_(older, and_(table.c.created_us == created_us, table.c.id < id_)))
        return query.order_by(table.c.created_us.desc(), table.c.id.desc()).limit(self.limit + 1)


def next_cursor(page: Page, rows: list[Any]) -> str | None:
    """The cursor for what follows *rows*, of which the one too many is taken away."""
    if len(rows) <= page.limit:
        return None
    del rows[page.limit :]
    last = rows[-1]
    return base64.urlsafe_b64encode(f"{last.created_us}.{last.id}".encode()).decode().rstrip("=")


def _read(cursor: str) -> tuple[int, str]:
    try:
        text = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4)).decode("ascii")
        created, _, id_ = text.partition(".")
        created_us = int(created)
    except (UnicodeError, binascii.Error, ValueError):
        raise BadCursor from None
    if not 0 <= created_us <= _LATEST_US or len(id_) != _ID_LENGTH or not id_.isprintable():
        raise BadCursor
    return created_us, id_
