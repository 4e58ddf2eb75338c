"""One server for a database and a data folder: two would take up each other's runs."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from sqlalchemy import text

from whet.errors import UsageError
from whet.server.storage.database import Database

# Any number, as long as it is always the same one.
_LOCK = 7_739_844_002


@contextmanager
def alone(database: Database, data_dir: Path) -> Iterator[None]:
    """Hold both for ourselves; `UsageError` where another server does. Ends with our process, however it ends."""
    with _file_held(data_dir / ".lock", str(data_dir)), _database_held(database):
        yield


def _database_held(database: Database) -> AbstractContextManager[None]:
    if database.is_sqlite:
        # Resolved, because a link to the file is another name of the same database.
        return _file_held(Path(f"{Path(str(database.url.database)).resolve()}-server"), database.shown)
    return _advisory_lock(database)


@contextmanager
def _file_held(path: Path, what: str) -> Iterator[None]:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _in_use(what) from None
        yield
    finally:
        os.close(file)


@contextmanager
def _advisory_lock(database: Database) -> Iterator[None]:
    """The database's own lock, which it lets go of when our connection ends."""
    with database.engine.connect() as plain:
        connection = plain.execution_options(isolation_level="AUTOCOMMIT")
        if not connection.execute(text("SELECT pg_try_advisory_lock(:number)"), {"number": _LOCK}).scalar():
            raise _in_use(database.shown)
        try:
            yield
        finally:
            # Not given back to the pool with the lock; where the database was restarted, there is none any more.
            plain.invalidate()


def _in_use(what: str) -> UsageError:
    return UsageError(
        f"{what} is in use by another server", hint="a server has its database and data folder for itself"
    )
