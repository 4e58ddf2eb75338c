"""The database of the service: its tables, one way to read and one to write, pages of rows, and migrations."""

from __future__ import annotations

import base64
import binascii
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Select,
    String,
    Table,
    UniqueConstraint,
    and_,
    create_engine,
    event,
    make_url,
    or_,
)
from sqlalchemy.engine import URL, Engine
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError

from whet.errors import UsageError

metadata = MetaData()

organisations = Table(
    "organisations",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("name", String(100), nullable=False, unique=True),
    Column("created_us", BigInteger, nullable=False),
)

keys = Table(
    "keys",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("organisation_id", String(36), ForeignKey("organisations.id"), nullable=False),
    Column("prefix", String(32), nullable=False, unique=True),
    Column("hash", String(64), nullable=False),
    Column("scopes", String(100), nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("revoked_us", BigInteger),
)

suites = Table(
    "suites",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("organisation_id", String(36), ForeignKey("organisations.id"), nullable=False),
    Column("version", Integer, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("updated_us", BigInteger, nullable=False),
    Column("deleted_us", BigInteger),
    Index("suites_by_age", "organisation_id", "created_us", "id"),
)

# A version is never changed: a run names the one that it ran.
suite_versions = Table(
    "suite_versions",
    metadata,
    Column("suite_id", String(36), ForeignKey("suites.id"), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("head", LargeBinary, nullable=False),
    Column("cases", LargeBinary, nullable=False),
    Column("created_us", BigInteger, nullable=False),
)

runs = Table(
    "runs",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("organisation_id", String(36), ForeignKey("organisations.id"), nullable=False),
    Column("suite_id", String(36), ForeignKey("suites.id"), nullable=False),
    Column("suite_version", Integer, nullable=False),
    Column("status", String(20), nullable=False),
    Column("outcome", String(20)),
    Column("request", LargeBinary, nullable=False),
    Column("summary", LargeBinary),
    Column("error", LargeBinary),
    Column("created_us", BigInteger, nullable=False),
    Column("started_us", BigInteger),
    Column("ended_us", BigInteger),
    Column("cancel_us", BigInteger),
    Column("event_count", Integer, nullable=False),
    Index("runs_by_age", "organisation_id", "created_us", "id"),
    Index("runs_of_suite", "suite_id", "created_us", "id"),
    Index("runs_by_status", "status", "created_us"),
)

# `mark` names what an event tells of, so that telling it again after a restart adds nothing.
run_events = Table(
    "run_events",
    metadata,
    Column("run_id", String(36), ForeignKey("runs.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("mark", String(64), nullable=False),
    Column("type", String(40), nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    UniqueConstraint("run_id", "mark", name="run_events_once"),
)

bundles = Table(
    "bundles",
    metadata,
    Column("organisation_id", String(36), ForeignKey("organisations.id"), primary_key=True),
    Column("sha256", String(64), primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("created_us", BigInteger, nullable=False),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("organisation_id", String(36), ForeignKey("organisations.id"), primary_key=True),
    Column("key_hash", String(64), primary_key=True),
    Column("fingerprint", String(64), nullable=False),
    Column("resource_id", String(36), nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Index("idempotency_by_age", "created_us"),
)


POSTGRESQL_DRIVER = "postgresql+psycopg"
_POSTGRESQL_NAMES = ("postgresql", "postgres", POSTGRESQL_DRIVER)
_EXAMPLES = "write sqlite:///whet.db or postgresql://user@host/name"
# As many as there are threads that ask; see `service/service.py`.
CONNECTIONS = 16
# How long a write waits for those before it; who waits keeps a thread that others could read with.
PATIENCE_S = 10.0


class Database:
    """Connections to one database; reading and writing are transactions of their own."""

    def __init__(self, url: str, patience_s: float = PATIENCE_S) -> None:
        self.url = database_url(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self.engine = _sqlite_engine(self.url, patience_s) if self.is_sqlite else _postgresql_engine(self.url)
        self._turn = _Turn(patience_s) if self.is_sqlite else nullcontext()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that changes nothing."""
        with self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that is kept if the block ends well, and undone otherwise."""
        with self._turn, self.engine.connect() as plain:
            connection = plain.execution_options(writes=True)
            with connection.begin():
                yield connection

    def check(self) -> None:
        """Ask the database anything; `UsageError` where it does not answer."""
        try:
            with self.reading() as connection:
                connection.exec_driver_sql("SELECT 1")
        except SQLAlchemyError as error:
            reason = str(getattr(error, "orig", error)).strip().split("\n")[0]
            raise UsageError(f"{self.shown} cannot be opened: {reason}", hint=_EXAMPLES) from None

    @property
    def shown(self) -> str:
        """Its URL without the password."""
        return self.url.render_as_string(hide_password=True)

    def close(self) -> None:
        """Let go of every connection."""
        self.engine.dispose()


class _Turn:
    """SQLite lets one write at a time and makes the others poll; here they wait in turn, and not for ever."""

    def __init__(self, patience_s: float) -> None:
        self._lock = threading.Lock()
        self._patience_s = patience_s

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=self._patience_s):
            # As SQLite says it itself where another process holds it.
            raise OperationalError("BEGIN IMMEDIATE", None, sqlite3.OperationalError("database is locked"))

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def database_url(text: str) -> URL:
    """The URL that *text* says, with the driver that we use; `UsageError` where it is none of ours."""
    try:
        url = make_url(text)
    except ArgumentError:
        # Not repeated: it may hold a password.
        raise UsageError("the database is not a URL", hint=_EXAMPLES) from None
    if url.drivername in _POSTGRESQL_NAMES:
        return url.set(drivername=POSTGRESQL_DRIVER)
    if url.drivername == "sqlite":
        if not url.database or url.database == ":memory:":
            raise UsageError("the database of a service must be a file", hint=_EXAMPLES)
        return url
    raise UsageError(f'"{url.drivername}" is no database that whet knows', hint=_EXAMPLES)


def now_us() -> int:
    """This moment, as the tables keep it."""
    return time.time_ns() // 1000


def _sqlite_engine(url: URL, patience_s: float) -> Engine:
    engine = create_engine(url, pool_size=CONNECTIONS, max_overflow=0)

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _: Any) -> None:
        # The driver would begin transactions by itself, and too late.
        connection.isolation_level = None
        busy = f"busy_timeout = {int(patience_s * 1000)}"
        for pragma in (busy, "journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that turns into a writing one later could only fail where another one was quicker.
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _postgresql_engine(url: URL) -> Engine:
    # One more, for the lock that a server holds (`service/start.py`).
    # pre-ping: a connection that the server has closed meanwhile is replaced and not an error of a request.
    return create_engine(url, pool_size=CONNECTIONS + 1, max_overflow=0, pool_pre_ping=True)


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


# Any number, as long as it is always the same one: who migrates holds it, so that two servers do not do it at once.
_LOCK = 7_739_844_001


def migrate(database: Database) -> None:
    """Do the steps that *database* still lacks; `UsageError` where it is newer than we are."""
    database.check()
    with database.writing() as connection:
        if not database.is_sqlite:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
        config = _config(connection)
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise UsageError(
                f"{database.shown} was made by a newer whet: {error}", hint="install that one, or name another database"
            ) from None


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", "whet.service:migrations")
    config.attributes["connection"] = connection
    return config
