"""What an agent left in its home and its adapter asks for: files, and rows of databases, with secrets masked."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from whet import wire
from whet.agents.base import AgentCommand, Rows
from whet.mask import Masker

_LARGEST = 16 * 1024 * 1024
_MOST_FILES = 200
_LARGEST_DATABASE = 256 * 1024 * 1024
# An agent may leave a database that never stops answering.
_MOST_STEPS = 200_000_000
_STEPS_AT_ONCE = 1_000_000


def collected(home: Path, asked: AgentCommand, masker: Masker) -> dict[str, bytes]:
    """What is there of what *asked* collects, by name; what is too large or leads out of the home is left out."""
    found = {}
    for path in _files(home, asked.collect):
        found[str(path.relative_to(home))] = masker.data(path.read_bytes())
    for name, rows in asked.collect_rows.items():
        database = home / rows.database
        if _is_own(home, database, _LARGEST_DATABASE):
            found[name] = masker.data(_answer(database, rows))
    return found


def _files(home: Path, names: tuple[str, ...]) -> Iterator[Path]:
    for name in names:
        paths = sorted(home.glob(name))[:_MOST_FILES] if "*" in name else [home / name]
        yield from (path for path in paths if _is_own(home, path, _LARGEST))


def _is_own(home: Path, path: Path, largest: int) -> bool:
    """Whether it is a file below *home*, by no link, that is not too large."""
    own = path.is_file() and Path(os.path.realpath(path)) == Path(os.path.realpath(home)) / path.relative_to(home)
    return own and path.stat().st_size <= largest


def _answer(database: Path, rows: Rows) -> bytes:
    """A line for each row; none where it is no such database."""
    left = _MOST_STEPS // _STEPS_AT_ONCE

    def too_long() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    lines: list[bytes] = []
    size = 0
    try:
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA query_only = ON")
            connection.set_progress_handler(too_long, _STEPS_AT_ONCE)
            cursor = connection.execute(rows.query)
            names = [column[0] for column in cursor.description]
            for row in cursor:
                lines.append(wire.encode(dict(zip(names, row, strict=True))) + b"\n")
                size += len(lines[-1])
                if size > _LARGEST:
                    break
    except (sqlite3.Error, ValueError, OverflowError):
        return b"".join(lines)
    return b"".join(lines)
