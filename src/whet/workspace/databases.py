"""Keeping secrets out of SQLite files: a value may lie across pages, so that a search through bytes misses it."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from whet.mask import HIDDEN, Masker

_HEADER = b"SQLite format 3\0"
_LOGIN = re.compile(r"credential|secret|passw|api_?key|(access|refresh|auth|id)_?token", re.IGNORECASE)
# An agent wrote it: a trigger of its own may not keep us for ever.
_PATIENCE_S = 20.0
_STEPS = 100_000


def is_database(path: Path) -> bool:
    """Whether *path* is an SQLite file."""
    with path.open("rb") as file:
        return file.read(len(_HEADER)) == _HEADER


def mask_database(masker: Masker, path: Path) -> None:
    """Replace secrets in every value, empty what is named after a login, and leave no trace of either in the file.

    Raises `sqlite3.Error` where the file cannot be read or rewritten.
    """
    deadline = time.monotonic() + _PATIENCE_S
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
        database.create_function("masked", 1, lambda value: _masked(masker, value), deterministic=True)
        database.execute("PRAGMA trusted_schema = OFF")
        # What was written last may still lie in a file beside it.
        database.execute("PRAGMA journal_mode = DELETE")
        database.execute("BEGIN")
        for statement in list(_statements(database)):
            database.execute(statement)
        database.execute("COMMIT")
        database.execute("VACUUM")


def _statements(database: sqlite3.Connection) -> Iterator[str]:
    tables = database.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"
    )
    for (table,) in tables:
        if _LOGIN.search(table):
            yield f"DELETE FROM {_quoted(table)}"  # noqa: S608
            continue
        for _, column, *_ in database.execute(f"PRAGMA table_info({_quoted(table)})"):
            place, name = _quoted(table), _quoted(column)
            if _LOGIN.search(column):
                yield f"UPDATE {place} SET {name} = '{HIDDEN}' WHERE typeof({name}) IN ('text', 'blob')"  # noqa: S608
            else:
                yield f"UPDATE {place} SET {name} = masked({name}) WHERE {name} IS NOT masked({name})"  # noqa: S608


def _masked(masker: Masker, value: Any) -> Any:
    match value:
        case str():
            return masker.text(value)
        case bytes():
            return masker.data(value)
        case _:
            return value


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
